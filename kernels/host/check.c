#include "kernels/host/check.h"

int host_check_kv_shape(const char *operation, const struct k_kv_shape *kv, struct quire_error *err)
{
    if (kv->head_dim == 0 || kv->head_dim % 16 != 0 || kv->head_dim > HOST_MAX_HEAD_DIM ||
        kv->n_kv_heads == 0 || kv->block_tokens == 0 || kv->dtype == K_BF16)
        return quire_fail(err, QUIRE_INVALID, "%s: impossible KV cache shape", operation);
    return QUIRE_OK;
}

int host_check_attention(const struct k_attention_args *a, struct quire_error *err)
{
    int status = host_check_kv_shape("attention", a->kv, err);
    if (status != QUIRE_OK)
        return status;
    if (a->n_q_heads % a->kv->n_kv_heads != 0)
        return quire_fail(err, QUIRE_INVALID, "attention: %u query heads over %u KV heads",
                          a->n_q_heads, a->kv->n_kv_heads);
    for (uint32_t i = 0; i < a->n_rows; i++) {
        const struct k_attn_row *row = &a->rows[i];
        if ((uint64_t)row->token + row->n_tokens > a->n_tokens ||
            (uint64_t)row->position + row->n_tokens > UINT32_MAX - HOST_ATTN_SPLIT)
            return quire_fail(err, QUIRE_INVALID, "attention: row %u lies outside the step", i);
    }
    return QUIRE_OK;
}
