/* Kernels on the CPU: CUDA C++ sources built by g++ and run with one fiber per CUDA thread (README.md).
 *
 * This is the host's side: launches, memory, faults. The kernels' side is in device/ and include/. */
#ifndef QUIRE_TESTS_SIMT_SIMT_H
#define QUIRE_TESTS_SIMT_SIMT_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "tests/simt/device/arithmetic.h"
#include "tests/simt/device/atomic.h"
#include "tests/simt/device/cached.h"
#include "tests/simt/device/copy.h"
#include "tests/simt/device/half_pairs.h"
#include "tests/simt/device/integers.h"
#include "tests/simt/device/min_max.h"
#include "tests/simt/device/qualifiers.h"
#include "tests/simt/device/thread.h"
#include "tests/simt/device/vector_types.h"
#include "tests/simt/device/warp.h"

namespace simt
{

struct Launch {
    dim3 grid, block;
    size_t smem;
    void (*fn)(void *arg); /* calls the kernel with the arguments in arg */
    void *arg;
    size_t argsz;
};

/* Runs a launch to its end, with blocks on several OS threads. One launch runs at a time. */
void launch(const Launch &launch);

/* A kernel and its arguments, as bytes. */
template <class... P> struct Call {
    static_assert((std::is_trivially_copyable_v<P> && ...), "a kernel's arguments are copied as bytes");
    void (*kernel)(P...);
    std::tuple<P...> arguments;

    static void invoke(void *self)
    {
        Call *call = (Call *)self;
        std::apply(call->kernel, call->arguments);
    }
};

/* Runs a kernel immediately. */
template <class... P, class... A>
void launch_k(dim3 grid, dim3 block, size_t shared_bytes, void (*kernel)(P...), A &&...arguments)
{
    Call<P...> call = {kernel, std::tuple<P...>((P)arguments...)};
    launch(Launch{grid, block, shared_bytes, Call<P...>::invoke, &call, sizeof call});
}

/* The runtime's part of a launch (stream.cc): checks it, copies the arguments and queues it. */
cudaError_t queue_kernel(cudaStream_t stream, const char *name, const void *kernel, const Launch &launch);

/* K_LAUNCH of kernels/cuda/device.cuh. */
template <class... P, class... A>
cudaError_t launch_on(cudaStream_t stream, dim3 grid, dim3 block, size_t shared_bytes, const char *name,
                      void (*kernel)(P...), A &&...arguments)
{
    Call<P...> call = {kernel, std::tuple<P...>((P)arguments...)};
    return queue_kernel(stream, name, (const void *)kernel,
                        Launch{grid, block, shared_bytes, Call<P...>::invoke, &call, sizeof call});
}

/* Allocates memory for kernels: filled with bytes 0xff (NaN in every format), 256-byte aligned, with at least 256
 * unallocated bytes on both sides. Returns nullptr if there is no space. */
void *dev_alloc(size_t bytes);
void dev_free(void *p);

/* Returns one line per fault since the last call: "KIND at file:line by block (x,y,z) thread t: what". A fault that
 * ends its block is reported for each block, others once per place. */
std::vector<std::string> take_faults();

/* The order in which threads run between two synchronizations; a correct kernel's result does not depend on it.
 * Initially from QUIRE_SIMT_ORDER: forward (the default), reverse or random. */
enum { ORDER_FORWARD, ORDER_REVERSE, ORDER_RANDOM };
extern int order;
/* Number of OS threads that run blocks, read at the first launch. Initially from QUIRE_SIMT_THREADS; 0: all threads of
 * the machine. */
extern int os_threads;

} // namespace simt

#endif
