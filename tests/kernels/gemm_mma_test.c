/* The mma form of GEMM beyond random numbers: every possible weight, activations at the limits of f16, rows without an
 * exponent, and every number of tokens with its own kernel. Compared bit for bit with the specification. */
#include "kernels/cuda/launch.h"
#include "kernels/open.h"
#include "kernels/planner.h"
#include "tests/kernels/page.h"
#include "tests/kernels/page_mma.h"
#include "tests/sample.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/isolated_tests.h"

static struct k_backend *b;

struct gemm {
    enum k_dtype dtype;
    uint32_t n_rows, n_cols, n_tokens, unit;
    uint32_t n_whole, first_col; /* of a rank's columns */
    uint16_t *w;
    float *x, *y;
    struct k_weight *weight;
    float *x_dev, *y_dev;
    void *workspace;
};

static void ok(int status, const struct quire_error *err)
{
    if (status != QUIRE_OK)
        print_message("%s\n", err->text);
    assert_int_equal(status, QUIRE_OK);
}

/* All zeros. */
static struct gemm new_gemm(enum k_dtype dtype, uint32_t n_rows, uint32_t n_cols, uint32_t n_tokens)
{
    struct gemm g = {.dtype = dtype, .n_rows = n_rows, .n_cols = n_cols, .n_tokens = n_tokens};
    struct quire_error err;
    struct k_plan_bytes bytes;
    const struct k_plan_dims dims = {.n_tokens = n_tokens, .max_gemm_cols = n_cols, .n_threads = 1};
    g.w = calloc((size_t)n_rows * n_cols, sizeof *g.w);
    g.x = calloc((size_t)n_tokens * n_cols, sizeof *g.x);
    g.y = calloc((size_t)n_tokens * n_rows, sizeof *g.y);
    assert_true(g.w && g.x && g.y);
    k_planner_find("cuda")->workspace(&dims, &bytes);
    ok(b->ops->alloc(b, ((uint64_t)n_tokens * n_cols + 1) * 4, (void **)&g.x_dev, &err), &err);
    ok(b->ops->alloc(b, (uint64_t)n_tokens * n_rows * 4, (void **)&g.y_dev, &err), &err);
    ok(b->ops->alloc(b, bytes.gemm, &g.workspace, &err), &err);
    return g;
}

static void free_gemm(struct gemm *g)
{
    if (g->weight)
        b->ops->weight_destroy(b, g->weight);
    b->ops->free(b, g->x_dev);
    b->ops->free(b, g->y_dev);
    b->ops->free(b, g->workspace);
    free(g->w);
    free(g->x);
    free(g->y);
}

/* Computes y of the first n_tokens tokens. x is `shift` floats after an aligned address. */
static void run(struct gemm *g, uint32_t n_tokens, uint32_t shift)
{
    struct quire_error err;
    if (!g->weight) {
        const struct k_weight_view view = k_plain_view(g->w, g->dtype, g->n_rows, g->n_cols, (uint64_t)g->n_cols * 2);
        ok(b->ops->weight_create(b, &view, 1, 1, &g->weight, &err), &err);
    }
    uint64_t x_bytes = (uint64_t)n_tokens * g->n_cols * 4, y_bytes = (uint64_t)n_tokens * g->n_rows * 4;
    ok(b->ops->copy_in(b, g->x_dev + shift, g->x, x_bytes, &err), &err);
    const struct k_gemm_args args = {.weight = g->weight,
                                     .x_dev = g->x_dev + shift,
                                     .y_dev = g->y_dev,
                                     .workspace_dev = g->workspace,
                                     .n_tokens = n_tokens,
                                     .unit = g->unit,
                                     .n_whole = g->n_whole,
                                     .first_col = g->first_col};
    ok(b->ops->gemm(b, &args, &err), &err);
    ok(b->ops->copy_out(b, g->y, g->y_dev, y_bytes, &err), &err);
}

static bool same(float a, float c)
{
    return memcmp(&a, &c, sizeof a) == 0 || (isnan(a) && isnan(c));
}

