/* The operations on experts: the table of the kernels of their GEMMs, and the choice among them (kernels/kernel_table.h). */
#include "kernels/args/moe.h"
#include "kernels/cuda/gemm_launch.h"
#include "kernels/cuda/host/operations.h"
#include "kernels/cuda/moe/list.h"
#include "kernels/check.h"

/* ---- the table ---- */

static const struct cuda_gemm_call *call_of(const void *call)
{
    return call;
}

static bool takes_quantized(const struct k_kernel *kernel, const void *call)
{
    (void)kernel;
    return call_of(call)->args->weight->n_quant > 0;
}

static bool takes_plain(const struct k_kernel *kernel, const void *call)
{
    return !takes_quantized(kernel, call);
}

/* What a tile costs, as gemm_small.cu and gemm_large.cu reckon it: its rows and tokens pass through shared memory, and in
 * the large tiles several warps share them. */
static uint64_t tile_clocks(uint32_t tokens)
{
    return tokens <= 32 ? 32 + tokens : tokens == 64 ? 96 : 140;
}

/* As if each expert had the same number of choices: which have more is known only on the device. */
static uint64_t tiles_clocks(const struct k_kernel *kernel, const void *of)
{
    const struct cuda_gemm_call *call = of;
    const uint64_t n = call->moe->n_choices, n_experts = call->args->weight->n_experts;
    const uint64_t n_used = n < n_experts ? n : n_experts, each = (n + n_used - 1) / n_used;
    return n_used * ((each + kernel->variant - 1) / kernel->variant) * tile_clocks(kernel->variant);
}

#define LANE K_FORM_BIT(K_FORM_LANE)
#define INT8 K_FORM_BIT(K_FORM_INT8)
#define MMA K_FORM_BIT(K_FORM_MMA)
/* name, forms, compute capability, variant, takes, clocks; launch. The number of a name is the tokens of a tile. */
static const struct cuda_gemm_kernel kernels[] = {
    {{"lane", LANE | INT8, 80, 0, takes_plain, NULL}, launch_gemm_lane},
    {{"quantized lane", LANE, 80, 0, takes_quantized, NULL}, launch_gemm_quant},
    {{"quantized int8", INT8, 80, 1, takes_quantized, NULL}, launch_gemm_quant},
    {{"mma 8", MMA, 80, 8, takes_plain, tiles_clocks}, launch_gemm_small_grouped},
    {{"mma 16", MMA, 80, 16, takes_plain, tiles_clocks}, launch_gemm_small_grouped},
    {{"mma 32", MMA, 80, 32, takes_plain, tiles_clocks}, launch_gemm_small_grouped},
    {{"mma 64", MMA, 80, 64, takes_plain, tiles_clocks}, launch_gemm_large_grouped},
    {{"mma 128", MMA, 80, 128, takes_plain, tiles_clocks}, launch_gemm_large_grouped},
};
static const struct k_kernel_table table = K_KERNEL_TABLE(kernels);

const struct k_kernel *cuda_moe_kernel_at(uint32_t i)
{
    return k_kernel_at(&table, i);
}

/* ---- the experts ---- */

static int check(struct k_backend *b, const struct k_moe_gemm_args *a, const char *operation, struct quire_error *err)
{
    int status = cuda_alive(b, err);
    if (status == QUIRE_OK)
        status = k_check_moe_gemm(a, err);
    if (status == QUIRE_OK && !cuda_takes_weight(b, a->weight))
        status = quire_fail(err, QUIRE_UNSUPPORTED, "%s: the %s form does not support %s weights", operation,
                            k_form_name(b->form), k_format_name(a->weight->format));
    if (status == QUIRE_OK && (uint64_t)a->n_tokens * a->n_used > UINT32_MAX)
        status = quire_fail(err, QUIRE_INVALID, "%s: %u tokens of %u experts are too many", operation, a->n_tokens,
                            a->n_used);
    return status;
}

/* int8: each expert has a scale of activations or an order of columns of its own. */
static bool rounds_by_choice(struct k_backend *b, const struct k_weight *w)
{
    bool has_own = false;
    for (uint32_t i = 0; i < w->n_quant; i++)
        has_own |= w->quant[i].permutation_dev || w->quant[i].x_scales_dev;
    return has_own && b->form == K_FORM_INT8;
}

