#include "kernels/check.h"

#include <math.h>

static bool is_kv_format(struct k_format format)
{
    return k_format_is_quantized(format) && format.packing == K_PACKING_PLANES && format.bits == 8 &&
           format.group == 0 && format.scale == K_F32;
}

bool k_takes_format(enum k_operation operation, struct k_format format)
{
    bool is_plain = k_format_is_plain(format);
    switch (operation) {
    case K_OP_EMBED:
    case K_OP_GEMM:
    case K_OP_GEMM_GATED:
    case K_OP_MOE_GEMM:
    case K_OP_MOE_GEMM_GATED: return is_plain || k_format_is_quantized(format);
    case K_OP_ROPE_KV:
    case K_OP_ATTENTION_PLAN:
    case K_OP_ATTENTION:
    case K_OP_KV_COPY: return is_plain ? format.kind != K_BF16 : is_kv_format(format);
    default: return false;
    }
}

int k_check_rmsnorm(const struct k_rmsnorm_args *a, struct quire_error *err)
{
    if (a->n_cols == 0)
        return quire_fail(err, QUIRE_INVALID, "rmsnorm: n_cols is 0");
    if (a->row_stride != 0 && a->row_stride < a->n_cols)
        return quire_fail(err, QUIRE_INVALID, "rmsnorm: n_cols is %u, but row_stride is %u", a->n_cols, a->row_stride);
    if (a->into && a->add_dev)
        return quire_fail(err, QUIRE_INVALID, "rmsnorm: `into` and add_dev exclude each other");
    if (a->add_is_part && (!a->add_dev || a->row_stride != 0))
        return quire_fail(err, QUIRE_INVALID, "rmsnorm: add_is_part needs add_dev and row_stride 0");
    if (a->for_gemm && (a->into || a->out_dev == a->x_dev))
        return quire_fail(err, QUIRE_INVALID, "rmsnorm: for_gemm excludes `into` and out_dev = x_dev");
    return QUIRE_OK;
}

int k_check_group(const char *operation, const struct k_group *group, struct quire_error *err)
{
    if (group->n_ranks != 2 && group->n_ranks != 4 && group->n_ranks != 8)
        return quire_fail(err, QUIRE_INVALID, "%s: the group must have 2, 4 or 8 ranks, got %u", operation,
                          group->n_ranks);
    return QUIRE_OK;
}

int k_check_all_gather(const struct k_all_gather_args *a, const struct k_group *group, struct quire_error *err)
{
    for (uint32_t r = 0; r < group->n_ranks; r++)
        if (a->first_cols[r + 1] < a->first_cols[r] || a->first_cols[0] != 0)
            return quire_fail(err, QUIRE_INVALID, "all_gather: rank %u has columns [%u, %u)", r, a->first_cols[r],
                              a->first_cols[r + 1]);
    return QUIRE_OK;
}

int k_check_kv_shape(const char *operation, const struct k_kv_shape *kv, struct quire_error *err)
{
    if (kv->head_dim == 0 || kv->head_dim % 16 != 0 || kv->head_dim > K_MAX_HEAD_DIM || kv->n_kv_heads == 0 ||
        kv->block_tokens == 0 || !k_takes_format(K_OP_KV_COPY, kv->format))
        return quire_fail(err, QUIRE_INVALID, "%s: impossible KV cache shape", operation);
    const int status = k_kv_check(kv, err);
    if (status != QUIRE_OK)
        quire_error_prefix(err, "%s", operation);
    return status;
}

int k_check_rotation(const struct k_rope_kv_args *a, struct quire_error *err)
{
    if (a->n_fixed % 16 != 0 || a->n_fixed > a->kv->head_dim)
        return quire_fail(err, QUIRE_INVALID,
                          "rope: %u numbers of a head of %u are not rotated; must be a multiple of 16", a->n_fixed,
                          a->kv->head_dim);
    return QUIRE_OK;
}

int k_check_attention(const struct k_attention_args *a, struct quire_error *err)
{
    int status = k_check_kv_shape("attention", a->kv, err);
    if (status != QUIRE_OK)
        return status;
    if (a->n_q_heads % a->kv->n_kv_heads != 0)
        return quire_fail(err, QUIRE_INVALID, "attention: %u query heads are not a multiple of %u KV heads",
                          a->n_q_heads, a->kv->n_kv_heads);
    if (a->whole && a->window != 0)
        return quire_fail(err, QUIRE_INVALID, "attention: `whole` needs window 0");
    if (a->n_sink_positions > 0 && (a->window == 0 || a->n_sink_positions > K_MAX_SINK_POSITIONS || !a->sink_q_dev))
        return quire_fail(err, QUIRE_INVALID, "attention: %u sinks with a window of %u and %s queries",
                          a->n_sink_positions, a->window, a->sink_q_dev ? "their" : "no");
    if (a->softcap != 0.0f && !(isnormal(a->softcap) && a->softcap > 0.0f))
        return quire_fail(err, QUIRE_INVALID, "attention: softcap must be 0 or positive and normal, got %g",
                          (double)a->softcap);
    for (uint32_t i = 0; i < a->n_rows; i++) {
        const struct k_attn_row *row = &a->rows[i];
        if ((uint64_t)row->token + row->n_tokens > a->n_tokens ||
            (uint64_t)row->position + row->n_tokens > UINT32_MAX - K_ATTN_SPLIT)
            return quire_fail(err, QUIRE_INVALID, "attention: row %u is outside the step", i);
    }
    return QUIRE_OK;
}