static void assert_page(const struct gemm *g, uint32_t n_tokens)
{
    for (uint32_t r = 0; r < g->n_rows; r++)
        for (uint32_t t = 0; t < n_tokens; t++)
            assert_true(same(g->y[(uint64_t)t * g->n_rows + r],
                             page_dot_mma((const unsigned char *)(g->w + (uint64_t)r * g->n_cols), g->dtype,
                                          g->x + (uint64_t)t * g->n_cols, g->n_cols, g->unit)));
}

static void fill(struct gemm *g, uint64_t seed)
{
    for (uint64_t i = 0; i < (uint64_t)g->n_rows * g->n_cols; i++) {
        float w = op_random_value(&seed, VALUES_PLAIN);
        g->w[i] = g->dtype == K_F16 ? page_f16_from_f32(w) : page_bf16_from_f32(w);
    }
    for (uint64_t i = 0; i < (uint64_t)g->n_tokens * g->n_cols; i++)
        g->x[i] = op_random_value(&seed, VALUES_PLAIN);
}

/* 3 chunks, or 8 segments, and an odd number of row tiles: a token's bits are the same with 1 to 70 tokens, and for any
 * address of x. */
static void test_every_number_of_tokens(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct gemm g = new_gemm(i ? K_F16 : K_BF16, 37, 1100, 70);
        g.unit = i ? 128 : 0;
        float want[70 * 37];
        fill(&g, 5);
        run(&g, 70, 0);
        assert_page(&g, 70);
        memcpy(want, g.y, sizeof want);
        for (uint32_t n = 1; n <= 70; n++) {
            run(&g, n, n % 2);
            assert_memory_equal(g.y, want, n * 37 * sizeof(float));
        }
        free_gemm(&g);
    }
}

/* Computes the contribution of columns [begin, end), by a rank that has only these columns. */
static void run_columns(const struct gemm *whole, uint32_t begin, uint32_t end, float *y)
{
    struct gemm g = new_gemm(whole->dtype, whole->n_rows, end - begin, whole->n_tokens);
    struct k_weight_view view = k_plain_view(whole->w + begin, whole->dtype, whole->n_rows, end - begin,
                                             (uint64_t)whole->n_cols * 2);
    struct quire_error err;
    view.whole = whole->w;
    view.whole_cols = whole->n_cols;
    ok(b->ops->weight_create(b, &view, 1, 1, &g.weight, &err), &err);
    g.unit = whole->unit;
    g.n_whole = whole->n_cols;
    g.first_col = begin;
    for (uint32_t t = 0; t < g.n_tokens; t++)
        memcpy(g.x + (uint64_t)t * g.n_cols, whole->x + (uint64_t)t * whole->n_cols + begin, g.n_cols * sizeof *g.x);
    run(&g, g.n_tokens, 0);
    memcpy(y, g.y, (size_t)g.n_tokens * g.n_rows * sizeof *y);
    free_gemm(&g);
}

/* Rows whose largest numbers are on one rank, 2^32 to 2^46 above the others: that rank's e applies to all ranks, and 2
 * and 4 ranks give the bits of one. Half of the tokens do not multiply the large numbers, and so show what happens to
 * the small ones. */
static void test_columns_of_ranks(void **state)
{
    (void)state;
    enum { ROWS = 20, COLS = 512, TOKENS = 40 };
    static const uint32_t counts[] = {3, TOKENS};
    static float part[4][TOKENS * ROWS];
    for (int i = 0; i < 2; i++) {
        struct gemm g = new_gemm(K_BF16, ROWS, COLS, counts[i]);
        const uint32_t n = counts[i] * ROWS;
        g.unit = COLS / 8;
        fill(&g, 11);
        for (uint32_t r = 0; r < ROWS; r++)
            for (uint32_t k = r % 2 * COLS / 2; k < (r % 2 + 1) * COLS / 2; k++)
                g.w[r * COLS + k] = page_bf16_from_f32(ldexpf(page_f32_from_bf16(g.w[r * COLS + k]), 32 + (int)r % 15));
        for (uint32_t t = 0; t < counts[i]; t++)
            memset(g.x + t * COLS + t % 2 * COLS / 2, 0, COLS / 2 * sizeof *g.x);
        run(&g, counts[i], 0);
        assert_page(&g, counts[i]);
        for (uint32_t n_ranks = 2; n_ranks <= 4; n_ranks *= 2) {
            for (uint32_t rank = 0; rank < n_ranks; rank++)
                run_columns(&g, rank * COLS / n_ranks, (rank + 1) * COLS / n_ranks, part[rank]);
            for (uint32_t apart = 1; apart < n_ranks; apart *= 2)
                for (uint32_t rank = 0; rank < n_ranks; rank += 2 * apart)
                    for (uint32_t k = 0; k < n; k++)
                        part[rank][k] += part[rank + apart][k];
            assert_memory_equal(part[0], g.y, n * sizeof(float));
        }
        free_gemm(&g);
    }
}

