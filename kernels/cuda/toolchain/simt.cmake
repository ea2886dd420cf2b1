# The backend on the emulator of tests/simt, for tests on machines without a GPU. It compiles the same sources, kernels
# with g++, and links them into every program with kernels. `--device cuda` opens it; `auto` does not.
if(QUIRE_SANITIZE OR QUIRE_FUZZERS OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  message(FATAL_ERROR "QUIRE_CUDA=simt needs x86-64, and a build without sanitizers or fuzzers")
endif()
message(STATUS "GPU support: on the emulator")

set(simt_cxx_options -std=c++17 -O2 -g1 -march=x86-64-v3 -Wno-unknown-pragmas -Wno-unused-function
    -Wno-missing-field-initializers -fno-strict-aliasing -fno-extern-tls-init)
set(simt_include ${CMAKE_SOURCE_DIR}/tests/simt/include)

file(GLOB simt_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/simt/*.cc ${CMAKE_SOURCE_DIR}/tests/simt/peer/*.cc)
list(FILTER simt_sources EXCLUDE REGEX "(_test|_record)\\.cc$")
add_library(quire_simt STATIC ${simt_sources})
target_compile_options(quire_simt PRIVATE ${simt_cxx_options} -fvisibility=default)
target_include_directories(quire_simt PUBLIC ${simt_include})
target_link_libraries(quire_simt PUBLIC Threads::Threads)
target_link_options(quire_simt INTERFACE -rdynamic) # for cuBLASLt's stub, which calls back
set(QUIRE_SIMT_CUBLASLT ${CMAKE_BINARY_DIR}/tests/simt/cublaslt CACHE INTERNAL "Where that stub is")

# Kernels: compiled once normally, for all programs, and once instrumented (races, bounds, alignment), for the tests
# that link the objects of quire_cuda_instrumented. Symbols that an object defines are not taken from the library.
set_source_files_properties(${cuda_kernel_sources} PROPERTIES LANGUAGE CXX)
set(simt_instrument -O1 -fsanitize=thread,alignment,bounds --param=tsan-instrument-func-entry-exit=0
    --param=tsan-distinguish-volatile=0)
add_library(quire_cuda_kernels STATIC ${cuda_kernel_sources})
add_library(quire_cuda_instrumented OBJECT ${cuda_kernel_sources})
foreach(library quire_cuda_kernels quire_cuda_instrumented)
  target_compile_options(${library} PRIVATE ${simt_cxx_options})
  target_link_libraries(${library} PUBLIC quire_simt)
endforeach()
target_compile_options(quire_cuda_instrumented PRIVATE ${simt_instrument})
target_link_libraries(quire_cuda_kernels PUBLIC quire_kernels)

target_sources(quire_kernels PRIVATE ${cuda_host_sources})
target_compile_definitions(quire_kernels PRIVATE QUIRE_CUDA_LINKED)
# PRIVATE: a program that only calls kernels is compiled as for the release, and may share its objects (tools/test.sh).
target_link_libraries(quire_kernels PRIVATE quire_cuda_kernels)

# quire_add_simt_test(name SOURCES ...): a test of the emulator itself; .cu files are instrumented.
set(QUIRE_SIMT_CXX_OPTIONS "${simt_cxx_options}" CACHE INTERNAL "How C++ for the emulator is compiled")
set(QUIRE_SIMT_INSTRUMENT "${simt_instrument}" CACHE INTERNAL "and its kernels")
function(quire_add_simt_test name)
  cmake_parse_arguments(T "" "" "SOURCES" ${ARGN})
  quire_add_test(${name} SOURCES ${T_SOURCES} LIBS quire_simt)
  foreach(source ${T_SOURCES})
    if(source MATCHES "\\.cu$")
      set_source_files_properties(${source} PROPERTIES LANGUAGE CXX
        COMPILE_OPTIONS "${QUIRE_SIMT_CXX_OPTIONS};${QUIRE_SIMT_INSTRUMENT}")
    elseif(source MATCHES "\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${QUIRE_SIMT_CXX_OPTIONS}")
    endif()
  endforeach()
  set_tests_properties(${name} PROPERTIES LABELS simt)
endfunction()
