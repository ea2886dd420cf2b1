/* Mixtures of experts have no kernels on a GPU yet: weight_create() refuses their weights, and so do the operations. */
#include "kernels/args/moe.h"
#include "kernels/cuda/host/operations.h"

static int refuse(const char *operation, struct quire_error *err)
{
    return quire_fail(err, QUIRE_UNSUPPORTED,
                      "%s: mixtures of experts are not supported on a GPU yet; use --device cpu", operation);
}

int cuda_moe_route(struct k_backend *b, const struct k_moe_route_args *a, struct quire_error *err)
{
    (void)b, (void)a;
    return refuse("moe_route", err);
}

int cuda_moe_gemm(struct k_backend *b, const struct k_moe_gemm_args *a, struct quire_error *err)
{
    (void)b, (void)a;
    return refuse("moe_gemm", err);
}

int cuda_moe_gemm_gated(struct k_backend *b, const struct k_moe_gemm_gated_args *a, struct quire_error *err)
{
    (void)b, (void)a;
    return refuse("moe_gemm_gated", err);
}

int cuda_moe_combine(struct k_backend *b, const struct k_moe_combine_args *a, struct quire_error *err)
{
    (void)b, (void)a;
    return refuse("moe_combine", err);
}