/* Shapes that are too slow for the table: tiles of 16, 32 and 128 rows without splitting the chunks, groups of token
 * tiles. */
static void test_wide_matrices(void **state)
{
    (void)state;
    static const struct op_case cases[] = {
        {.dtype = K_BF16, .n_tokens = 2, .n_rows = 17000, .n_cols = 1030},
        {.dtype = K_F16, .n_tokens = 9, .n_rows = 33000, .n_cols = 530},
        {.dtype = K_BF16, .n_tokens = 17, .n_rows = 33000, .n_cols = 20},
        {.dtype = K_BF16, .n_tokens = 34, .n_rows = 12300, .n_cols = 530},
        {.dtype = K_F16, .n_tokens = 1100, .n_rows = 1400, .n_cols = 20},
        {.dtype = K_BF16, .n_tokens = 600, .n_rows = 20, .n_cols = 40},
    };
    struct sample sample = sample_of(3);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (!sample_takes(&sample))
            continue;
        const struct op_case *c = &cases[i];
        struct gemm g = new_gemm(c->dtype, c->n_rows, c->n_cols, c->n_tokens);
        size_t n = (size_t)c->n_tokens * c->n_rows;
        float *page = malloc(n * sizeof *page);
        assert_non_null(page);
        fill(&g, i);
        const struct op_data d = {.x = g.x, .weights = (unsigned char *)g.w};
        page_gemm_mma(c, &d, page);
        run(&g, c->n_tokens, 0);
        assert_memory_equal(g.y, page, n * sizeof *page);
        free(page);
        free_gemm(&g);
    }
    sample_report(&sample, "wide matrices");
}

/* A row of one weight, times 1, gives the weight itself for every weight. */
static void test_every_weight(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct gemm g = new_gemm(i ? K_F16 : K_BF16, 65536, 1, 1);
        for (uint32_t h = 0; h < 65536; h++)
            g.w[h] = (uint16_t)h;
        g.x[0] = 1;
        run(&g, 1, 0);
        for (uint32_t h = 0; h < 65536; h++) {
            float w = i ? page_f32_from_f16((uint16_t)h) : page_f32_from_bf16((uint16_t)h);
            assert_true(g.y[h] == w || (isnan(g.y[h]) && isnan(w)));
        }
        free_gemm(&g);
    }
}

/* Weights far below their row's largest lose bits, and finally all bits; so do activations below f16's range. */
static void test_small_factors(void **state)
{
    (void)state;
    struct gemm g = new_gemm(K_BF16, 60, 2, 33);
    for (uint32_t r = 0; r < 60; r++) {
        g.w[2 * r] = page_bf16_from_f32(1);
        g.w[2 * r + 1] = page_bf16_from_f32(ldexpf(1.9921875f, -(int)r)); /* 8 bits */
    }
    for (uint32_t t = 0; t < 33; t++)
        g.x[2 * t + 1] = ldexpf(1, 10 - (int)t);
    run(&g, 33, 0);
    assert_page(&g, 33);
    /* 2^14 is 1: 2^-24 of f16 is 2^-38, and half of it is a tie to 0. */
    assert_true(g.y[31] == 1.9921875f * 0x1p-31f * 0x1p10f && g.y[32] != 1.9921875f * 0x1p-32f * 0x1p10f);
    assert_true(g.y[38] == 0x1p-37f * 0x1p10f && g.y[39] == 0x1p-38f * 0x1p10f && g.y[40] == 0);
    assert_true(g.y[30 * 60] == 1.9921875f * 0x1p-20f && g.y[31 * 60] == 0); /* x = 2^-20, 2^-21 */
    free_gemm(&g);
}