int k_check_gate_up(uint32_t n_rows, struct quire_error *err)
{
    if (n_rows % 2 != 0)
        return quire_fail(err, QUIRE_INVALID,
                          "gemm_gated: the weight must have an even number of rows (gate and up), got %u", n_rows);
    return QUIRE_OK;
}

int k_check_route(const struct k_moe_route_args *a, struct quire_error *err)
{
    if (a->n_experts == 0 || a->n_experts > K_MOE_MAX_EXPERTS || a->n_used == 0 || a->n_used > K_MOE_MAX_USED ||
        a->n_used > a->n_experts)
        return quire_fail(err, QUIRE_INVALID, "moe_route: a token uses %u of %u experts; must be 1 to %u of at most %u",
                          a->n_used, a->n_experts, K_MOE_MAX_USED, K_MOE_MAX_EXPERTS);
    if (a->n_groups > 1 &&
        (a->n_experts % a->n_groups != 0 || a->n_groups_used == 0 || a->n_groups_used > a->n_groups ||
         a->n_experts / a->n_groups < (a->group_by_best ? 1u : 2u) ||
         a->n_used > a->n_groups_used * (a->n_experts / a->n_groups)))
        return quire_fail(err, QUIRE_INVALID, "moe_route: %u of %u experts cannot come from %u of %u groups", a->n_used,
                          a->n_experts, a->n_groups_used, a->n_groups);
    return QUIRE_OK;
}

int k_check_moe_gemm(const struct k_moe_gemm_args *a, struct quire_error *err)
{
    if (a->n_used == 0 || a->n_used > K_MOE_MAX_USED)
        return quire_fail(err, QUIRE_INVALID, "moe_gemm: a token uses %u experts; must be 1 to %u", a->n_used,
                          K_MOE_MAX_USED);
    return QUIRE_OK;
}

static int check_sample_row(const struct k_sample_row *row, uint32_t index, uint32_t n_vocab, struct quire_error *err)
{
    if (row->n_biases > n_vocab || row->n_counts > n_vocab)
        return quire_fail(err, QUIRE_INVALID, "sample: row %u: %u biases and %u counts, the vocabulary has %u tokens",
                          index, row->n_biases, row->n_counts, n_vocab);
    if (!(row->temperature < INFINITY) || row->min_p > 1.0f)
        return quire_fail(err, QUIRE_INVALID, "sample: row %u: temperature %g must be finite, and min_p %g at most 1",
                          index, (double)row->temperature, (double)row->min_p);
    for (uint32_t i = 0; i < row->n_biases; i++) {
        if (row->biases[i].id >= n_vocab)
            return quire_fail(err, QUIRE_INVALID, "sample: row %u: bias for token %u, the vocabulary has %u", index,
                              row->biases[i].id, n_vocab);
    }
    for (uint32_t i = 0; i < row->n_counts; i++) {
        if (row->counts[i].id >= n_vocab)
            return quire_fail(err, QUIRE_INVALID, "sample: row %u: count for token %u, the vocabulary has %u", index,
                              row->counts[i].id, n_vocab);
    }
    if (row->forced >= (int64_t)n_vocab)
        return quire_fail(err, QUIRE_INVALID, "sample: row %u: forced token %lld, the vocabulary has %u", index,
                          (long long)row->forced, n_vocab);
    if (row->n_logprobs > K_MAX_LOGPROBS)
        return quire_fail(err, QUIRE_INVALID, "sample: row %u: n_logprobs is %d, must be at most %d", index,
                          row->n_logprobs, K_MAX_LOGPROBS);
    return QUIRE_OK;
}

int k_check_sample(const struct k_sample_plan_args *a, struct quire_error *err)
{
    if (a->n_vocab == 0 || a->n_vocab > K_MAX_VOCAB)
        return quire_fail(err, QUIRE_INVALID, "sample: n_vocab is %u, must be 1 to %u", a->n_vocab, K_MAX_VOCAB);
    for (uint32_t i = 0; i < a->n_rows; i++) {
        int status = check_sample_row(&a->rows[i], i, a->n_vocab, err);
        if (status != QUIRE_OK)
            return status;
    }
    return QUIRE_OK;
}
