/* The data exchange of ranks if NCCL transfers the data: NCCL stores the parts of all ranks next to each other, and
 * these kernels add them by the tree, or move columns to their positions. An element is the same sum of the same
 * numbers as with group.cu.
 *
 * Two words between host and kernels hold the number of the call that the stream has reached, and of the call that it
 * has finished. The host's watcher uses them to measure how long a call takes.
 */
#include "kernels/cuda/peers.cuh"

#define THREADS 512u

static __global__ void arrive_kernel(uint32_t *word, uint32_t turn)
{
    ptx_store_relaxed_sys(word, turn);
}

/* Called once per launch: the preceding call has ended, and successfully. The host sets a word before it aborts a
 * call. */
PEER_FN void leave(const struct cuda_fold &f)
{
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0 &&
        ptx_load_relaxed_sys(&f.control[CUDA_CONTROL_OVER]) == 0)
        ptx_store_relaxed_sys(&f.control[CUDA_CONTROL_LEFT], f.turn);
}

static __global__ void leave_kernel(const __grid_constant__ struct cuda_fold f)
{
    leave(f);
}

/* The tree for data that NCCL has already added. */
template <class V> PEER_FN V tree(const V (&v)[1])
{
    return v[0];
}

template <uint32_t n_parts>
static __global__ void __launch_bounds__(THREADS)
    fold_kernel(const __grid_constant__ struct cuda_fold f, float *x, const float *bias, uint32_t n_cols)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    leave(f);
    if (i >= f.n)
        return;
    float v[n_parts];
#pragma unroll
    for (uint32_t r = 0; r < n_parts; r++)
        v[r] = f.gathered[(uint64_t)r * f.n + i];
    const float s = tree(v);
    x[f.from + i] = bias ? s + bias[(f.from + i) % n_cols] : s;
}

/* As in all_gather_kernel: elements of [T, most], where most is the width of the widest part. */
struct fold_columns {
    uint32_t first[K_MAX_RANKS + 1];
    uint32_t most;
};

static __global__ void __launch_bounds__(THREADS)
    pack_kernel(const __grid_constant__ struct cuda_fold f, uint32_t rank, const float *own,
                const __grid_constant__ struct fold_columns a)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x, n_own = a.first[rank + 1] - a.first[rank];
    const uint32_t at = (uint32_t)f.from + i, t = at / a.most, c = at % a.most;
    if (i < f.n)
        f.gathered[(uint64_t)rank * f.n + i] = c < n_own ? own[(uint64_t)t * n_own + c] : 0;
}

static __global__ void __launch_bounds__(THREADS)
    unpack_kernel(const __grid_constant__ struct cuda_fold f, float *out, uint32_t n_all,
                  const __grid_constant__ struct fold_columns a)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x, r = blockIdx.y;
    const uint32_t at = (uint32_t)f.from + i, t = at / a.most, c = at % a.most;
    leave(f);
    if (out && i < f.n && c < a.first[r + 1] - a.first[r])
        out[(uint64_t)t * n_all + a.first[r] + c] = f.gathered[(uint64_t)r * f.n + i];
}

static dim3 grid_of(uint32_t n, uint32_t n_ranks)
{
    return dim3((n + THREADS - 1) / THREADS, n_ranks);
}

static struct fold_columns columns_of(const struct k_all_gather_args *args, uint32_t n_ranks)
{
    struct fold_columns a = {};
    for (uint32_t r = 0; r < n_ranks; r++) {
        a.first[r + 1] = args->first_cols[r + 1];
        a.most = max(a.most, a.first[r + 1] - a.first[r]);
    }
    return a;
}

cudaError_t launch_fold_arrive(cudaStream_t stream, const struct cuda_fold *f)
{
    return K_LAUNCH((arrive_kernel), dim3(1), dim3(1), 0, stream, &f->control[CUDA_CONTROL_ARRIVED], f->turn);
}

cudaError_t launch_fold_leave(cudaStream_t stream, const struct cuda_fold *f)
{
    return K_LAUNCH((leave_kernel), dim3(1), dim3(1), 0, stream, *f);
}

cudaError_t launch_fold(cudaStream_t stream, const struct cuda_fold *f, uint32_t n_parts,
                        const struct k_all_reduce_args *a)
{
    const dim3 grid = grid_of(f->n, 1), block = dim3(THREADS);
    if (n_parts == 1)
        return K_LAUNCH((fold_kernel<1>), grid, block, 0, stream, *f, a->x_dev, a->bias_dev, a->n_cols);
    if (n_parts == 2)
        return K_LAUNCH((fold_kernel<2>), grid, block, 0, stream, *f, a->x_dev, a->bias_dev, a->n_cols);
    if (n_parts == 4)
        return K_LAUNCH((fold_kernel<4>), grid, block, 0, stream, *f, a->x_dev, a->bias_dev, a->n_cols);
    return K_LAUNCH((fold_kernel<8>), grid, block, 0, stream, *f, a->x_dev, a->bias_dev, a->n_cols);
}

cudaError_t launch_fold_pack(cudaStream_t stream, const struct cuda_fold *f, uint32_t rank, uint32_t n_ranks,
                             const struct k_all_gather_args *a)
{
    return K_LAUNCH((pack_kernel), grid_of(f->n, 1), dim3(THREADS), 0, stream, *f, rank, a->own_dev,
                    columns_of(a, n_ranks));
}

cudaError_t launch_fold_unpack(cudaStream_t stream, const struct cuda_fold *f, uint32_t rank, uint32_t n_ranks,
                               const struct k_all_gather_args *a)
{
    float *out = !a->to_first || rank == 0 ? a->out_dev : NULL;
    return K_LAUNCH((unpack_kernel), grid_of(f->n, n_ranks), dim3(THREADS), 0, stream, *f, out, a->first_cols[n_ranks],
                    columns_of(a, n_ranks));
}