/* The largest finite activation, the smallest that is not, and NaN affect only their tokens. */
static void test_large_activations(void **state)
{
    (void)state;
    static const float values[] = {1048319.9375f, 1048320.0f, -1048320.0f, 3e38f, INFINITY, -INFINITY, NAN};
    for (uint32_t n_tokens = 9; n_tokens <= 45; n_tokens += 12) {
        struct gemm g = new_gemm(K_BF16, 20, 70, n_tokens);
        fill(&g, 6);
        for (uint32_t r = 0; r < 20; r++)
            g.w[70 * r + 69] = page_bf16_from_f32(1);
        for (uint32_t i = 0; i < 7; i++)
            g.x[(i + 1) * 70 + 69] = values[i];
        run(&g, n_tokens, 0);
        assert_page(&g, n_tokens);
        for (uint32_t t = 0; t < n_tokens; t++)
            for (uint32_t r = 0; r < 20; r++)
                assert_true((isfinite(g.y[t * 20 + r]) != 0) == (t < 2 || t > 7));
        free_gemm(&g);
    }
}

/* Rows of zeros, rows without finite numbers, and rows with one bad weight affect only their own outputs. */
static void test_bad_weights(void **state)
{
    (void)state;
    for (uint32_t n_tokens = 3; n_tokens <= 43; n_tokens += 20) {
        struct gemm g = new_gemm(K_BF16, 40, 30, n_tokens);
        fill(&g, 7);
        for (uint32_t k = 0; k < 30; k++) {
            g.w[30 * 3 + k] = 0;
            g.w[30 * 4 + k] = 0x7f80;
            g.w[30 * 5 + k] = 0x7fc0;
            g.w[30 * 6 + k] = 0x8001; /* the smallest denormal */
        }
        g.w[30 * 7 + 29] = 0xff80;
        g.w[30 * 17 + 2] = 0x7fc0;
        g.w[30 * 39 + 0] = 0x7f7f; /* the largest */
        run(&g, n_tokens, 0);
        assert_page(&g, n_tokens);
        for (uint32_t r = 0; r < 39; r++)
            assert_true((isfinite(g.y[r]) != 0) == (r != 4 && r != 5 && r != 7 && r != 17));
        free_gemm(&g);
    }
}

/* The final scaling overflows, or produces a denormal. */
static void test_scaling(void **state)
{
    (void)state;
    struct gemm g = new_gemm(K_BF16, 2, 600, 2);
    for (uint32_t k = 0; k < 600; k++) {
        g.w[k] = page_bf16_from_f32(0x1p127f);
        g.w[600 + k] = page_bf16_from_f32(k % 2 ? 0x1p-120f : -0x1.8p-120f);
        g.x[k] = k < 3 ? 0.75f : 0.0f;
        g.x[600 + k] = 0x1p-14f;
    }
    run(&g, 2, 0);
    assert_page(&g, 2);
    assert_true(isinf(g.y[0]) && fpclassify(g.y[3]) == FP_SUBNORMAL);
    free_gemm(&g);
}

/* ---- output only for GEMMs ---- */

struct producer {
    uint32_t n_cols, n_tokens; /* of its output */
    float *x_dev, *vector_dev, *out_dev;
    uint32_t *index_dev;
    void *workspace;
    struct k_weight *gate_up; /* [2 n_cols, 16] */
    const struct k_attention_args *attention; /* except for the destination */
};

static int by_gather(const struct producer *p, bool for_gemm, struct quire_error *err)
{
    const struct k_gather_args args = {.x_dev = p->x_dev,
                                       .index_dev = p->index_dev,
                                       .out_dev = p->out_dev,
                                       .n_rows = p->n_tokens,
                                       .n_cols = p->n_cols,
                                       .for_gemm = for_gemm};
    return b->ops->gather(b, &args, err);
}

static int by_rmsnorm(const struct producer *p, bool for_gemm, struct quire_error *err)
{
    const struct k_rmsnorm_args args = {.x_dev = p->x_dev,
                                        .weight_dev = p->vector_dev,
                                        .out_dev = p->out_dev,
                                        .n_tokens = p->n_tokens,
                                        .n_cols = p->n_cols,
                                        .for_gemm = for_gemm,
                                        .eps = 1e-6f};
    return b->ops->rmsnorm(b, &args, err);
}

