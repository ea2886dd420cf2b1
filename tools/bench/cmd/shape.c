#include "tools/bench/cmd/shape.h"

#include "kernels/quant.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_NUMBER (1u << 24)
#define MAX_ELEMENTS (1ull << 33) /* of one operand: 16 GiB of float16 */

/* The parts of a shape that an operation has. */
enum { TOKENS = 1, ROWS = 2, COLS = 4, HEADS = 8, SEQS = 16, DTYPE = 32, FORM = 64, SAMPLING = 128, EXPERTS = 256 };
static const unsigned parts_of[K_N_OPERATIONS] = {
                                                   /* 0: an operation without cases */
    [K_OP_GEMM] = TOKENS | ROWS | COLS | DTYPE | FORM,
    [K_OP_GEMM_GATED] = TOKENS | ROWS | COLS | DTYPE | FORM,
    [K_OP_MOE_ROUTE] = TOKENS | COLS | EXPERTS,
    [K_OP_MOE_GEMM] = TOKENS | ROWS | COLS | DTYPE | FORM | EXPERTS,
    [K_OP_MOE_GEMM_GATED] = TOKENS | ROWS | COLS | DTYPE | FORM | EXPERTS,
    [K_OP_MOE_COMBINE] = TOKENS | COLS | EXPERTS,
    [K_OP_ATTENTION] = HEADS | SEQS | DTYPE | FORM,
    [K_OP_ROPE_KV] = HEADS | SEQS | DTYPE,
    [K_OP_EMBED] = TOKENS | ROWS | COLS | DTYPE,
    [K_OP_RMSNORM] = TOKENS | COLS,
    [K_OP_LAYERNORM] = TOKENS | COLS,
    [K_OP_ACTIVATE] = TOKENS | COLS,
    [K_OP_POOL] = SEQS | COLS,
    [K_OP_ROPE_ANGLES] = TOKENS | COLS,
    [K_OP_GATHER] = TOKENS | ROWS | COLS,
    [K_OP_SAMPLE] = TOKENS | ROWS | SAMPLING,
    [K_OP_KV_COPY] = TOKENS | ROWS | HEADS | DTYPE,
};

static int find_op(const char *name, enum k_operation *out, struct quire_error *err)
{
    for (int op = 0; op < K_N_OPERATIONS; op++) {
        if (parts_of[op] != 0 && strcmp(k_operation_name((enum k_operation)op), name) == 0) {
            *out = (enum k_operation)op;
            return QUIRE_OK;
        }
    }
    return quire_fail(err, QUIRE_INVALID, "--op %.32s: must be one of" BENCH_SHAPE_OPS, name);
}

/* Reads digits at *text and moves *text behind them. Returns false without digits, or if the number exceeds every
 * shape. */
static bool take_number(const char **text, uint32_t *out)
{
    uint64_t n = 0;
    if (!isdigit((unsigned char)**text))
        return false;
    for (; isdigit((unsigned char)**text) && n <= MAX_NUMBER; ++*text)
        n = n * 10 + (uint64_t)(**text - '0');
    *out = (uint32_t)n;
    return n <= MAX_NUMBER;
}

static bool take(const char **text, char c)
{
    if (**text != c)
        return false;
    ++*text;
    return true;
}

static bool parse_tokens(const char *text, uint32_t out[BENCH_SHAPE_MAX_CASES], uint32_t *n)
{
    *n = 0;
    do {
        if (*n == BENCH_SHAPE_MAX_CASES || !take_number(&text, &out[*n]) || out[*n] == 0)
            return false;
        ++*n;
    } while (take(&text, ','));
    return *text == '\0';
}

static bool parse_heads(const char *text, struct op_case *c)
{
    if (!take_number(&text, &c->n_q_heads))
        return false;
    c->n_kv_heads = c->n_q_heads;
    if (take(&text, '/') && !take_number(&text, &c->n_kv_heads))
        return false;
    return *text == '\0' && c->n_kv_heads > 0 && c->n_q_heads > 0 && c->n_q_heads % c->n_kv_heads == 0;
}

