/* The data exchange of ranks: the sum of their vectors by one tree, and their columns side by side. peers.cuh documents
 * how blocks meet.
 *
 * One-shot: a block copies its part of x into its area, meets its peers, reads the same part of all of them and adds in
 * the tree's order. One meeting, and (R - 1) n bytes through a GPU's links in each direction. Two-shot: each rank adds
 * one R-th of the part and reads the others' sums after a second meeting: 2 (R - 1) / R n bytes. With a meeting of 3 µs
 * and 350 GB/s the second method is faster from 0.7 MB on with 4 ranks and from 0.2 MB on with 8. With 2 ranks it moves
 * as much, and is not used. Both figures are assumed, not measured. With either method and any division of a vector, an
 * element is the same sum of the same numbers.
 *
 * A thread has one access of 16 bytes to each peer in flight for each 16 bytes that it adds, so a block of 512 has 8 KB
 * of each peer. With 64 blocks that is half a MB of each peer; a link of 50 GB/s and 2 µs needs 0.1 MB. Small vectors
 * take as many blocks as they have rows of 512 threads: 16 KiB are two blocks, which meet concurrently.
 */
#include "kernels/cuda/peers.cuh"
#include "kernels/math/checksum.h"

#define THREADS 512u

/* All sizes in elements of V. */
template <class V> struct group_vector {
    V *x;
    const V *bias; /* [n_cols] or NULL */
    uint64_t n;
    uint32_t n_cols;
    uint32_t chunk; /* per block at once */
};

/* Returns the sum of element `at` of the vector, which is element i of the block's areas. */
template <uint32_t n_ranks, class V>
PEER_FN V sum_of(const struct cuda_peers &p, const struct group_vector<V> &a, uint32_t round, uint64_t at, uint32_t i)
{
    V v[n_ranks];
#pragma unroll
    for (uint32_t r = 0; r < n_ranks; r++)
        v[r] = peer_area<V>(p.memory[r], round)[i];
    V s = tree(v);
    return a.bias ? sum(s, a.bias[at % a.n_cols]) : s;
}

template <uint32_t n_ranks, bool is_two_shot, class V>
static __global__ void __launch_bounds__(THREADS)
    all_reduce_kernel(const __grid_constant__ struct cuda_peers p, const __grid_constant__ struct group_vector<V> a)
{
    uint32_t round;
    if (!peers_begin(p, &round))
        return;
    for (uint64_t from = (uint64_t)blockIdx.x * a.chunk; from < a.n; from += (uint64_t)gridDim.x * a.chunk) {
        const uint32_t n = (uint32_t)min(a.n - from, (uint64_t)a.chunk);
        V *own = peer_area<V>(p.own, ++round);
        for (uint32_t i = threadIdx.x; i < n; i += THREADS)
            own[i] = a.x[from + i];
        if (!peers_meet(p, round))
            return;
        const uint32_t part = is_two_shot ? (n + n_ranks - 1) / n_ranks : n;
        const uint32_t begin = is_two_shot ? min(p.rank * part, n) : 0, end = min(begin + part, n);
        V *sums = peer_area<V>(p.own, round + 1);
        for (uint32_t i = begin + threadIdx.x; i < end; i += THREADS) {
            const V s = sum_of<n_ranks>(p, a, round, from + i, i);
            a.x[from + i] = s;
            if (is_two_shot)
                sums[i] = s;
        }
        if (!is_two_shot)
            continue;
        if (!peers_meet(p, ++round))
            return;
        for (uint32_t i = threadIdx.x; i < n; i += THREADS)
            if (i / part != p.rank)
                a.x[from + i] = peer_area<V>(p.memory[i / part], round)[i];
    }
    peers_end(p, round);
}

/* The number of useful blocks, and the elements that each processes at once. */
struct group_grid {
    uint32_t n_blocks, chunk;
};

static struct group_grid grid_of(uint64_t n, uint32_t element_bytes)
{
    const uint32_t most = CUDA_PEER_AREA_BYTES / element_bytes;
    const uint64_t wanted = (n + THREADS - 1) / THREADS;
    struct group_grid g;
    g.n_blocks = wanted < CUDA_PEER_BLOCKS ? (uint32_t)wanted : CUDA_PEER_BLOCKS;
    const uint64_t each = (n + g.n_blocks - 1) / g.n_blocks;
    g.chunk = each < most ? (uint32_t)each : most;
    return g;
}

template <uint32_t n_ranks, class V>
static cudaError_t launch_sum(cudaStream_t stream, const struct cuda_peers *p, const struct k_all_reduce_args *args)
{
    constexpr uint32_t width = sizeof(V) / sizeof(float);
    struct group_vector<V> a = {(V *)args->x_dev, (const V *)args->bias_dev,
                                (uint64_t)args->n_tokens * args->n_cols / width, args->n_cols / width, 0};
    const struct group_grid g = grid_of(a.n, sizeof(V));
    a.chunk = g.chunk;
    if (peers_are_one_shot(n_ranks, a.n * sizeof(V)))
        return K_LAUNCH((all_reduce_kernel<n_ranks, false, V>), dim3(g.n_blocks), dim3(THREADS), 0, stream, *p, a);
    return K_LAUNCH((all_reduce_kernel<n_ranks, true, V>), dim3(g.n_blocks), dim3(THREADS), 0, stream, *p, a);
}