static int by_gate_up(const struct producer *p, bool for_gemm, struct quire_error *err)
{
    const struct k_gemm_gated_args args = {
        .gemm = {.weight = p->gate_up, .x_dev = p->x_dev, .workspace_dev = p->workspace, .n_tokens = p->n_tokens},
        .out_dev = p->out_dev,
        .for_gemm = for_gemm};
    return b->ops->gemm_gated(b, &args, err);
}

static int by_attention(const struct producer *p, bool for_gemm, struct quire_error *err)
{
    struct k_attention_args args = *p->attention;
    args.out_dev = p->out_dev;
    args.for_gemm = for_gemm;
    return b->ops->attention(b, &args, err);
}

typedef int produce_fn(const struct producer *p, bool for_gemm, struct quire_error *err);

/* The buffer holds factors, in its first half, or floats, depending only on its width. */
static void assert_left(const float *floats, const void *left, uint64_t n, uint32_t n_cols)
{
    if (n_cols % 16 != 0) {
        assert_memory_equal(left, floats, n * 4);
        return;
    }
    const uint16_t *factors = left;
    for (uint64_t i = 0; i < n; i++) {
        uint16_t want = page_f16_from_f32(floats[i] * 0x1p-4f);
        assert_true(factors[i] == want || (isnan(floats[i]) && isnan(page_f32_from_f16(factors[i]))));
    }
    for (uint64_t i = 2 * n; i < 4 * n; i++)
        assert_int_equal(((const unsigned char *)left)[i], 0xee);
}

/* A GEMM of factors gives the same bits as a GEMM of the floats. */
static void check_pair(struct gemm *g, const struct producer *p, produce_fn *produce)
{
    struct quire_error err;
    uint64_t n = (uint64_t)p->n_tokens * p->n_cols, n_y = (uint64_t)p->n_tokens * g->n_rows;
    float *floats = malloc(n * 4), *left = malloc(n * 4), *want = malloc(n_y * 4);
    struct k_gemm_args args = {.weight = g->weight,
                               .x_dev = p->out_dev,
                               .y_dev = g->y_dev,
                               .workspace_dev = g->workspace,
                               .n_tokens = p->n_tokens,
                               .unit = p->n_cols >= 512 ? 64 : 0};
    ok(produce(p, false, &err), &err);
    ok(b->ops->gemm(b, &args, &err), &err);
    ok(b->ops->copy_out(b, floats, p->out_dev, n * 4, &err), &err);
    ok(b->ops->copy_out(b, want, g->y_dev, n_y * 4, &err), &err);
    memset(left, 0xee, n * 4);
    ok(b->ops->copy_in(b, p->out_dev, left, n * 4, &err), &err);
    args.x_for_gemm = true;
    ok(produce(p, true, &err), &err);
    ok(b->ops->gemm(b, &args, &err), &err);
    ok(b->ops->copy_out(b, left, p->out_dev, n * 4, &err), &err);
    ok(b->ops->copy_out(b, g->y, g->y_dev, n_y * 4, &err), &err);
    assert_left(floats, left, n, p->n_cols);
    for (uint64_t i = 0; i < n_y; i++)
        assert_true(same(g->y[i], want[i]));
    free(floats);
    free(left);
    free(want);
}