static bool parse_experts(const char *text, struct op_moe *moe)
{
    return take_number(&text, &moe->n_experts) && take(&text, '/') && take_number(&text, &moe->n_used) &&
           *text == '\0' && moe->n_experts <= K_MOE_MAX_EXPERTS && moe->n_used > 0 && moe->n_used <= K_MOE_MAX_USED &&
           moe->n_used <= moe->n_experts;
}

static bool parse_seqs(const char *text, struct op_case *c)
{
    uint32_t n = 0, count;
    do {
        struct op_seq seq;
        if (!take_number(&text, &count) || !take(&text, 'x') || !take_number(&text, &seq.n_tokens) ||
            !take(&text, '@') || !take_number(&text, &seq.position) || seq.n_tokens == 0 || count == 0 ||
            count > OP_MAX_SEQS - n)
            return false;
        while (count-- > 0)
            c->seqs[n++] = seq;
    } while (take(&text, ','));
    return *text == '\0';
}

static bool parse_dtype(const char *text, enum k_dtype *out)
{
    for (int d = K_F32; d <= K_BF16; d++) {
        if (strcmp(text, k_dtype_name((enum k_dtype)d)) == 0) {
            *out = (enum k_dtype)d;
            return true;
        }
    }
    return false;
}

/* "q4_0", "Q4_K"; "int4", "int8" with a scale per row, "int4/128" per this many columns; "float8_e4m3/128" in the same
 * way. */
static bool parse_quantized(const char *text, struct k_format *out)
{
    const size_t n = strcspn(text, "/");
    uint32_t group = 0;
    for (int p = 0; p < K_N_PACKINGS; p++) {
        const struct k_blocks *blocks = k_blocks_of((enum k_packing)p);
        if (blocks && strcasecmp(text, blocks->name) == 0) {
            *out = k_format_of_blocks((enum k_packing)p);
            return true;
        }
    }
    const char *at = text + n + 1;
    if (text[n] == '/' && (!take_number(&at, &group) || *at != '\0'))
        return false;
    const struct k_format planes[] = {
        k_format_of_planes(K_INT, 4, group, K_F16), k_format_of_planes(K_INT, 8, group, K_F32),
        k_format_of_planes(K_E4M3, 8, group, K_BF16), k_format_of_planes(K_E5M2, 8, group, K_BF16)};
    for (size_t i = 0; i < sizeof planes / sizeof planes[0]; i++) {
        const char *name = k_format_name(planes[i]);
        if (strlen(name) == n && memcmp(name, text, n) == 0 && k_format_is_quantized(planes[i])) {
            *out = planes[i];
            return true;
        }
    }
    return false;
}

static bool parse_cache(const char *text, enum k_dtype *out)
{
    static const enum k_dtype kinds[] = {K_F32, K_F16, K_INT, K_E4M3, K_E5M2};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(text, k_format_name(k_kv_format(kinds[i]))) == 0) {
            *out = kinds[i];
            return true;
        }
    }
    return false;
}

static bool parse_weights(const char *text, struct op_case *c)
{
    const struct k_blocks *blocks;
    if (parse_dtype(text, &c->dtype))
        return true;
    if (!parse_quantized(text, &c->format))
        return false;
    blocks = k_blocks_of(c->format.packing);
    return !blocks || c->n_cols % blocks->columns == 0;
}

static bool parse_form(const char *text, enum k_gemm_form *out)
{
    static const char *const names[] = {[K_FORM_LANE] = "lane",
                                        [K_FORM_TILE] = "tile",
                                        [K_FORM_TILE_BF16] = "tile-bf16",
                                        [K_FORM_MMA] = "mma",
                                        [K_FORM_INT8] = "int8"};
    for (int f = 0; f < K_N_FORMS; f++) {
        if (strcmp(text, names[f]) == 0) {
            *out = (enum k_gemm_form)f;
            return true;
        }
    }
    return false;
}

