#include "kernels/cases/op_data.h"

#include "kernels/math/convert.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Numbers repeat with this period, a prime, so that no two rows of a matrix are equal. Only timed cases are that
 * large, and drawing 500 million numbers for them would take seconds. */
#define PERIOD 4194301u

/* Fills p, of n elements of `size` bytes, by repeating its first PERIOD elements. p may be NULL. */
static void *repeated(void *p, uint64_t n, size_t size)
{
    for (uint64_t at = PERIOD; p && at < n; at += PERIOD)
        memcpy((char *)p + at * size, p, (n - at < PERIOD ? n - at : PERIOD) * size);
    return p;
}

static uint64_t drawn(uint64_t n)
{
    return n < PERIOD ? n : PERIOD;
}

/* NULL: memory is out, here and below. */
static float *random_f32(uint64_t n, uint64_t *state, enum op_values values)
{
    float *p = malloc((n ? n : 1) * sizeof *p);
    for (uint64_t i = 0; p && i < drawn(n); i++)
        p[i] = op_random_value(state, values);
    return repeated(p, n, sizeof *p);
}

/* Makes n values as a checkpoint or a cache stores them. Denormals of f16 are below 2^-14, not 2^-126. */
static void *random_stored(uint64_t n, enum k_dtype dtype, uint64_t *state, enum op_values values)
{
    float *f = random_f32(dtype == K_F32 ? n : drawn(n), state, values);
    if (dtype == K_F32)
        return f;
    uint16_t *h = malloc((n ? n : 1) * sizeof *h);
    for (uint64_t i = 0; f && h && i < drawn(n); i++) {
        float x = dtype == K_F16 && values == VALUES_TINY ? ldexpf(f[i], 115) : f[i];
        if (dtype == K_F16 && values == VALUES_WIDE)
            x = ldexpf(x, -6);
        h[i] = dtype == K_F16 ? k_f16_from_f32(x) : k_bf16_from_f32(x);
    }
    if (!f) {
        free(h);
        return NULL;
    }
    free(f);
    return repeated(h, n, sizeof *h);
}

static uint32_t x_width(const struct op_case *c)
{
    switch (c->op) {
    case K_OP_ROPE_KV:
    case K_OP_ATTENTION: return (c->n_q_heads + 2 * c->n_kv_heads) * c->head_dim;
    case K_OP_SAMPLE: return c->n_rows;
    case K_OP_EMBED:
    case K_OP_KV_COPY:
    case K_OP_ROPE_ANGLES: return 0;
    case K_OP_RMSNORM: return c->n_rows ? c->n_rows : c->n_cols;
    case K_OP_MOE_GEMM: return c->n_cols * (c->moe->per_choice ? c->moe->n_used : 1);
    case K_OP_MOE_COMBINE: return c->n_cols * c->moe->n_used;
    default: return c->n_cols;
    }
}

/* ---- rows to sample -------------------------------------------------------------------------- */

struct row_pool { /* memory to which a row may point, one allocation per row */
    struct k_token_count counts[8];
    struct k_logit_bias biases[8];
    uint32_t mask[];
};

static uint32_t ascending_ids(uint32_t *ids, uint32_t most, uint32_t n_vocab, uint64_t *state)
{
    uint32_t n = 0, id = (uint32_t)(op_random(state) % 3);
    while (n < most && id < n_vocab) {
        ids[n++] = id;
        id += 1 + (uint32_t)(op_random(state) % (n_vocab / 6 + 1));
    }
    return n;
}

