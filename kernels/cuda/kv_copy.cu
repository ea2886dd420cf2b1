/* Copies whole KV blocks from one arena to another. One of them may be pinned host memory, which the device reaches by
 * its own address.
 *
 * The bus is the limit: 25 to 55 GB/s of PCIe, a hundredth of the device's memory. A kernel moves 16 bytes per thread,
 * so a warp's access is 512 consecutive bytes, and it handles all pairs of a layer in one launch. Copies by the driver
 * would be two calls for each block and layer, 4,096 of them to bring back 64 blocks of 32 layers. Pairs are kernel
 * parameters: they are host memory that the caller reuses at once, and 128 of them are 1 KB of the 4 KB that parameters
 * may have.
 *
 * It runs on the only compute stream. Earlier operations wrote the source, later ones read the destination, and the
 * interface does not say which. A separate stream would need an event on both sides and wait just the same.
 *
 * Grid: x is the piece of a block, y the pair, z is K or V. A thread does four accesses and reads all four before it
 * writes the first: the bus has 1 µs of latency, so 55 GB/s need 55 KB in flight, which is 900 threads.
 */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"

#define THREADS 128u
#define ACCESSES 4u
#define MAX_PAIRS 128u

struct copies {
    const uint4 *from[2]; /* K, V */
    uint4 *to[2];
    uint32_t block_pieces; /* pieces of 16 bytes per block */
    struct k_block_pair pairs[MAX_PAIRS];
};

static __global__ void __launch_bounds__(THREADS) kv_copy_kernel(const __grid_constant__ struct copies c)
{
    struct k_block_pair pair = c.pairs[blockIdx.y];
    const uint4 *from = c.from[blockIdx.z] + (uint64_t)pair.from * c.block_pieces;
    uint4 *to = c.to[blockIdx.z] + (uint64_t)pair.to * c.block_pieces;
    uint32_t first = blockIdx.x * THREADS * ACCESSES + threadIdx.x;
    uint4 piece[ACCESSES];
#pragma unroll
    for (uint32_t i = 0; i < ACCESSES; i++)
        if (first + i * THREADS < c.block_pieces)
            piece[i] = from[first + i * THREADS];
#pragma unroll
    for (uint32_t i = 0; i < ACCESSES; i++)
        if (first + i * THREADS < c.block_pieces)
            to[first + i * THREADS] = piece[i];
}

cudaError_t launch_kv_copy(cudaStream_t stream, const struct k_kv_copy_args *a)
{
    struct copies c = {{(const uint4 *)a->from->k_dev, (const uint4 *)a->from->v_dev},
                       {(uint4 *)a->to->k_dev, (uint4 *)a->to->v_dev},
                       (uint32_t)(k_kv_block_bytes(a->kv) / 16),
                       {}};
    uint32_t each = THREADS * ACCESSES;
    cudaError_t error = cudaSuccess;
    for (uint32_t done = 0; done < a->n_pairs && error == cudaSuccess; done += MAX_PAIRS) {
        uint32_t n = a->n_pairs - done < MAX_PAIRS ? a->n_pairs - done : MAX_PAIRS;
        memcpy(c.pairs, a->pairs + done, n * sizeof c.pairs[0]);
        error = K_LAUNCH(kv_copy_kernel, dim3((c.block_pieces + each - 1) / each, n, 2), dim3(THREADS), 0, stream, c);
    }
    return error;
}
