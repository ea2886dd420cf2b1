/* GEMM: the table of its kernels, and the choice among them (kernels/kernel_table.h). */
#include "kernels/cuda/host/operations.h"
#include "kernels/cuda/host/cublaslt.h"
#include "kernels/cuda/gemm_launch.h"
#include "kernels/check.h"

bool cuda_supports(struct k_backend *b, enum k_operation operation, enum k_gemm_form form, struct k_format format)
{
    (void)b;
    bool is_gemm = operation == K_OP_GEMM || operation == K_OP_GEMM_GATED;
    if (operation == K_OP_MOE_GEMM || operation == K_OP_MOE_GEMM_GATED) /* moe.c refuses them */
        return false;
    const bool is_plain = k_format_is_plain(format);
    bool has_form = form == K_FORM_LANE || (form == K_FORM_MMA && is_plain && format.kind != K_F32) ||
                    (form == K_FORM_INT8 && (is_plain || k_format_is_integers(format)));
    return k_takes_format(operation, format) && (!is_gemm || has_form);
}

static bool takes_weight(struct k_backend *b, const struct k_weight *w)
{
    bool takes = w->n_quant > 0 || cuda_supports(b, K_OP_GEMM, b->form, w->format);
    for (uint32_t i = 0; i < w->n_quant; i++) {
        enum cuda_quant_kind kind = w->quant[i].kind;
        takes &= b->form == K_FORM_LANE ||
                 (b->form == K_FORM_INT8 && kind != CUDA_QUANT_E4M3 && kind != CUDA_QUANT_E5M2);
    }
    return takes;
}

/* ---- the table ---- */

static bool takes_quantized(const struct k_kernel *kernel, const void *call)
{
    (void)kernel;
    return ((const struct cuda_gemm_call *)call)->args->weight->n_quant > 0;
}

static bool takes_plain(const struct k_kernel *kernel, const void *call)
{
    return !takes_quantized(kernel, call);
}

static bool takes_few_tokens(const struct k_kernel *kernel, const void *call)
{
    return takes_plain(kernel, call) && ((const struct cuda_gemm_call *)call)->args->n_tokens <= CUDA_GEMM_SMALL_TOKENS;
}

#define LANE K_FORM_BIT(K_FORM_LANE)
#define INT8 K_FORM_BIT(K_FORM_INT8)
#define MMA K_FORM_BIT(K_FORM_MMA)
/* name, forms, compute capability, variant, takes, clocks; launch */
#define HOPPER_ROW(name, variant) \
    {{name, MMA, 90, variant, cuda_gemm_hopper_takes, cuda_gemm_hopper_clocks}, launch_gemm_hopper}
#define LARGE_ROW(name, variant) \
    {{name, MMA, 80, variant, cuda_gemm_large_takes, cuda_gemm_large_clocks}, launch_gemm_large}
/* The numbers of a name are the rows and tokens of a block. Several rows with equal clocks: the first. */
static const struct cuda_gemm_kernel kernels[] = {
    {{"lane", LANE | INT8, 80, 0, takes_plain, NULL}, launch_gemm_lane},
    {{"quantized lane", LANE, 80, 0, takes_quantized, NULL}, launch_gemm_quant},
    {{"quantized int8", INT8, 80, 1, takes_quantized, NULL}, launch_gemm_quant},
    {{"mma of few tokens", MMA, 80, 0, takes_few_tokens, NULL}, launch_gemm_small},
    HOPPER_ROW("wgmma 256x192", 0),
    HOPPER_ROW("wgmma 128x128", 1),
    HOPPER_ROW("wgmma 128x64", 2),
    HOPPER_ROW("wgmma 256x192 gated", 3),
    HOPPER_ROW("wgmma 128x128 gated", 4),
    HOPPER_ROW("wgmma 128x64 gated", 5),
    HOPPER_ROW("wgmma 256x128 segments", 6),
    HOPPER_ROW("wgmma 128x128 segments", 7),
    HOPPER_ROW("wgmma 128x64 segments", 8),
    HOPPER_ROW("wgmma 128x128 tails", 9),
    LARGE_ROW("mma 128x64", CUDA_LARGE_128X64),
    LARGE_ROW("mma 64x64", CUDA_LARGE_64X64),
    LARGE_ROW("mma 192x128", CUDA_LARGE_192X128),
    LARGE_ROW("mma 128x128", CUDA_LARGE_128X128),
    LARGE_ROW("mma 224x64", CUDA_LARGE_224X64),
    LARGE_ROW("mma 48x64", CUDA_LARGE_SPREAD),
};
static const struct k_kernel_table table = K_KERNEL_TABLE(kernels);