static void random_row(struct k_sample_row *row, struct row_pool *pool, uint32_t n_vocab, uint64_t *state)
{
    static const float temperatures[] = {0.0f, 0.7f, 1.0f, 1.0f, 2.5f, 0.05f};
    static const float top_ps[] = {1.0f, 0.9f, 0.5f, 0.99999f, 1e-6f};
    static const float min_ps[] = {0.0f, 0.0f, 0.05f, 0.5f, 1.0f};
    static const uint32_t top_ks[] = {0, 0, 1, 3, 40, 1000};
    *row = (struct k_sample_row){
        .temperature = temperatures[op_random(state) % 6],
        .top_p = top_ps[op_random(state) % 5],
        .min_p = min_ps[op_random(state) % 5],
        .top_k = top_ks[op_random(state) % 6],
        .repetition_penalty = op_random(state) % 2 ? 1.0f : 1.3f,
        .presence_penalty = op_random(state) % 2 ? 0.0f : 0.4f,
        .frequency_penalty = op_random(state) % 2 ? 0.0f : -0.3f,
        .counts = pool->counts,
        .biases = pool->biases,
        .mask = op_random(state) % 3 == 0 ? pool->mask : NULL,
        .seed = op_random(state),
        .position = (uint32_t)op_random(state),
        .choice = (uint32_t)(op_random(state) % 4),
        .n_logprobs = (int32_t)(op_random(state) % 22) - 1,
        .forced = op_random(state) % 5 ? -1 : (int64_t)(op_random(state) % n_vocab),
    };
    uint32_t ids[8];
    row->n_counts = ascending_ids(ids, (uint32_t)(op_random(state) % 8), n_vocab, state);
    for (uint32_t i = 0; i < row->n_counts; i++)
        pool->counts[i] = (struct k_token_count){ids[i], (uint32_t)(op_random(state) % 4)};
    row->n_biases = ascending_ids(ids, (uint32_t)(op_random(state) % 8), n_vocab, state);
    for (uint32_t i = 0; i < row->n_biases; i++)
        pool->biases[i] = (struct k_logit_bias){ids[i], op_random(state) % 4 ? op_random_value(state, VALUES_PLAIN) * 5
                                                                             : -INFINITY};
    for (uint32_t i = 0; i < (n_vocab + 31) / 32; i++)
        pool->mask[i] = (uint32_t)(op_random(state) | op_random(state));
}

/* The same request for every row except for the draw: for timing. */
static void plain_row(struct k_sample_row *row, enum op_sampling sampling, uint32_t index)
{
    *row = (struct k_sample_row){
        .temperature = sampling == SAMPLING_GREEDY ? 0.0f : 0.8f,
        .top_p = sampling == SAMPLING_TOP_P || sampling == SAMPLING_FULL ? 0.9f : 1.0f,
        .top_k = sampling == SAMPLING_FULL ? 50 : 0,
        .repetition_penalty = 1.0f,
        .seed = index,
        .n_logprobs = sampling == SAMPLING_FULL ? 5 : -1,
        .forced = -1,
    };
}

/* Makes logits of a few hundred distinct values, including -inf, so that ties are common. Every seventh row cannot
 * be sampled (NaN, +inf, nothing finite). */
static bool make_sample_rows(const struct op_case *c, struct op_data *d, uint64_t *state)
{
    uint32_t n_vocab = c->n_rows;
    size_t each = sizeof(struct row_pool) + ((size_t)n_vocab + 31) / 32 * sizeof(uint32_t);
    each = (each + 7) / 8 * 8;
    d->rows = calloc(c->n_tokens, sizeof *d->rows);
    d->pool = calloc(c->n_tokens, each);
    if (!d->rows || !d->pool)
        return false;
    for (uint32_t t = 0; t < c->n_tokens; t++) {
        random_row(&d->rows[t], (struct row_pool *)(void *)((char *)d->pool + t * each), n_vocab, state);
        float *z = d->x + (uint64_t)t * n_vocab;
        for (uint32_t i = 0; i < n_vocab; i++) {
            z[i] = t % 2 ? rintf(z[i] * 64) * 0.125f : z[i] * 8;
            if (op_random(state) % 50 == 0)
                z[i] = -INFINITY;
        }
        uint32_t at = (uint32_t)(op_random(state) % n_vocab);
        if (c->sampling != SAMPLING_MIXED) {
            plain_row(&d->rows[t], c->sampling, t);
            continue;
        }
        if (t % 21 == 6)
            z[at] = NAN;
        else if (t % 21 == 13)
            z[at] = INFINITY;
        for (uint32_t i = 0; t % 21 == 20 && i < n_vocab; i++)
            z[i] = -INFINITY;
    }
    return true;
}

/* ---- everything else ------------------------------------------------------------------------- */

static uint64_t block_elements(const struct op_case *c)
{
    return (uint64_t)c->n_kv_heads * c->head_dim * c->block_tokens;
}

