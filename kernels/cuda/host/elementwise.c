/* The host side of every operation except GEMM, attention and sampling: checks the arguments and queues the kernel. */
#include "kernels/cuda/host/group.h"
#include "kernels/cuda/host/operations.h"
#include "kernels/cuda/launch.h"
#include "kernels/check.h"

int cuda_embed(struct k_backend *b, const struct k_embed_args *a, struct quire_error *err)
{
    int status = cuda_alive(b, err);
    if (status != QUIRE_OK || a->n_tokens == 0)
        return status;
    cudaStream_t stream = cuda_of(b)->stream;
    return cuda_check(b, a->table->n_quant > 0 ? launch_embed_quant(stream, a) : launch_embed(stream, a), "embed", err);
}

int cuda_rmsnorm(struct k_backend *b, const struct k_rmsnorm_args *a, struct quire_error *err)
{
    int status = cuda_alive(b, err);
    if (status == QUIRE_OK)
        status = k_check_rmsnorm(a, err);
    if (status != QUIRE_OK || a->n_tokens == 0)
        return status;
    struct k_rmsnorm_args own = *a;
    own.for_gemm = cuda_leaves_factors(b, a->for_gemm, a->out_dev, a->n_cols);
    if (a->add_is_part)
        return cuda_group_rmsnorm(b, &own, err);
    return cuda_check(b, launch_rmsnorm(cuda_of(b)->stream, &own), "rmsnorm", err);
}

int cuda_layernorm(struct k_backend *b, const struct k_layernorm_args *a, struct quire_error *err)
{
    int status = cuda_alive(b, err);
    if (status == QUIRE_OK && a->n_cols == 0)
        return quire_fail(err, QUIRE_INVALID, "layernorm: n_cols is 0");
    if (status != QUIRE_OK || a->n_tokens == 0)
        return status;
    return cuda_check(b, launch_layernorm(cuda_of(b)->stream, a), "layernorm", err);
}

int cuda_activate(struct k_backend *b, const struct k_activate_args *a, struct quire_error *err)
{
    int status = cuda_alive(b, err);
    if (status != QUIRE_OK || a->n_tokens == 0 || a->n_cols == 0)
        return status;
    return cuda_check(b, launch_activate(cuda_of(b)->stream, a), "activate", err);
}

/* Does not check for rows without tokens, because the rows lie on the device; the caller must not pass any. */
int cuda_pool(struct k_backend *b, const struct k_pool_args *a, struct quire_error *err)
{
    int status = cuda_alive(b, err);
    if (status != QUIRE_OK || a->n_rows == 0 || a->n_cols == 0)
        return status;
    return cuda_check(b, launch_pool(cuda_of(b)->stream, a), "pool", err);
}

int cuda_rope_angles(struct k_backend *b, const struct k_rope_angles_args *a, struct quire_error *err)
{
    int status = cuda_alive(b, err);
    if (status != QUIRE_OK || a->n_tokens == 0 || a->n_freqs == 0)
        return status;
    return cuda_check(b, launch_rope_angles(cuda_of(b)->stream, a), "rope_angles", err);
}

int cuda_rope_kv(struct k_backend *b, const struct k_rope_kv_args *a, struct quire_error *err)
{
    int status = cuda_alive(b, err);
    if (status == QUIRE_OK)
        status = k_check_kv_shape("rope", a->kv, err);
    if (status == QUIRE_OK)
        status = k_check_rotation(a, err);
    if (status != QUIRE_OK || a->n_tokens == 0)
        return status;
    return cuda_check(b, launch_rope_kv(cuda_of(b)->stream, a), "rope_kv", err);
}

int cuda_gather(struct k_backend *b, const struct k_gather_args *a, struct quire_error *err)
{
    int status = cuda_alive(b, err);
    if (status != QUIRE_OK || a->n_rows == 0 || a->n_cols == 0)
        return status;
    struct k_gather_args own = *a;
    own.for_gemm = cuda_leaves_factors(b, a->for_gemm, a->out_dev, a->n_cols);
    return cuda_check(b, launch_gather(cuda_of(b)->stream, &own), "gather", err);
}

int cuda_kv_copy(struct k_backend *b, const struct k_kv_copy_args *a, struct quire_error *err)
{
    int status = cuda_eager(b, "kv_copy", err);
    if (status == QUIRE_OK)
        status = k_check_kv_shape("kv_copy", a->kv, err);
    if (status != QUIRE_OK || a->n_pairs == 0)
        return status;
    return cuda_check(b, launch_kv_copy(cuda_of(b)->stream, a), "kv_copy", err);
}

int cuda_place_tokens(struct k_backend *b, const struct k_place_tokens_args *a, struct quire_error *err)
{
    int status = cuda_alive(b, err);
    if (status != QUIRE_OK || a->n == 0)
        return status;
    return cuda_check(b, launch_place_tokens(cuda_of(b)->stream, a), "place_tokens", err);
}