/* gated: the destination of the gate, or NULL. */
static int multiply(struct k_backend *b, const struct k_moe_gemm_args *a, const struct cuda_gated *gated,
                    const char *operation, struct quire_error *err)
{
    const struct cuda_backend *c = cuda_of(b);
    const struct cuda_gemm_means gpu = {c->n_sms, c->shared_bytes, (uint32_t)c->compute_capability, c->arrivals_dev,
                                        NULL};
    const struct cuda_moe_call moe = {a, cuda_moe_list_at(a->workspace_dev, a), a->n_tokens * a->n_used,
                                      rounds_by_choice(b, a->weight)};
    const struct k_gemm_args all = {.weight = a->weight,
                                    .x_dev = a->x_dev,
                                    .bias_dev = a->bias_dev,
                                    .y_dev = a->y_dev,
                                    .workspace_dev = (unsigned char *)a->workspace_dev +
                                                     cuda_moe_list_bytes(moe.n_choices),
                                    .n_tokens = a->per_choice ? moe.n_choices : a->n_tokens,
                                    .unit = a->unit,
                                    .n_whole = a->n_whole,
                                    .first_col = a->first_col,
                                    .x_for_gemm = cuda_leaves_factors(b, a->x_for_gemm, a->x_dev, a->weight->n_cols)};
    const struct cuda_gemm_call call = {&all, gated, &gpu, c->stream, &moe};
    uint32_t from = 0;
    const struct k_kernel *kernel = k_kernel_choose(&table, &b->choice, b->form, gpu.compute_capability, &call, &from);
    return cuda_check(b,
                      kernel ? ((const struct cuda_gemm_kernel *)kernel)->launch(kernel, &call) : cudaErrorNotSupported,
                      operation, err);
}

/* Choices that are rounded by themselves have the memory of as many tokens: some tokens at a time. */
static int multiply_all(struct k_backend *b, const struct k_moe_gemm_args *a, const struct cuda_gated *gated,
                        const char *operation, struct quire_error *err)
{
    int status = check(b, a, operation, err);
    if (status != QUIRE_OK)
        return status;
    uint32_t at_once = a->n_tokens;
    if (!a->per_choice && rounds_by_choice(b, a->weight))
        at_once = a->n_tokens < 2 * a->n_used ? 1 : a->n_tokens / a->n_used;
    const uint64_t n_rows = a->weight->n_rows, n_out = n_rows / 2;
    for (uint32_t t = 0; status == QUIRE_OK && t < a->n_tokens; t += at_once) {
        const uint64_t choice = (uint64_t)t * a->n_used;
        struct k_moe_gemm_args some = *a;
        struct cuda_gated to = gated ? *gated : (struct cuda_gated){NULL, false, {K_GATE_SILU, 0}};
        some.n_tokens = a->n_tokens - t < at_once ? a->n_tokens - t : at_once;
        some.x_dev += t * (uint64_t)a->weight->n_cols;
        some.experts_dev += choice;
        some.y_dev = some.y_dev ? some.y_dev + choice * n_rows : NULL;
        to.out_dev = gated ? to.out_dev + choice * n_out : NULL;
        status = multiply(b, &some, gated ? &to : NULL, operation, err);
    }
    return status;
}

int cuda_moe_gemm(struct k_backend *b, const struct k_moe_gemm_args *a, struct quire_error *err)
{
    return multiply_all(b, a, NULL, "moe_gemm", err);
}

int cuda_moe_gemm_gated(struct k_backend *b, const struct k_moe_gemm_gated_args *a, struct quire_error *err)
{
    const uint32_t n_rows = a->gemm.weight->n_rows;
    int status = k_check_gate_up(n_rows, err);
    if (status != QUIRE_OK)
        return status;
    const bool as_factors = cuda_leaves_factors(b, a->for_gemm, a->out_dev, n_rows / 2);
    return multiply_all(b, &a->gemm, &(struct cuda_gated){a->out_dev, as_factors, a->gate}, "moe_gemm_gated", err);
}

/* ---- the router and the combination ---- */

int cuda_moe_route(struct k_backend *b, const struct k_moe_route_args *a, struct quire_error *err)
{
    int status = cuda_alive(b, err);
    if (status == QUIRE_OK)
        status = k_check_route(a, err);
    if (status != QUIRE_OK || a->n_tokens == 0)
        return status;
    return cuda_check(b, launch_moe_route(cuda_of(b)->stream, a), "moe_route", err);
}

int cuda_moe_combine(struct k_backend *b, const struct k_moe_combine_args *a, struct quire_error *err)
{
    int status = cuda_alive(b, err);
    if (status != QUIRE_OK || a->n_tokens == 0 || a->n_cols == 0)
        return status;
    return cuda_check(b, launch_moe_combine(cuda_of(b)->stream, a), "moe_combine", err);
}