static uint64_t block_bytes(const struct op_case *c)
{
    return k_kv_block_bytes(
        &(struct k_kv_shape){k_kv_format(c->dtype), c->n_kv_heads, c->head_dim, c->block_tokens, c->head_dim});
}

static bool make_kv(const struct op_case *c, struct op_data *d, uint64_t *state)
{
    uint64_t n = 0;
    for (uint32_t s = 0; s < op_n_seqs(c); s++) {
        d->kv_start[s] = (uint32_t)n;
        n += c->seqs[s].position + c->seqs[s].n_tokens;
    }
    if (op_has_byte_cache(c)) {
        uint64_t bytes = c->op == K_OP_KV_COPY ? c->n_rows * block_bytes(c) : n * c->n_kv_heads * c->head_dim;
        d->k = op_kv_bytes(bytes, c->dtype, state);
        d->v = op_kv_bytes(bytes, c->dtype, state);
        d->k_scales = op_kv_scales(n * c->n_kv_heads, c->dtype, state);
        d->v_scales = op_kv_scales(n * c->n_kv_heads, c->dtype, state);
        return d->k && d->v && d->k_scales && d->v_scales;
    }
    uint64_t elements = c->op == K_OP_KV_COPY ? c->n_rows * block_elements(c) : n * c->n_kv_heads * c->head_dim;
    d->k = random_stored(elements, c->dtype, state, VALUES_PLAIN);
    d->v = random_stored(elements, c->dtype, state, VALUES_PLAIN);
    return d->k && d->v;
}

static bool make_ids(const struct op_case *c, struct op_data *d, uint64_t *state)
{
    uint32_t n = c->op == K_OP_GATHER ? c->n_rows : op_n_tokens(c);
    d->ids = malloc((n ? n : 1) * sizeof *d->ids);
    for (uint32_t i = 0; d->ids && i < n; i++) {
        uint32_t r = (uint32_t)op_random(state);
        if (c->op == K_OP_ROPE_ANGLES)
            d->ids[i] = c->values == VALUES_WIDE ? r >> (6 + r % 16) : i * 97 % 4096;
        else
            d->ids[i] = r % (c->op == K_OP_GATHER ? c->n_tokens : c->n_rows);
    }
    return d->ids != NULL;
}

static bool make_frequencies(const struct op_case *c, struct op_data *d)
{
    d->vector = malloc((c->n_cols ? c->n_cols : 1) * sizeof *d->vector);
    for (uint32_t i = 0; d->vector && i < c->n_cols; i++)
        d->vector[i] = (float)pow(10000.0, -(double)i / c->n_cols);
    return d->vector != NULL;
}

/* Makes sinks below, among and above the scores. Every fifth head has a sink that changes nothing, and every seventh
 * one that leaves almost nothing of the values. */
static bool make_sinks(const struct op_case *c, struct op_data *d, uint64_t *state)
{
    d->vector = random_f32(c->n_q_heads, state, VALUES_PLAIN);
    for (uint32_t h = 0; d->vector && h < c->n_q_heads; h++)
        d->vector[h] = h % 5 == 4 ? -INFINITY : h % 7 == 2 ? 30.0f + d->vector[h] : 6.0f * d->vector[h];
    return d->vector != NULL;
}

/* Makes the weights, norms and biases. */
static bool make_parameters(const struct op_case *c, struct op_data *d, uint64_t *state)
{
    const bool is_norm = c->op == K_OP_RMSNORM || c->op == K_OP_LAYERNORM;
    const uint64_t n_tokens = op_n_tokens(c);
    struct op_case all = *c;
    all.n_rows = (uint32_t)op_all_rows(c);
    if (op_is_quantized(c) && !op_quant_make(&all, d, state))
        return false;
    if (!op_is_quantized(c) && (op_is_gemm(c) || c->op == K_OP_EMBED) &&
        !(d->weights = random_stored(op_all_rows(c) * c->n_cols, c->dtype, state, c->values)))
        return false;
    if ((c->op == K_OP_EMBED || c->op == K_OP_GATHER || c->op == K_OP_ROPE_ANGLES || c->op == K_OP_KV_COPY) &&
        !make_ids(c, d, state))
        return false;
    if (is_norm && !(d->vector = random_f32(c->n_cols, state, VALUES_PLAIN)))
        return false;
    if (c->op == K_OP_LAYERNORM && !(d->bias = random_f32(c->n_cols, state, VALUES_PLAIN)))
        return false;
    if (!op_moe_make(c, d, state))
        return false;
    if (((is_norm && c->extra) || (c->into && !c->moe)) &&
        !(d->add = random_f32(n_tokens * c->n_cols, state, c->values)))
        return false;
    return !op_is_gemm(c) || !c->extra || (d->vector = random_f32(op_all_rows(c), state, VALUES_PLAIN));
}