static bool parse_sampling(const char *text, enum op_sampling *out)
{
    for (int s = SAMPLING_MIXED + 1; s < N_SAMPLINGS; s++) {
        if (strcmp(text, op_sampling_name((enum op_sampling)s)) == 0) {
            *out = (enum op_sampling)s;
            return true;
        }
    }
    return false;
}

static int check_heads(const struct bench_shape *s, struct op_case *c, struct quire_error *err)
{
    if (!s->heads || !parse_heads(s->heads, c))
        return quire_fail(err, QUIRE_INVALID, "--heads: must be Q/KV with Q a multiple of KV, such as 32/8");
    if (s->head_dim == 0 || s->head_dim % 16 != 0 || s->head_dim > 256)
        return quire_fail(err, QUIRE_INVALID, "--head-dim: must be a multiple of 16, at most 256");
    c->head_dim = s->head_dim;
    c->block_tokens = s->block_tokens ? s->block_tokens : 16;
    c->window = s->window;
    if (c->op == K_OP_KV_COPY)
        c->n_q_heads = 0;
    return QUIRE_OK;
}

static uint64_t largest_operand(const struct op_case *c)
{
    uint64_t positions = 0, heads = (uint64_t)c->n_kv_heads * c->head_dim;
    for (uint32_t s = 0; s < op_n_seqs(c); s++)
        positions += c->seqs[s].position + c->seqs[s].n_tokens;
    uint64_t of_cache = c->op == K_OP_KV_COPY ? c->n_rows * heads * c->block_tokens : positions * heads;
    uint64_t of_weight = op_all_rows(c) * (c->n_cols ? c->n_cols : c->n_tokens);
    uint64_t of_tokens = (uint64_t)op_n_tokens(c) * (c->moe ? c->moe->n_used : 1) *
                         (c->n_cols + c->n_rows + (c->n_q_heads + 2ull * c->n_kv_heads) * c->head_dim);
    uint64_t most = of_cache > of_weight ? of_cache : of_weight;
    return most > of_tokens ? most : of_tokens;
}