const struct k_kernel *cuda_gemm_kernel_at(uint32_t i)
{
    return k_kernel_at(&table, i);
}

static cudaError_t launch_chosen(struct k_backend *b, const struct k_gemm_args *a, const struct cuda_gated *gated)
{
    const struct cuda_backend *c = cuda_of(b);
    const struct cuda_gemm_means gpu = {c->n_sms, c->shared_bytes, (uint32_t)c->compute_capability, c->arrivals_dev,
                                        c->hopper};
    const struct cuda_gemm_call call = {a, gated, &gpu, c->stream};
    cudaError_t error = cudaErrorNotSupported;
    const struct k_kernel *kernel;
    uint32_t from = 0;
    while (error == cudaErrorNotSupported &&
           (kernel = k_kernel_choose(&table, &b->choice, b->form, gpu.compute_capability, &call, &from)))
        error = ((const struct cuda_gemm_kernel *)kernel)->launch(kernel, &call);
    return error;
}

/* ---- the operation ---- */

/* Sets *done if NVIDIA's library has computed the GEMM. The gate is then a separate launch. The library is no row of the
 * table, because its bits are not the form's. */
static int gemm_by_library(struct k_backend *b, const struct k_gemm_args *a, const struct cuda_gated *gated, bool *done,
                           struct quire_error *err)
{
    struct cuda_backend *c = cuda_of(b);
    *done = false;
    if (!c->lt ||
        a->n_tokens <= CUDA_GEMM_SMALL_TOKENS) /* fewer tokens are limited by reading weights, where our kernels are
                                                * as fast */
        return QUIRE_OK;
    int status = cublaslt_gemm(b, a, done, err);
    if (status != QUIRE_OK || !*done || !gated)
        return status;
    cudaError_t error = launch_gate(c->stream, a->y_dev, gated, a->n_tokens, a->weight->n_rows / 2);
    return cuda_check(b, error, "gate", err);
}

/* gated: the destination of the gate, or NULL. */
static int gemm(struct k_backend *b, const struct k_gemm_args *args, const struct cuda_gated *gated,
                const char *operation, struct quire_error *err)
{
    struct k_gemm_args a = *args;
    int status = cuda_alive(b, err);
    if (status == QUIRE_OK && !takes_weight(b, a.weight))
        status = quire_fail(err, QUIRE_UNSUPPORTED, "%s: the %s form does not support %s weights", operation,
                            k_form_name(b->form), k_format_name(a.weight->format));
    if (status != QUIRE_OK || a.n_tokens == 0)
        return status;
    a.x_for_gemm = cuda_leaves_factors(b, a.x_for_gemm, a.x_dev, a.weight->n_cols);
    bool done = false;
    if (a.weight->n_quant == 0)
        status = gemm_by_library(b, &a, gated, &done, err);
    if (status != QUIRE_OK || done)
        return status;
    return cuda_check(b, launch_chosen(b, &a, gated), operation, err);
}

int cuda_gemm(struct k_backend *b, const struct k_gemm_args *a, struct quire_error *err)
{
    return gemm(b, a, NULL, "gemm", err);
}

int cuda_gemm_gated(struct k_backend *b, const struct k_gemm_gated_args *a, struct quire_error *err)
{
    int status = k_check_gate_up(a->gemm.weight->n_rows, err);
    if (status != QUIRE_OK)
        return status;
    bool as_factors = cuda_leaves_factors(b, a->for_gemm, a->out_dev, a->gemm.weight->n_rows / 2);
    return gemm(b, &a->gemm, &(struct cuda_gated){a->out_dev, as_factors, a->gate}, "gemm_gated", err);
}
