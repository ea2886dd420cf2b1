# libquire_cuda.so, next to quire in the build tree: kernels by nvcc, the host side by the C compiler, and the static CUDA
# runtime, so that a machine needs only NVIDIA's driver.
#
# The library has machine code for QUIRE_CUDA_ARCHITECTURES, and PTX, which the driver compiles for any other GPU on first
# use. Both come from one PTX, that of compute_80, because only the kernels of hopper/ depend on the GPU. compute_90a's PTX
# is the same except for the line that names it, and so is the machine code. A separate pass took 18 s of gemm_small.cu's
# 82. hopper/ has instructions that only compute_90a's PTX has; for all other GPUs its kernels are empty.
# Bits: only explicit multiply-adds are used (-fmad=false). Division, square root and denormals are exact by default, so
# they need no flags.
# "90a-real" means machine code for sm_90a and no PTX, as in CMake's own CUDA_ARCHITECTURES.
set(gpu_options -std=c++17 -O3 -fmad=false -lineinfo -Xptxas -v -Xfatbin -compress-all
    -Xcompiler -fPIC,-fvisibility=hidden,-ffp-contract=off,-Wall
    -Xcompiler -fno-exceptions,-fno-threadsafe-statics # one thread calls; and libstdc++ is not needed
    -I${CMAKE_SOURCE_DIR})

set(QUIRE_CUDA_ARCHITECTURES "" CACHE STRING
    "GPUs to make machine code for, as 80;90a, or all, or 90a-real without PTX for other GPUs; empty: the ones in this machine, and 80;90a where there is none")
set(architectures ${QUIRE_CUDA_ARCHITECTURES})
set(ptx "compute_80")
if(NOT architectures)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE architectures ERROR_QUIET RESULT_VARIABLE status)
  string(REGEX MATCHALL "[0-9]+\\.[0-9]" architectures "${architectures}")
  list(TRANSFORM architectures REPLACE "\\." "")
  list(TRANSFORM architectures REPLACE "^(90|1[0-9]0)$" "\\1a")
  list(REMOVE_DUPLICATES architectures)
  list(FILTER architectures INCLUDE REGEX "^(8[0-9]|[1-9][0-9]+a)$")
  if(status OR NOT architectures)
    set(architectures 80 90a)
  endif()
elseif(architectures STREQUAL "all")
  set(architectures 80 86 89 90a 100a 120a)
elseif(architectures STREQUAL "90a-real")
  set(architectures 90a)
  set(ptx "")
endif()
message(STATUS "GPUs that get machine code: ${architectures}")
list(TRANSFORM architectures PREPEND "sm_")
string(REPLACE ";" "," architectures "${architectures}")
string(JOIN "," code ${architectures} ${ptx})
set(cuda_code -gencode "arch=compute_80,code=[${code}]")
set(hopper_code ${cuda_code})
if("${architectures}" MATCHES "sm_90a")
  string(REGEX REPLACE "sm_90a,?" "" others "${architectures},")
  set(hopper_code -gencode arch=compute_90a,code=sm_90a)
  if(ptx)
    list(APPEND hopper_code -gencode "arch=compute_80,code=[${others}${ptx}]")
  endif()
endif()

# quire_add_gpu_object(source.cu OUT options): compiles one file of kernels; OUT is set to the object.
function(quire_add_gpu_object source out)
  get_filename_component(name ${source} NAME)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.o)
  add_custom_command(OUTPUT ${object}
    COMMAND sh ${CMAKE_SOURCE_DIR}/kernels/cuda/toolchain/nvcc.sh ${object}.log
            ${QUIRE_NVCC} ${gpu_options} ${ARGN} -MMD -MF ${object}.d -MT ${object} -c ${source} -o ${object}
    DEPENDS ${source} ${CMAKE_SOURCE_DIR}/kernels/cuda/toolchain/nvcc.sh DEPFILE ${object}.d
    COMMENT "Compiling ${name} for GPUs" VERBATIM)
  set(${out} ${object} PARENT_SCOPE)
endfunction()

set(objects "")
foreach(source ${cuda_kernel_sources})
  if(source MATCHES "/hopper/")
    quire_add_gpu_object(${source} object ${hopper_code})
  else()
    quire_add_gpu_object(${source} object ${cuda_code})
  endif()
  list(APPEND objects ${object})
endforeach()

# The needed files of base/ and kernels/ are compiled again, as code for a library.
add_library(quire_cuda MODULE ${cuda_host_sources} ${objects} ${CMAKE_SOURCE_DIR}/base/status.c ${CMAKE_SOURCE_DIR}/base/size.c
            ${CMAKE_SOURCE_DIR}/kernels/format.c ${CMAKE_SOURCE_DIR}/kernels/kernel_table.c ${CMAKE_SOURCE_DIR}/kernels/quant.c ${CMAKE_SOURCE_DIR}/kernels/weight_view.c ${CMAKE_SOURCE_DIR}/kernels/check.c
            ${CMAKE_SOURCE_DIR}/kernels/cuda/plan/attention_plan.c ${CMAKE_SOURCE_DIR}/kernels/cuda/plan/gemm_plan.c ${CMAKE_SOURCE_DIR}/kernels/cuda/plan/moe_plan.c
            ${CMAKE_SOURCE_DIR}/kernels/cuda/plan/plan.c ${CMAKE_SOURCE_DIR}/kernels/cuda/plan/sample_plan.c)
target_compile_definitions(quire_cuda PRIVATE QUIRE_VERSION="${PROJECT_VERSION}")
target_include_directories(quire_cuda SYSTEM PRIVATE ${QUIRE_CUDA_INCLUDE})
target_link_libraries(quire_cuda PRIVATE ${QUIRE_CUDART} Threads::Threads dl rt m)
target_link_options(quire_cuda PRIVATE
  -Wl,-z,defs -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/toolchain/exports.map)
set_target_properties(quire_cuda PROPERTIES
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR} LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/toolchain/exports.map)
install(TARGETS quire_cuda LIBRARY DESTINATION lib)

# Three programs for tools/gpu_check.sh, built only on request. They measure the maximum rates of a GPU, the fragment
# layout of its instructions (to compare with the emulator's stubs), and the rounding of its tensor cores.
# quire_add_gpu_program(name SOURCES ... CODE ...)
function(quire_add_gpu_program name)
  cmake_parse_arguments(P "" "" "SOURCES;CODE" ${ARGN})
  set(objects "")
  foreach(source ${P_SOURCES})
    quire_add_gpu_object(${CMAKE_SOURCE_DIR}/${source} object ${P_CODE})
    list(APPEND objects ${object})
  endforeach()
  add_executable(${name} EXCLUDE_FROM_ALL ${objects})
  target_link_libraries(${name} PRIVATE ${QUIRE_CUDART} Threads::Threads dl rt m)
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE C RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
endfunction()
quire_add_gpu_program(gpu_limits SOURCES tools/gpu_limits.cu CODE ${cuda_code})
quire_add_gpu_program(gpu_fragments CODE ${cuda_code}
  SOURCES tests/simt/fragments/fragments.cu tests/simt/fragments/fragments_record.cc)
quire_add_gpu_program(gpu_probe # wgmma is in no PTX but compute_90a's
  SOURCES tests/simt/fragments/probe.cu tests/simt/fragments/probe_chains.cu
  CODE -gencode arch=compute_90a,code=sm_90a -gencode arch=compute_80,code=compute_80)