static int check_rest(const struct bench_shape *s, unsigned needs, struct op_case *c, struct op_moe *moe,
                      struct quire_error *err)
{
    c->n_rows = s->n_rows;
    c->n_cols = s->n_cols;
    c->dtype = K_F16;
    c->form = needs & FORM ? K_FORM_AUTO : K_FORM_LANE;
    c->sampling = needs & SAMPLING ? SAMPLING_FULL : SAMPLING_MIXED;
    bool is_cache = op_has_cache(c);
    if (!!(needs & ROWS) != (s->n_rows > 0))
        return quire_fail(err, QUIRE_INVALID, "--rows: %s", needs & ROWS ? "is missing" : "this operation has no rows");
    if (!!(needs & COLS) != (s->n_cols > 0))
        return quire_fail(err, QUIRE_INVALID, "--cols: %s",
                          needs & COLS ? "is missing" : "this operation has no columns");
    if ((c->op == K_OP_GEMM_GATED || c->op == K_OP_MOE_GEMM_GATED) && s->n_rows % 2 != 0)
        return quire_fail(err, QUIRE_INVALID, "--rows %u: must be even, because gate and up have equal numbers",
                          s->n_rows);
    c->unit = s->unit;
    const bool has_segments = c->op == K_OP_GEMM || c->op == K_OP_MOE_GEMM;
    if (s->unit > 0 && (!has_segments || s->unit % 16 != 0))
        return quire_fail(err, QUIRE_INVALID, "--unit: must be %s",
                          has_segments ? "a multiple of 16" : "absent, because this operation sums in one segment");
    if (needs & EXPERTS ? !s->experts || !parse_experts(s->experts, moe) : s->experts != NULL)
        return quire_fail(err, QUIRE_INVALID, "--experts: must be %s",
                          needs & EXPERTS ? "E/USED, such as 64/8, of at most 1024 experts and 32 used"
                                          : "absent, because this operation has no experts");
    moe->per_choice = c->op == K_OP_MOE_GEMM; /* as a model's last matrix */
    c->moe = needs & EXPERTS ? moe : NULL;
    bool is_read = s->dtype && (is_cache ? parse_cache(s->dtype, &c->dtype) : parse_weights(s->dtype, c));
    if (s->dtype && (!(needs & DTYPE) || !is_read))
        return quire_fail(err, QUIRE_INVALID, "--dtype: must be %s",
                          !(needs & DTYPE) ? "absent, because this operation is in float32"
                          : is_cache       ? "float32, float16, int8, float8_e4m3 or float8_e5m2 for a KV cache"
                                           : "float32, float16, bfloat16, one of GGUF's such as q4_0 for columns of "
                                             "whole blocks, or int4, int8, float8_e4m3 or float8_e5m2, with /GROUP");
    if (s->form && (!(needs & FORM) || !parse_form(s->form, &c->form)))
        return quire_fail(err, QUIRE_INVALID, "--form: must be %s",
                          needs & FORM ? "lane, tile, tile-bf16, mma or int8"
                                       : "absent, because this operation has one form");
    if (s->sampling && (!(needs & SAMPLING) || !parse_sampling(s->sampling, &c->sampling)))
        return quire_fail(err, QUIRE_INVALID, "--sampling: must be %s",
                          needs & SAMPLING ? "greedy, temperature, top_p or full"
                                           : "absent, because it belongs to the operation sample");
    if (needs & HEADS ? check_heads(s, c, err) != QUIRE_OK : s->heads || s->head_dim || s->block_tokens)
        return needs & HEADS ? QUIRE_INVALID
                             : quire_fail(err, QUIRE_INVALID,
                                          "--heads, --head-dim and --block-tokens: this operation has no heads");
    if (needs & SEQS ? !s->seqs || !parse_seqs(s->seqs, c) : s->seqs != NULL)
        return quire_fail(err, QUIRE_INVALID, "--seqs: must be %s",
                          needs & SEQS ? "COUNTxTOKENS@POSITION, ... of at most 64 sequences, such as 64x1@4096"
                                       : "absent, because this operation has no sequences");
    if (s->window && c->op != K_OP_ATTENTION)
        return quire_fail(err, QUIRE_INVALID, "--window: only attention has a window");
    return QUIRE_OK;
}

int bench_shape_cases(const struct bench_shape *shape, struct op_moe *moe, struct bench_shape_cases *out,
                      struct quire_error *err)
{
    struct op_case c = {0};
    uint32_t tokens[BENCH_SHAPE_MAX_CASES] = {0};
    int status = find_op(shape->op, &c.op, err);
    if (status != QUIRE_OK)
        return status;
    unsigned needs = parts_of[c.op];
    c.extra = c.op == K_OP_RMSNORM; /* with the residual, like nearly all of a model's */
    status = check_rest(shape, needs, &c, moe, err);
    if (status != QUIRE_OK)
        return status;
    out->n = 1;
    if (needs & TOKENS ? !shape->tokens || !parse_tokens(shape->tokens, tokens, &out->n) : shape->tokens != NULL)
        return quire_fail(err, QUIRE_INVALID, "--tokens: must be %s",
                          needs & TOKENS ? "a number or several, such as 1,8,64"
                                         : "absent, because --seqs sets the number of tokens");
    for (uint32_t i = 0; i < out->n; i++) {
        out->cases[i] = c;
        out->cases[i].n_tokens = tokens[i];
        if (c.op == K_OP_KV_COPY && tokens[i] > c.n_rows)
            return quire_fail(err, QUIRE_INVALID, "--tokens %u: more blocks than --rows %u", tokens[i], c.n_rows);
        if (largest_operand(&out->cases[i]) > MAX_ELEMENTS)
            return quire_fail(err, QUIRE_INVALID, "--op %s: an operand has more than 2^33 numbers", shape->op);
    }
    return QUIRE_OK;
}