static void test_for_gemm(void **state)
{
    (void)state;
    static const uint32_t widths[] = {16, 528, 100, 521}, tokens[] = {1, 9, 20, 33, 70};
    static produce_fn *const producers[] = {by_gather, by_rmsnorm, by_gate_up};
    struct quire_error err;
    for (uint32_t w = 0; w < 4; w++) {
        uint32_t n_cols = widths[w];
        struct gemm g = new_gemm(K_BF16, 20, n_cols, 70), gate_up = new_gemm(K_BF16, 2 * n_cols, 16, 70);
        struct producer p = {.n_cols = n_cols, .workspace = gate_up.workspace};
        uint32_t index[70];
        fill(&g, w);
        fill(&gate_up, 9);
        g.x[3] = 3e38f, g.x[n_cols + 1] = NAN, g.x[2 * n_cols] = 1e-30f;
        run(&g, 70, 0); /* weight and x are on the device */
        run(&gate_up, 70, 0);
        for (uint32_t i = 0; i < 70; i++)
            index[i] = (i * 3 + 1) % 70;
        p.x_dev = g.x_dev, p.gate_up = gate_up.weight, p.vector_dev = g.x_dev + (uint64_t)5 * n_cols;
        ok(b->ops->alloc(b, sizeof index, (void **)&p.index_dev, &err), &err);
        ok(b->ops->alloc(b, (uint64_t)70 * n_cols * 4, (void **)&p.out_dev, &err), &err);
        ok(b->ops->copy_in(b, p.index_dev, index, sizeof index, &err), &err);
        for (uint32_t t = 0; t < 5; t++) {
            p.n_tokens = tokens[t];
            for (uint32_t i = 0; i < 3; i++)
                check_pair(&g, &p, producers[i]);
        }
        b->ops->free(b, p.index_dev);
        b->ops->free(b, p.out_dev);
        free_gemm(&g);
        free_gemm(&gate_up);
    }
}

static void *on_device(const void *host, uint64_t bytes)
{
    struct quire_error err;
    void *dev;
    ok(b->ops->alloc(b, bytes, &dev, &err), &err);
    if (host)
        ok(b->ops->copy_in(b, dev, host, bytes, &err), &err);
    return dev;
}

#define KV_TOKENS 1536u /* the size of the cache, which has one block */

/* One sequence, whose last tokens are in the step. */
struct attention_case {
    enum k_dtype dtype; /* of the cache */
    uint32_t n_q_heads, n_kv_heads, head_dim, n_tokens, position;
};

static void check_attention(const struct attention_case *c)
{
    struct quire_error err;
    struct k_plan_bytes bytes;
    const uint32_t table = 0, n_cols = c->n_q_heads * c->head_dim;
    const struct k_kv_shape kv = {k_format_of(c->dtype), c->n_kv_heads, c->head_dim, KV_TOKENS, c->head_dim};
    const struct k_attn_row row = {.n_tokens = c->n_tokens, .position = c->position};
    const struct k_plan_dims dims = {.n_tokens = c->n_tokens,
                                     .n_seqs = 1,
                                     .n_q_heads = c->n_q_heads,
                                     .max_model_len = KV_TOKENS,
                                     .n_kv_heads = c->n_kv_heads,
                                     .head_dim = c->head_dim,
                                     .n_threads = 1};
    uint64_t seed = 3, n_cache = (uint64_t)c->n_kv_heads * c->head_dim * KV_TOKENS,
             n_qkv = (uint64_t)c->n_tokens * (c->n_q_heads + 2 * c->n_kv_heads) * c->head_dim;
    float *qkv = malloc(n_qkv * 4), *cache = malloc(n_cache * 4);
    for (uint64_t i = 0; i < n_qkv; i++)
        qkv[i] = op_random_value(&seed, VALUES_PLAIN);
    for (uint64_t i = 0; i < n_cache; i++) {
        float x = op_random_value(&seed, VALUES_PLAIN);
        uint16_t half = page_f16_from_f32(x);
        c->dtype == K_F32 ? memcpy(cache + i, &x, 4) : memcpy((uint16_t *)(void *)cache + i, &half, 2);
    }
    k_planner_find("cuda")->workspace(&dims, &bytes);
    void *plan = calloc(1, bytes.attention_plan);
    const struct k_attention_plan_args planned = {&row, &kv, plan, 1, c->n_tokens, c->n_q_heads, 0, false};
    ok(b->ops->attention_plan(b, &planned, &err), &err);
    const struct k_kv_layer layer = {on_device(cache, n_cache * k_dtype_bytes(c->dtype)),
                                     on_device(cache, n_cache * k_dtype_bytes(c->dtype))};
    const struct k_attention_args attention = {.qkv_dev = on_device(qkv, n_qkv * 4),
                                               .rows = &row,
                                               .rows_dev = on_device(&row, sizeof row),
                                               .plan_dev = on_device(plan, bytes.attention_plan),
                                               .tables_dev = on_device(&table, sizeof table),
                                               .kv = &kv,
                                               .layer = &layer,
                                               .workspace_dev = on_device(NULL, bytes.attention),
                                               .n_rows = 1,
                                               .n_tokens = c->n_tokens,
                                               .n_q_heads = c->n_q_heads,
                                               .scale = 0.25f};
    struct gemm g = new_gemm(K_F16, 20, n_cols, c->n_tokens);
    fill(&g, 1);
    run(&g, c->n_tokens, 0);
    const struct producer p = {.n_cols = n_cols,
                               .n_tokens = c->n_tokens,
                               .out_dev = on_device(NULL, (uint64_t)c->n_tokens * n_cols * 4),
                               .attention = &attention};
    check_pair(&g, &p, by_attention);
    const void *const all[] = {layer.k_dev,        layer.v_dev,          attention.qkv_dev, attention.rows_dev,
                               attention.plan_dev, attention.tables_dev, p.out_dev,         attention.workspace_dev};
    for (uint32_t i = 0; i < sizeof all / sizeof all[0]; i++)
        b->ops->free(b, (void *)(uintptr_t)all[i]);
    free_gemm(&g);
    free(plan);
    free(qkv);
    free(cache);
}

