#include "tools/bench/cmd/work.h"

/* Positions that attention reads, each once, and pairs of a token and a position that it sees. */
static void attention_work(const struct op_case *c, double *positions, double *pairs)
{
    *positions = *pairs = 0;
    for (uint32_t s = 0; s < op_n_seqs(c); s++) {
        uint32_t first = c->seqs[s].position, end = first + c->seqs[s].n_tokens;
        bool is_cut = c->window > 0 && first >= c->window;
        *positions += is_cut ? end - (first + 1 - c->window) : end;
        for (uint32_t p = first; p < end; p++)
            *pairs += c->window > 0 && p >= c->window ? c->window : p + 1;
    }
}

void bench_work(const struct op_case *c, double *bytes, double *flops)
{
    double t = op_n_tokens(c), n = c->n_rows, k = c->n_cols, size = (double)k_dtype_bytes(c->dtype);
    double heads = (double)(c->n_q_heads + 2 * c->n_kv_heads) * c->head_dim, pairs, read;
    attention_work(c, &read, &pairs);
    *flops = 0;
    switch (c->op) {
    case K_OP_GEMM:
        *bytes = (double)op_weight_bytes(c) + 4 * t * (n + k);
        *flops = 2 * t * n * k;
        break;
    case K_OP_GEMM_GATED:
        *bytes = (double)op_weight_bytes(c) + 4 * t * (n / 2 + k);
        *flops = 2 * t * n * k;
        break;
    case K_OP_MOE_GEMM:
    case K_OP_MOE_GEMM_GATED: /* of the experts that the tokens use, as if all were */
        *bytes = (double)op_weight_bytes(c) + 4 * t * c->moe->n_used * (n + k);
        *flops = 2 * t * c->moe->n_used * n * k;
        break;
    case K_OP_MOE_ROUTE:
        *bytes = 4 * (t + c->moe->n_experts) * k;
        *flops = 2 * t * k * c->moe->n_experts;
        break;
    case K_OP_MOE_COMBINE: *bytes = 4 * t * k * (c->moe->n_used + 1); break;
    case K_OP_ATTENTION:
        *bytes = 2 * read * c->n_kv_heads * (double)op_cache_row_bytes(c);
        *flops = 4 * pairs * c->n_q_heads * c->head_dim;
        break;
    case K_OP_ROPE_KV: *bytes = 8 * t * heads; break;
    case K_OP_KV_COPY: *bytes = 4 * t * c->n_kv_heads * c->block_tokens * (double)op_cache_row_bytes(c); break;
    case K_OP_ROPE_ANGLES: *bytes = 8 * t * k; break;
    case K_OP_RMSNORM:
    case K_OP_LAYERNORM: *bytes = 16 * t * k; break;
    case K_OP_ACTIVATE: *bytes = 8 * t * k; break;
    case K_OP_POOL: *bytes = 4 * t * k; break;
    case K_OP_SAMPLE: *bytes = 4 * t * n; break;
    default: *bytes = t * k * (size + 4); break;
    }
}

uint64_t bench_work_cold_bytes(const struct op_case *c)
{
    double read, pairs;
    attention_work(c, &read, &pairs);
    switch (c->op) {
    case K_OP_GEMM:
    case K_OP_GEMM_GATED:
    case K_OP_MOE_GEMM:
    case K_OP_MOE_GEMM_GATED:
    case K_OP_EMBED: return op_weight_bytes(c);
    case K_OP_ATTENTION: return 2 * (uint64_t)read * c->n_kv_heads * op_cache_row_bytes(c);
    case K_OP_KV_COPY: return 2 * (uint64_t)c->n_rows * c->n_kv_heads * c->block_tokens * op_cache_row_bytes(c);
    case K_OP_SAMPLE: return (uint64_t)4 * c->n_tokens * c->n_rows;
    default: return 0;
    }
}
