/* A kernel's thread and block indices, and the block's barrier. */
#ifndef QUIRE_TESTS_SIMT_DEVICE_THREAD_H
#define QUIRE_TESTS_SIMT_DEVICE_THREAD_H

#include "tests/simt/device/vector_types.h"

namespace simt
{

struct BlockIndices {
    uint3 block_idx;
    dim3 block_dim, grid_dim;
};

struct Thread {
    uint3 thread_idx;
    unsigned lane;
    const BlockIndices *indices;
};

/* Returns the number of threads of the block with a nonzero predicate. */
int barrier(int predicate, int line, const char *file);
/* Returns the lanes that have not returned from the kernel. */
unsigned active_mask();
void fence();

} // namespace simt

/* The thread that this OS thread runs now; nullptr in host code. */
extern __thread simt::Thread *simt_thread;

#define threadIdx (simt_thread->thread_idx)
#define blockIdx (simt_thread->indices->block_idx)
#define blockDim (simt_thread->indices->block_dim)
#define gridDim (simt_thread->indices->grid_dim)
#define warpSize 32

/* The source position of a barrier or a warp operation. The participating threads must agree on it. It is not the
 * return address, because g++ may clone a call (jump threading, unrolling). */
#define SIMT_SITE int line = __builtin_LINE(), const char *file = __builtin_FILE()

inline void __syncthreads(SIMT_SITE)
{
    simt::barrier(0, line, file);
}

inline int __syncthreads_count(int predicate, SIMT_SITE)
{
    return simt::barrier(predicate, line, file);
}

inline int __syncthreads_or(int predicate, SIMT_SITE)
{
    return simt::barrier(predicate, line, file) != 0;
}

inline int __syncthreads_and(int predicate, SIMT_SITE)
{
    return simt::barrier(!predicate, line, file) == 0;
}

inline void __threadfence()
{
    simt::fence();
}

inline void __threadfence_block()
{
}

#endif