/* Each code path that writes attention's output: query tiles of few rows and of many, partials of several blocks, one
 * warp per head, and the lane form, which serves an F32 cache while GEMMs use the mma form. */
static void test_attention_for_gemm(void **state)
{
    (void)state;
    static const struct attention_case cases[] = {
        {K_F16, 3, 1, 16, 1, 40}, {K_F16, 6, 2, 48, 20, 70}, {K_F16, 2, 1, 16, 1, 1500},
        {K_F16, 1, 1, 256, 2, 7}, {K_F32, 3, 1, 16, 2, 70},
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_attention(&cases[i]);
}

#ifdef TEST_OF_LIBRARY /* on the emulator these would take hours */
/* GEMMs of a model's size, as floats and, gated, as factors. All tokens in one call give the bits of calls of 64 tokens,
 * which another kernel computes. NaN fills each output first. */
static void check_many_tokens(uint32_t n_rows, uint32_t n_cols, uint32_t n_tokens, uint32_t unit, bool is_gated)
{
    struct gemm g = new_gemm(K_BF16, n_rows, n_cols, n_tokens);
    struct quire_error err;
    const uint32_t n_y = is_gated ? n_rows / 2 : n_rows;
    const uint64_t bytes = (uint64_t)n_tokens * n_y * 4;
    g.unit = unit;
    fill(&g, 12);
    run(&g, 1, 0); /* the weight is on the device */
    ok(b->ops->copy_in(b, g.x_dev, g.x, (uint64_t)n_tokens * n_cols * 4, &err), &err);
    float *bias_dev, *want = malloc(bytes);
    ok(b->ops->alloc(b, n_rows * UINT64_C(4), (void **)&bias_dev, &err), &err);
    ok(b->ops->copy_in(b, bias_dev, g.x, n_rows * UINT64_C(4), &err), &err);
    for (int form = 0; form < (is_gated ? 2 : 1); form++) {
        for (int i = 0; i < 2; i++) {
            memset(g.y, 0xff, bytes);
            ok(b->ops->copy_in(b, g.y_dev, g.y, bytes, &err), &err);
            const uint32_t most = i ? n_tokens : 64;
            for (uint32_t t = 0; t < n_tokens; t += most) {
                const uint64_t at = (uint64_t)t * n_y;
                float *out = form ? g.y_dev + at / 2 : g.y_dev + at; /* factors are of 2 bytes */
                const struct k_gemm_args a = {.weight = g.weight,
                                              .x_dev = g.x_dev + (uint64_t)t * n_cols,
                                              .bias_dev = bias_dev,
                                              .y_dev = is_gated ? NULL : out,
                                              .workspace_dev = g.workspace,
                                              .n_tokens = n_tokens - t < most ? n_tokens - t : most,
                                              .unit = unit};
                const struct k_gemm_gated_args gated = {.gemm = a, .out_dev = out, .for_gemm = form != 0};
                ok(is_gated ? b->ops->gemm_gated(b, &gated, &err) : b->ops->gemm(b, &a, &err), &err);
            }
            ok(b->ops->copy_out(b, i ? g.y : want, g.y_dev, bytes, &err), &err);
        }
        assert_memory_equal(g.y, want, bytes);
    }
    b->ops->free(b, bias_dev);
    free(want);
    free_gemm(&g);
}

static void test_many_tokens(void **state)
{
    (void)state;
    check_many_tokens(6144, 4096, 2048, 0, false);
    check_many_tokens(6144, 4096, 509, 0, false);
    check_many_tokens(4099, 1100, 1000, 0, false);
    check_many_tokens(4096, 4096, 2048, 128, false);
    check_many_tokens(4096, 4096, 512, 128, false);
    check_many_tokens(1031, 14336, 1500, 256, false);
    check_many_tokens(896, 4864, 300, 256, false);
    check_many_tokens(2048, 2560, 700, 80, false);
    check_many_tokens(14336, 4096, 2048, 0, true);
    check_many_tokens(14336, 1030, 513, 0, true);
    check_many_tokens(1632, 896, 131, 0, true);
}
#else /* the library does not export its launches */
/* The gate after NVIDIA's library; our own GEMMs include it. As floats and as factors, by four columns and by one. */
static void check_gate(enum k_gate_kind kind)
{
    enum { N = 48, T = 3 };
    struct quire_error err;
    uint64_t seed = 8;
    float gate_up[2 * N * T], want[N * T], left[N * T];
    for (uint32_t i = 0; i < 2 * N * T; i++)
        gate_up[i] = i == 5 ? NAN : i == 6 ? 3e38f : op_random_value(&seed, VALUES_WIDE);
    for (uint32_t t = 0; t < T; t++)
        page_gate((struct k_gate){kind, 2.0f}, gate_up + 2 * N * t, N, want + N * t);
    float *from = on_device(NULL, sizeof gate_up + 4), *to = on_device(NULL, sizeof left);
    for (uint32_t i = 0; i < 4; i++) {
        const struct cuda_gated gated = {to, i % 2 != 0, {kind, 2.0f}};
        memset(left, 0xee, sizeof left);
        ok(b->ops->copy_in(b, from + i / 2, gate_up, sizeof gate_up, &err), &err);
        ok(b->ops->copy_in(b, to, left, sizeof left, &err), &err);
        assert_int_equal(launch_gate(cuda_of(b)->stream, from + i / 2, &gated, T, N), cudaSuccess);
        ok(b->ops->copy_out(b, left, to, sizeof left, &err), &err);
        if (gated.as_factors)
            assert_left(want, left, N * T, N);
        for (uint32_t k = 0; k < N * T && !gated.as_factors; k++)
            assert_true(same(left[k], want[k]));
    }
    b->ops->free(b, from);
    b->ops->free(b, to);
}

static void test_gate(void **state)
{
    (void)state;
    check_gate(K_GATE_SILU);
    check_gate(K_GATE_GELU_TANH);
    check_gate(K_GATE_CLAMPED);
}
#endif

int main(void)
{
    const char *why;
    struct quire_error err;
    const struct k_backend_options options = {.device = "cuda", .n_threads = 1, .form = K_FORM_MMA};
    if (k_backend_open(&options, &b, &why, &err) != QUIRE_OK) {
        printf("cannot open backend cuda: %s\n", err.text);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_number_of_tokens),
        cmocka_unit_test(test_columns_of_ranks),
        cmocka_unit_test(test_wide_matrices),
        cmocka_unit_test(test_every_weight),
        cmocka_unit_test(test_small_factors),
        cmocka_unit_test(test_large_activations),
        cmocka_unit_test(test_bad_weights),
        cmocka_unit_test(test_scaling),
        cmocka_unit_test(test_for_gemm),
        cmocka_unit_test(test_attention_for_gemm),
#ifdef TEST_OF_LIBRARY
        cmocka_unit_test(test_many_tokens),
#else
        cmocka_unit_test(test_gate),
#endif
    };
    int n_failed = RUN_ISOLATED(tests, NULL, NULL);
    b->ops->close(b);
    return n_failed;
}