/* Makes what RoPE and attention read besides their tokens. */
static bool make_positions(const struct op_case *c, struct op_data *d, uint64_t *state)
{
    const uint64_t n_angles = (uint64_t)op_n_tokens(c) * (c->head_dim - c->n_fixed);
    if (c->op == K_OP_ROPE_ANGLES && !make_frequencies(c, d))
        return false;
    if (c->op == K_OP_ROPE_KV && n_angles > 0 && !(d->cos_sin = random_f32(n_angles, state, VALUES_PLAIN)))
        return false;
    if (c->op == K_OP_ROPE_KV && c->sinks > 0 && !(d->sink_cos_sin = random_f32(n_angles, state, VALUES_PLAIN)))
        return false;
    if (c->op == K_OP_ATTENTION && c->sinks > 0 &&
        !(d->sink_q = random_f32((uint64_t)op_n_tokens(c) * c->n_q_heads * c->head_dim, state, c->values)))
        return false;
    if (c->op == K_OP_ROPE_KV && c->extra &&
        (!(d->q_norm = random_f32(c->head_dim, state, VALUES_PLAIN)) ||
         !(d->k_norm = random_f32(c->head_dim, state, VALUES_PLAIN))))
        return false;
    if ((c->op == K_OP_ATTENTION || c->op == K_OP_KV_COPY) && !make_kv(c, d, state))
        return false;
    return c->op != K_OP_ATTENTION || !c->extra || make_sinks(c, d, state);
}

/* Gives the tokens the values that the case is about. */
static void change_tokens(const struct op_case *c, struct op_data *d, uint64_t *state)
{
    const uint64_t n_tokens = op_n_tokens(c);
    if (c->op == K_OP_ATTENTION && c->values == VALUES_SHARP) {
        for (uint64_t i = 0; i < n_tokens * d->x_width; i++)
            d->x[i] *= 100.0f;
    }
    for (uint64_t t = 0; c->values == VALUES_BROKEN && t < n_tokens; t++)
        if (t % 3 != 0)
            d->x[t * d->x_width + op_random(state) % d->x_width] = t % 3 == 1 ? NAN : INFINITY;
    for (uint64_t i = 0; c->values == VALUES_FULL && i < n_tokens * d->x_width; i++)
        d->x[i] = i / d->x_width % 2 ? -1.0f : 1.0f;
}

static bool make_all(const struct op_case *c, struct op_data *d)
{
    uint64_t state = c->op * 1000003u + c->n_rows * 31u + c->n_cols * 7u + c->n_tokens + c->head_dim * 131u + c->window;
    d->x_width = x_width(c);
    /* Combine tiny weights with activations of all sizes: products and sums are tiny, but not all 0. */
    bool tiny_weights = op_is_gemm(c) && c->values == VALUES_TINY;
    d->x = random_f32((uint64_t)op_n_tokens(c) * d->x_width, &state, tiny_weights ? VALUES_WIDE : c->values);
    if (!d->x || !make_parameters(c, d, &state) || !make_positions(c, d, &state))
        return false;
    change_tokens(c, d, &state);
    return c->op != K_OP_SAMPLE || make_sample_rows(c, d, &state);
}

int op_data_make(const struct op_case *c, struct op_data *d, struct quire_error *err)
{
    memset(d, 0, sizeof *d);
    if (make_all(c, d))
        return QUIRE_OK;
    op_data_free(d);
    return quire_fail(err, QUIRE_NO_MEMORY, "%s: no memory for the inputs", op_name(c));
}