template <class V>
static cudaError_t launch_by_ranks(cudaStream_t stream, const struct cuda_peers *p, const struct k_all_reduce_args *a)
{
    return p->n_ranks == 2   ? launch_sum<2, V>(stream, p, a)
           : p->n_ranks == 4 ? launch_sum<4, V>(stream, p, a)
                             : launch_sum<8, V>(stream, p, a);
}

cudaError_t launch_all_reduce(cudaStream_t stream, const struct cuda_peers *p, const struct k_all_reduce_args *a)
{
    const bool is_vector = a->n_cols % 4 == 0 && ((uintptr_t)a->x_dev | (uintptr_t)a->bias_dev) % 16 == 0;
    return is_vector ? launch_by_ranks<float4>(stream, p, a) : launch_by_ranks<float>(stream, p, a);
}

/* ---- all_gather ------------------------------------------------------------------------------ */

/* Areas are parts of [T, most], where most is the width of the widest part, so all ranks have the same number of
 * meetings. */
template <class V> struct group_columns {
    const V *own;
    V *out; /* NULL: this rank does not need the result */
    uint32_t first[K_MAX_RANKS + 1];
    uint32_t n, most, chunk;
};

template <class V>
static __global__ void __launch_bounds__(THREADS)
    all_gather_kernel(const __grid_constant__ struct cuda_peers p, const __grid_constant__ struct group_columns<V> a)
{
    const uint32_t n_all = a.first[p.n_ranks], n_own = a.first[p.rank + 1] - a.first[p.rank];
    uint32_t round;
    if (!peers_begin(p, &round))
        return;
    for (uint64_t from = (uint64_t)blockIdx.x * a.chunk; from < a.n; from += (uint64_t)gridDim.x * a.chunk) {
        const uint32_t n = (uint32_t)min(a.n - from, (uint64_t)a.chunk);
        V *own = peer_area<V>(p.own, ++round);
        for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
            const uint32_t at = (uint32_t)from + i, t = at / a.most, c = at % a.most;
            if (c < n_own)
                own[i] = a.own[(uint64_t)t * n_own + c];
        }
        if (!peers_meet(p, round))
            return;
        for (uint32_t r = 0; a.out && r < p.n_ranks; r++) {
            const V *area = peer_area<V>(p.memory[r], round);
            for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
                const uint32_t at = (uint32_t)from + i, t = at / a.most, c = at % a.most;
                if (c < a.first[r + 1] - a.first[r])
                    a.out[(uint64_t)t * n_all + a.first[r] + c] = area[i];
            }
        }
    }
    peers_end(p, round);
}

template <class V>
static cudaError_t launch_gather(cudaStream_t stream, const struct cuda_peers *p, const struct k_all_gather_args *args)
{
    constexpr uint32_t width = sizeof(V) / sizeof(float);
    struct group_columns<V> a = {(const V *)args->own_dev, NULL, {0}, 0, 0, 0};
    if (!args->to_first || p->rank == 0)
        a.out = (V *)args->out_dev;
    for (uint32_t r = 0; r < p->n_ranks; r++) {
        const uint32_t n = (args->first_cols[r + 1] - args->first_cols[r]) / width;
        a.first[r + 1] = args->first_cols[r + 1] / width;
        a.most = n > a.most ? n : a.most;
    }
    a.n = args->n_tokens * a.most;
    const struct group_grid g = grid_of(a.n, sizeof(V));
    a.chunk = g.chunk;
    return K_LAUNCH((all_gather_kernel<V>), dim3(g.n_blocks), dim3(THREADS), 0, stream, *p, a);
}

cudaError_t launch_all_gather(cudaStream_t stream, const struct cuda_peers *p, const struct k_all_gather_args *a)
{
    bool is_vector = ((uintptr_t)a->own_dev | (uintptr_t)a->out_dev) % 16 == 0;
    for (uint32_t r = 1; r <= p->n_ranks; r++)
        is_vector &= a->first_cols[r] % 4 == 0;
    return is_vector ? launch_gather<float4>(stream, p, a) : launch_gather<float>(stream, p, a);
}

/* ---- checksum -------------------------------------------------------------------------------- */

#define CHECKSUM_BLOCKS 128u

static __global__ void __launch_bounds__(THREADS) checksum_kernel(const float *x, uint32_t n, unsigned long long *total)
{
    uint64_t sum = 0;
    for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS)
        sum += k_checksum_term(x[i], i);
#pragma unroll
    for (uint32_t step = 16; step > 0; step /= 2)
        sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x % 32 == 0)
        atomicAdd(total, (unsigned long long)sum);
}

cudaError_t launch_checksum(cudaStream_t stream, const struct k_checksum_args *a)
{
    const uint32_t n = a->n_tokens * a->n_cols, n_blocks = min((n + THREADS - 1) / THREADS, CHECKSUM_BLOCKS);
    return K_LAUNCH((checksum_kernel), dim3(n_blocks), dim3(THREADS), 0, stream, a->x_dev, n,
                    (unsigned long long *)a->sum_dev);
}
