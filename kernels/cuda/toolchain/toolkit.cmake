# Finds a CUDA toolkit, 12 or 13: nvcc, its headers and the static runtime. Search order: QUIRE_CUDA_HOME, CUDA_HOME and
# CUDA_PATH of the environment, the nvcc on PATH, /usr/local/cuda, and build/cuda of the source tree, where `bash
# tools/setup.sh cuda` installs one. The first toolkit that compiles a kernel with this machine's C++ compiler is used,
# and cached. CMake's own CUDA language is not used: it does not know the layout of NVIDIA's Python packages, and
# release 3.25 asks nvcc 13 for GPUs that it no longer has.
#
# Sets QUIRE_NVCC, QUIRE_CUDA_INCLUDE and QUIRE_CUDART, or leaves QUIRE_NVCC empty and puts the reason into
# QUIRE_CUDA_MISSING.

function(quire_try_toolkit home)
  find_program(nvcc nvcc PATHS ${home}/bin NO_DEFAULT_PATH NO_CACHE)
  if(NOT nvcc)
    set(QUIRE_CUDA_MISSING "no nvcc under ${home}/bin" PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND ${nvcc} --version OUTPUT_VARIABLE version ERROR_QUIET)
  string(REGEX MATCH "release ([0-9]+)\\.[0-9]+" release "${version}")
  if(NOT release OR CMAKE_MATCH_1 LESS 12)
    set(QUIRE_CUDA_MISSING "${nvcc} is ${release}, and 12 or later is needed" PARENT_SCOPE)
    return()
  endif()
  set(targets ${home}/targets/${CMAKE_SYSTEM_PROCESSOR}-linux ${home}/targets/sbsa-linux)
  list(TRANSFORM targets APPEND /include OUTPUT_VARIABLE target_includes)
  list(TRANSFORM targets APPEND /lib OUTPUT_VARIABLE target_libs)
  find_path(include cuda_runtime_api.h PATHS ${home}/include ${target_includes} NO_DEFAULT_PATH NO_CACHE)
  find_library(cudart cudart_static PATHS ${home}/lib64 ${home}/lib ${target_libs}
    ${home}/lib/${CMAKE_LIBRARY_ARCHITECTURE} NO_DEFAULT_PATH NO_CACHE)
  if(NOT include OR NOT cudart)
    set(QUIRE_CUDA_MISSING "${nvcc} is without its headers or without libcudart_static.a" PARENT_SCOPE)
    return()
  endif()
  # The usual problem is a compiler that is newer than the toolkit. The check takes half a second, once.
  set(trial ${CMAKE_CURRENT_BINARY_DIR}/trial.cu)
  file(WRITE ${trial} "#include <cuda_fp16.h>\n__global__ void f(__half *x) { *x = __float2half(1.0f); }\n")
  execute_process(COMMAND ${nvcc} -std=c++17 -arch=sm_80 -c ${trial} -o ${trial}.o
    RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(NOT status EQUAL 0)
    string(REGEX MATCH "[^\n]*error[^\n]*" first_error "${said}")
    set(QUIRE_CUDA_MISSING "${nvcc} compiles nothing here: ${first_error}" PARENT_SCOPE)
    return()
  endif()
  set(QUIRE_NVCC ${nvcc} CACHE FILEPATH "nvcc of CUDA 12 or 13" FORCE)
  set(QUIRE_CUDA_INCLUDE ${include} CACHE PATH "Headers of the CUDA toolkit" FORCE)
  set(QUIRE_CUDART ${cudart} CACHE FILEPATH "The static CUDA runtime" FORCE)
endfunction()

set(QUIRE_CUDA_MISSING "")
if(NOT QUIRE_NVCC OR NOT EXISTS "${QUIRE_NVCC}")
  unset(QUIRE_NVCC CACHE)
  set(homes ${QUIRE_CUDA_HOME} $ENV{CUDA_HOME} $ENV{CUDA_PATH})
  find_program(nvcc_on_path nvcc NO_CACHE NO_CMAKE_PATH NO_CMAKE_SYSTEM_PATH)
  if(nvcc_on_path)
    get_filename_component(bin "${nvcc_on_path}" REALPATH)
    get_filename_component(bin "${bin}" DIRECTORY)
    get_filename_component(bin "${bin}" DIRECTORY)
    list(APPEND homes ${bin})
  endif()
  file(GLOB from_python ${CMAKE_SOURCE_DIR}/build/cuda/lib/python3*/site-packages/nvidia/cu1[2-9])
  foreach(home ${homes} /usr/local/cuda ${from_python})
    if(NOT QUIRE_NVCC AND EXISTS "${home}/bin/nvcc")
      quire_try_toolkit(${home})
    endif()
  endforeach()
  if(NOT QUIRE_NVCC AND NOT QUIRE_CUDA_MISSING)
    set(QUIRE_CUDA_MISSING "no nvcc here; bash tools/setup.sh cuda installs one")
  endif()
endif()