void op_data_free(struct op_data *d)
{
    void *const all[] = {d->x,       d->add,     d->vector,       d->bias,     d->q_norm,  d->k_norm,
                         d->cos_sin, d->weights, d->sink_cos_sin, d->sink_q,   d->ids,     d->k,
                         d->v,       d->rows,    d->pool,         d->k_scales, d->v_scales};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    op_quant_free(d);
    op_moe_free(d);
    memset(d, 0, sizeof *d);
}

/* Without memory its bytes stay NULL. */
static void add_output(struct op_output *out, uint64_t token_bytes, uint32_t element_bytes)
{
    assert(out->n_outputs < OP_MAX_OUTPUTS);
    out->arrays[out->n_outputs++] = (struct op_array){calloc(out->n_tokens ? out->n_tokens : 1, token_bytes),
                                                      token_bytes, element_bytes};
}

int op_output_make(const struct op_case *c, struct op_output *out, struct quire_error *err)
{
    memset(out, 0, sizeof *out);
    out->n_tokens = c->op == K_OP_GATHER ? c->n_rows : c->op == K_OP_POOL ? op_n_seqs(c) : op_n_tokens(c);
    uint64_t head = c->head_dim;
    const uint32_t size = (uint32_t)k_dtype_bytes(c->dtype);
    switch (c->op) {
    case K_OP_GEMM: add_output(out, (uint64_t)c->n_rows * 4, 4); break;
    case K_OP_GEMM_GATED: add_output(out, (uint64_t)c->n_rows / 2 * 4, 4); break;
    case K_OP_MOE_GEMM: add_output(out, (uint64_t)c->moe->n_used * c->n_rows * 4, 4); break;
    case K_OP_MOE_GEMM_GATED: add_output(out, (uint64_t)c->moe->n_used * (c->n_rows / 2) * 4, 4); break;
    case K_OP_MOE_ROUTE:
        add_output(out, c->moe->n_used * UINT64_C(4), 4); /* weights */
        add_output(out, c->moe->n_used * UINT64_C(4), 4); /* experts */
        if (c->extra)
            add_output(out, 4, 4); /* weights of the shared expert */
        break;
    case K_OP_ROPE_ANGLES: add_output(out, (uint64_t)c->n_cols * 8, 4); break;
    case K_OP_ATTENTION: add_output(out, c->n_q_heads * head * 4, 4); break;
    case K_OP_SAMPLE: add_output(out, sizeof(struct k_sample_result), sizeof(struct k_sample_result)); break;
    case K_OP_RMSNORM:
        add_output(out, (uint64_t)x_width(c) * 4, 4);
        if (!c->n_rows)
            add_output(out, (uint64_t)c->n_cols * 4, 4); /* the residual stream */
        break;
    case K_OP_ROPE_KV:
        add_output(out, c->n_q_heads * head * 4, 4);
        add_output(out, c->n_kv_heads * op_cache_row_bytes(c), size);
        add_output(out, c->n_kv_heads * op_cache_row_bytes(c), size);
        if (c->sinks > 0)
            add_output(out, c->n_q_heads * head * 4, 4);
        break;
    case K_OP_KV_COPY:
        add_output(out, block_bytes(c), size);
        add_output(out, block_bytes(c), size);
        break;
    default: add_output(out, (uint64_t)c->n_cols * 4, 4); break;
    }
    for (uint32_t i = 0; i < out->n_outputs; i++)
        if (!out->arrays[i].bytes) {
            op_output_free(out);
            return quire_fail(err, QUIRE_NO_MEMORY, "%s: no memory for the outputs", op_name(c));
        }
    return QUIRE_OK;
}

void op_output_free(struct op_output *out)
{
    for (uint32_t i = 0; i < out->n_outputs; i++)
        free(out->arrays[i].bytes);
    memset(out, 0, sizeof *out);
}

uint32_t op_token_position(const struct op_case *c, uint32_t token, uint32_t *seq)
{
    uint32_t s = 0;
    while (token >= c->seqs[s].n_tokens)
        token -= c->seqs[s++].n_tokens;
    *seq = s;
    return c->seqs[s].position + token;
}
