/* The list of the experts' GEMMs, and the combination of their outputs.
 *
 * A block for each expert: all count every expert's choices in shared memory, so that each knows where its own places
 * and tiles begin, and collects its own choices in rising order. So no block waits for another, and the list is the same
 * whatever the order of threads. A step of 16 tokens with 8 experts each is 128 choices, which a block reads twice; at
 * 8,192 tokens of 128 experts each block reads 256 KB twice, from L2.
 *
 * Other blocks write the rows of choices whose expert another rank holds.
 */
#include "kernels/cuda/factors.cuh"
#include "kernels/cuda/moe/list.h"
#include "kernels/math/gate.h"

#define THREADS 128u
#define WARPS (THREADS / 32)
#define MOST_FILLING_BLOCKS 64u

struct list_args {
    const uint32_t *experts;
    struct cuda_moe_list list;
    uint32_t n, n_experts, first_expert, tile_tokens;
    float *out; /* [n, n_out] */
    float missing; /* each number of the row of an expert that is not here */
    uint32_t n_out;
    bool as_factors;
};

/* Of an expert below the first it is a number beyond the last. */
static __device__ __forceinline__ uint32_t expert_of(const struct list_args &a, uint32_t choice)
{
    return a.experts[choice] - a.first_expert;
}

/* Returns the sum over the block, to all its threads. */
static __device__ __forceinline__ uint32_t block_sum(uint32_t v, uint32_t *of_warps)
{
    const uint32_t of_warp = __reduce_add_sync(~0u, v);
    uint32_t sum = 0;
    if (threadIdx.x % 32 == 0)
        of_warps[threadIdx.x / 32] = of_warp;
    __syncthreads();
#pragma unroll
    for (uint32_t w = 0; w < WARPS; w++)
        sum += of_warps[w];
    return sum;
}

/* Appends the expert's choices to the order, from `place` on. */
static __device__ __forceinline__ void collect(const struct list_args &a, uint32_t expert, uint32_t place)
{
    __shared__ uint32_t found[2][WARPS];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t buffer = 0;
    for (uint32_t from = 0; from < a.n; from += THREADS, buffer ^= 1) {
        const uint32_t choice = from + threadIdx.x;
        const bool is_own = choice < a.n && expert_of(a, choice) == expert;
        const uint32_t votes = __ballot_sync(~0u, is_own);
        if (lane == 0)
            found[buffer][warp] = (uint32_t)__popc(votes);
        __syncthreads(); /* the buffer was read before the barrier of the previous round */
        uint32_t at = place + (uint32_t)__popc(votes & ((1u << lane) - 1));
#pragma unroll
        for (uint32_t w = 0; w < WARPS; w++) {
            at += w < warp ? found[buffer][w] : 0;
            place += found[buffer][w];
        }
        if (is_own)
            a.list.order_dev[at] = choice;
    }
}

static __device__ __forceinline__ void list_expert(const struct list_args &a, uint32_t expert)
{
    __shared__ uint32_t counts[K_MOE_MAX_EXPERTS], sums[2][WARPS];
    uint32_t places = 0, tiles = 0;
    for (uint32_t e = threadIdx.x; e < a.n_experts; e += THREADS)
        counts[e] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < a.n; i += THREADS) {
        const uint32_t e = expert_of(a, i);
        if (e < a.n_experts)
            atomicAdd(&counts[e], 1u);
    }
    __syncthreads();
    for (uint32_t e = threadIdx.x; e < expert; e += THREADS) {
        places += counts[e];
        tiles += (counts[e] + a.tile_tokens - 1) / a.tile_tokens;
    }
    places = block_sum(places, sums[0]);
    tiles = block_sum(tiles, sums[1]);
    const uint32_t n = counts[expert], n_tiles = (n + a.tile_tokens - 1) / a.tile_tokens;
    for (uint32_t i = threadIdx.x; i < n_tiles; i += THREADS) {
        const struct cuda_moe_tile tile = {expert, places + i * a.tile_tokens,
                                           min(n - i * a.tile_tokens, a.tile_tokens), 0};
        a.list.tiles_dev[tiles + i] = tile;
    }
    if (expert == a.n_experts - 1 && threadIdx.x == 0)
        *a.list.n_tiles_dev = tiles + n_tiles;
    if (n > 0)
        collect(a, expert, places);
}

static __global__ void __launch_bounds__(THREADS) moe_list_kernel(const struct list_args a)
{
    if (blockIdx.x < a.n_experts) {
        list_expert(a, blockIdx.x);
        return;
    }
    for (uint32_t choice = blockIdx.x - a.n_experts; choice < a.n; choice += gridDim.x - a.n_experts)
        for (uint32_t i = threadIdx.x; expert_of(a, choice) >= a.n_experts && i < a.n_out; i += THREADS)
            store1(a.out, a.as_factors, (uint64_t)choice * a.n_out + i, a.missing);
}

cudaError_t launch_moe_list(cudaStream_t stream, const struct cuda_moe_call *m, const struct cuda_gated *gated,
                            uint32_t n_experts, uint32_t n_rows, uint32_t tile_tokens)
{
    const struct list_args a = {m->args->experts_dev,
                                m->list,
                                m->n_choices,
                                n_experts,
                                m->args->first_expert,
                                tile_tokens,
                                gated ? gated->out_dev : m->args->y_dev,
                                gated ? k_gated(gated->gate, -0.0f, -0.0f) : -0.0f,
                                gated ? n_rows / 2 : n_rows,
                                gated && gated->as_factors};
    const uint32_t n_filling = m->n_choices < MOST_FILLING_BLOCKS ? m->n_choices : MOST_FILLING_BLOCKS;
    return K_LAUNCH(moe_list_kernel, dim3(n_experts + n_filling), dim3(THREADS), 0, stream, a);
}

/* ---- the combination ------------------------------------------------------------------------- */

/* out may be shared: a thread reads a number before it writes it. */
static __global__ void __launch_bounds__(THREADS) moe_combine_kernel(const struct k_moe_combine_args a)
{
    const uint32_t i = blockIdx.y * THREADS + threadIdx.x;
    const float *w = a.weights_dev + (uint64_t)blockIdx.x * a.n_used,
                *y = a.y_dev + (uint64_t)blockIdx.x * a.n_used * a.n_cols + i;
    if (i >= a.n_cols)
        return;
    float sum = w[0] * y[0];
#pragma unroll 4
    for (uint32_t c = 1; c < a.n_used; c++)
        sum = fmaf(w[c], y[(uint64_t)c * a.n_cols], sum);
    const uint64_t at = (uint64_t)blockIdx.x * a.n_cols + i;
    if (a.shared_dev)
        sum = a.shared_weights_dev ? fmaf(a.shared_weights_dev[blockIdx.x], a.shared_dev[at], sum)
                                   : sum + a.shared_dev[at];
    a.out_dev[at] = sum;
}

cudaError_t launch_moe_combine(cudaStream_t stream, const struct k_moe_combine_args *a)
{
    return K_LAUNCH(moe_combine_kernel, dim3(a->n_tokens, (a->n_cols + THREADS - 1) / THREADS), dim3(THREADS), 0,
                    stream, *a);
}
