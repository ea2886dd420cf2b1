/* Tests of a backend beyond the table of cases: operations in sequence without a wait, an arena in host memory, padding
 * rows and tokens, empty calls, rejected ids and shapes.
 *
 * kernels_step_test [BACKEND] */
#include "kernels/args/attention.h"
#include "kernels/args/gemm.h"
#include "kernels/args/kv_copy.h"
#include "kernels/args/norm.h"
#include "kernels/args/rope.h"
#include "kernels/args/rows.h"
#include "kernels/backend.h"
#include "kernels/format.h"
#include "kernels/gemm_form.h"
#include "kernels/kv.h"
#include "kernels/open.h"
#include "kernels/planner.h"
#include "kernels/weight.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/isolated_tests.h"

#define N_THREADS 2

static const char *device = "ref";
static struct k_backend *b;
static struct quire_error err;

#define OK(call) \
    do { \
        err.text[0] = '\0'; \
        int status_ = (call); \
        if (status_ != QUIRE_OK) \
            fail_msg("%s", err.text); \
    } while (0)

static void *on_device(const void *host, uint64_t bytes)
{
    void *dev;
    OK(b->ops->alloc(b, bytes, &dev, &err));
    if (host)
        OK(b->ops->copy_in(b, dev, host, bytes, &err));
    return dev;
}

static void fetch(void *host, const void *dev, uint64_t bytes)
{
    uint64_t ticket;
    OK(b->ops->fence(b, &ticket, &err));
    OK(b->ops->wait(b, ticket, &err));
    OK(b->ops->copy_out(b, host, dev, bytes, &err));
}

/* Returns a deterministic value within ±1. */
static float value(uint32_t i)
{
    return (float)(int32_t)(i * 2654435761u + 12345u) * 0x1p-31f;
}

/* ---- tokens ------------------------------------------------------------------------------------ */

/* Sampled rows go to tokens anywhere in the step. The other tokens keep their ids. */
static void test_place_tokens(void **state)
{
    (void)state;
    enum { N_TOKENS = 1000, N = 300 };
    static uint32_t ids[N_TOKENS], sampled[N], got[N_TOKENS];
    static struct k_token_source sources[N];
    for (uint32_t t = 0; t < N_TOKENS; t++)
        ids[t] = 7000 + t;
    for (uint32_t i = 0; i < N; i++) {
        sampled[i] = i * 31 + 5;
        sources[i] = (struct k_token_source){(i * 7 + 3) % N_TOKENS, (i * 11) % N};
    }
    void *ids_dev = on_device(ids, sizeof ids), *sampled_dev = on_device(sampled, sizeof sampled);
    void *sources_dev = on_device(sources, sizeof sources);
    for (uint32_t n = 0; n <= N; n += N / 2) {
        OK(b->ops->place_tokens(b, &(struct k_place_tokens_args){ids_dev, sampled_dev, sources_dev, n}, &err));
        for (uint32_t i = 0; i < n; i++)
            ids[sources[i].token] = sampled[sources[i].row];
        fetch(got, ids_dev, sizeof got);
        assert_memory_equal(got, ids, sizeof got);
    }
    b->ops->free(b, ids_dev);
    b->ops->free(b, sampled_dev);
    b->ops->free(b, sources_dev);
}

/* On host memory an id that is not a row of the table is rejected. A device does not check: the token's activations
 * become NaN, which ends its request, and the others are correct. */
static void test_embed_of_no_row(void **state)
{
    (void)state;
    enum { N_ROWS = 9, N_COLS = 12, N_TOKENS = 4 };
    static const uint32_t ids[N_TOKENS] = {3, N_ROWS, 8, UINT32_MAX};
    float table[N_ROWS * N_COLS], got[N_TOKENS * N_COLS];
    for (uint32_t i = 0; i < N_ROWS * N_COLS; i++)
        table[i] = value(i);
    struct k_weight *weight;
    const struct k_weight_view view = k_plain_view(table, K_F32, N_ROWS, N_COLS, N_COLS * sizeof(float));
    OK(b->ops->weight_create(b, &view, 1, 1, &weight, &err));
    void *ids_dev = on_device(ids, sizeof ids), *out_dev = on_device(NULL, sizeof got);
    const struct k_embed_args args = {.table = weight, .ids_dev = ids_dev, .out_dev = out_dev, .n_tokens = N_TOKENS};
    if (!b->ops->memory) {
        assert_int_equal(b->ops->embed(b, &args, &err), QUIRE_INVALID);
    } else {
        OK(b->ops->embed(b, &args, &err));
        fetch(got, out_dev, sizeof got);
        for (uint32_t t = 0; t < N_TOKENS; t += 2)
            assert_memory_equal(got + t * N_COLS, table + ids[t] * N_COLS, N_COLS * sizeof(float));
        for (uint32_t k = 0; k < N_COLS; k++)
            assert_true(isnan(got[N_COLS + k]) && isnan(got[3 * N_COLS + k]));
    }
    b->ops->free(b, ids_dev);
    b->ops->free(b, out_dev);
    b->ops->weight_destroy(b, weight);
}

/* ---- attention --------------------------------------------------------------------------------- */

enum {
    HEAD_DIM = 32,
    Q_HEADS = 2,
    BLOCK_TOKENS = 5,
    N_BLOCKS = 40,
    N_TOKENS = 7,
    N_Q = N_TOKENS * (Q_HEADS + 2) * HEAD_DIM
};
#define MAX_ROWS 8u

/* Tokens [0, 3) and [3, 5) belong to two sequences, token 5 to no sequence and token 6 to a third. Their outputs do not
 * depend on padding rows, anywhere in the list, and token 5's output stays unchanged. */
static void attention_of_rows(const struct k_attn_row *rows, uint32_t n_rows, float *out)
{
    static const struct k_kv_shape kv = {K_FORMAT_F32, 1, HEAD_DIM, BLOCK_TOKENS, HEAD_DIM};
    enum { CACHE = N_BLOCKS * BLOCK_TOKENS * HEAD_DIM, OUT = N_TOKENS * Q_HEADS * HEAD_DIM };
    static float cache[CACHE], qkv[N_Q];
    uint32_t tables[N_BLOCKS];
    for (uint32_t i = 0; i < CACHE; i++)
        cache[i] = value(i);
    for (uint32_t i = 0; i < N_Q; i++)
        qkv[i] = value(i + 77777) * 3;
    for (uint32_t i = 0; i < N_BLOCKS; i++)
        tables[i] = (i * 17 + 5) % N_BLOCKS;
    for (uint32_t i = 0; i < OUT; i++)
        out[i] = 0.25f;
    struct k_plan_dims dims = {.n_tokens = N_TOKENS,
                               .n_seqs = MAX_ROWS,
                               .n_q_heads = Q_HEADS,
                               .n_kv_heads = 1,
                               .head_dim = HEAD_DIM,
                               .max_model_len = 200,
                               .n_threads = N_THREADS};
    struct k_plan_bytes bytes;
    k_planner_find(device)->workspace(&dims, &bytes);
    struct k_kv_layer layer = {on_device(cache, sizeof cache), on_device(cache, sizeof cache)};
    void *qkv_dev = on_device(qkv, sizeof qkv), *out_dev = on_device(out, OUT * sizeof *out);
    void *rows_dev = on_device(rows, n_rows * sizeof *rows), *tables_dev = on_device(tables, sizeof tables);
    void *plan = calloc(1, bytes.attention_plan + 1), *workspace_dev = on_device(NULL, bytes.attention + 1);
    OK(b->ops->step_begin(b, &err));
    OK(b->ops->attention_plan(b, &(struct k_attention_plan_args){rows, &kv, plan, n_rows, N_TOKENS, Q_HEADS, 0, false},
                              &err));
    void *plan_dev = on_device(plan, bytes.attention_plan + 1);
    free(plan);
    OK(b->ops->attention(b,
                         &(struct k_attention_args){.qkv_dev = qkv_dev,
                                                    .out_dev = out_dev,
                                                    .rows = rows,
                                                    .rows_dev = rows_dev,
                                                    .plan_dev = plan_dev,
                                                    .tables_dev = tables_dev,
                                                    .kv = &kv,
                                                    .layer = &layer,
                                                    .workspace_dev = workspace_dev,
                                                    .n_rows = n_rows,
                                                    .n_tokens = N_TOKENS,
                                                    .n_q_heads = Q_HEADS,
                                                    .scale = 0.2f},
                         &err));
    fetch(out, out_dev, OUT * sizeof *out);
    OK(b->ops->step_end(b, &err));
    void *const all[] = {layer.k_dev, layer.v_dev, qkv_dev, out_dev, rows_dev, tables_dev, plan_dev, workspace_dev};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        b->ops->free(b, all[i]);
}

static void test_attention_of_rows_that_fill_up(void **state)
{
    (void)state;
    enum { WIDTH = Q_HEADS * HEAD_DIM };
    static const struct k_attn_row plain[] = {{0, 3, 62, 0}, {3, 2, 0, 14}, {6, 1, 119, 15}};
    static const struct k_attn_row filled[] = {{0, 0, 0, 0},    {0, 3, 62, 0}, {2, 0, 999, 3}, {3, 2, 0, 14},
                                               {6, 1, 119, 15}, {7, 0, 0, 0},  {0, 0, 0, 0},   {5, 0, 3, 1}};
    float want[N_TOKENS * WIDTH], got[N_TOKENS * WIDTH];
    attention_of_rows(plain, 3, want);
    attention_of_rows(filled, 8, got);
    assert_memory_equal(got, want, sizeof got);
    for (uint32_t i = 0; i < WIDTH; i++) {
        assert_true(want[5 * WIDTH + i] == 0.25f);
        assert_true(want[4 * WIDTH + i] != 0.25f && want[6 * WIDTH + i] != 0.25f);
    }
}

/* ---- copies of blocks -------------------------------------------------------------------------- */

/* Copies out to an arena in host memory, overwrites the device's blocks, and copies back to other blocks, all queued at
 * once in this order. There are more pairs than one launch handles. The caller may reuse the pairs' memory when a call
 * returns. */
static void test_copies_in_order(void **state)
{
    (void)state;
    enum { N = 300, ELEMENTS = 2 * 3 * 16, BYTES = N * ELEMENTS * 4 };
    static const struct k_kv_shape kv = {K_FORMAT_F32, 2, 16, 3, 16};
    static float k[N * ELEMENTS], v[N * ELEMENTS], got[N * ELEMENTS];
    static struct k_block_pair pairs[N];
    for (uint32_t i = 0; i < N * ELEMENTS; i++) {
        k[i] = value(i);
        v[i] = value(i + N * ELEMENTS);
    }
    struct k_kv_layer arena = {on_device(k, BYTES), on_device(v, BYTES)},
                      other = {on_device(v, BYTES), on_device(k, BYTES)}, host;
    OK(b->ops->alloc_host(b, BYTES, &host.k_dev, &err));
    OK(b->ops->alloc_host(b, BYTES, &host.v_dev, &err));
    OK(b->ops->step_begin(b, &err));
    for (uint32_t i = 0; i < N; i++)
        pairs[i] = (struct k_block_pair){i, (i * 7 + 11) % N};
    OK(b->ops->kv_copy(b, &(struct k_kv_copy_args){&kv, &arena, &host, pairs, N}, &err));
    for (uint32_t i = 0; i < N; i++)
        pairs[i] = (struct k_block_pair){i, i};
    OK(b->ops->kv_copy(b, &(struct k_kv_copy_args){&kv, &other, &arena, pairs, N}, &err));
    for (uint32_t i = 0; i < N; i += 2)
        pairs[i / 2] = (struct k_block_pair){(i * 7 + 11) % N, i};
    OK(b->ops->kv_copy(b, &(struct k_kv_copy_args){&kv, &host, &arena, pairs, N / 2}, &err));
    memset(pairs, 0xff, sizeof pairs);
    OK(b->ops->kv_copy(b, &(struct k_kv_copy_args){&kv, &host, &arena, pairs, 0}, &err));
    for (int side = 0; side < 2; side++) {
        fetch(got, side ? arena.v_dev : arena.k_dev, BYTES);
        for (uint32_t i = 0; i < N; i++) {
            const float *want = ((i % 2 == 0) == (side == 0) ? k : v) + i * ELEMENTS;
            assert_memory_equal(got + i * ELEMENTS, want, ELEMENTS * sizeof *want);
        }
    }
    OK(b->ops->step_end(b, &err));
    void *const all[] = {arena.k_dev, arena.v_dev, other.k_dev, other.v_dev, host.k_dev, host.v_dev};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        b->ops->free(b, all[i]);
}

/* ---- empty calls and invalid arguments ---------------------------------------------------------- */

static void test_calls_for_nothing(void **state)
{
    (void)state;
    static const struct k_kv_shape kv = {K_FORMAT_F16, 1, 16, 4, 16};
    static const struct k_kv_layer layer = {NULL, NULL};
    float table[4] = {0};
    struct k_weight *weight;
    const struct k_weight_view view = k_plain_view(table, K_F32, 2, 2, 2 * sizeof *table);
    OK(b->ops->weight_create(b, &view, 1, 1, &weight, &err));
    OK(b->ops->embed(b, &(struct k_embed_args){.table = weight}, &err));
    OK(b->ops->rmsnorm(b, &(struct k_rmsnorm_args){.n_cols = 4}, &err));
    OK(b->ops->gemm(b, &(struct k_gemm_args){.weight = weight}, &err));
    OK(b->ops->gemm_gated(b, &(struct k_gemm_gated_args){.gemm.weight = weight}, &err));
    OK(b->ops->rope_angles(b, &(struct k_rope_angles_args){.n_freqs = 4}, &err));
    OK(b->ops->rope_kv(b, &(struct k_rope_kv_args){.kv = &kv, .layer = &layer, .n_q_heads = 1}, &err));
    OK(b->ops->gather(b, &(struct k_gather_args){.n_cols = 4}, &err));
    b->ops->weight_destroy(b, weight);
}

/* Rejected with a reason; later calls still run. */
static void test_impossible_shapes(void **state)
{
    static const struct k_kv_shape shapes[] = {{K_FORMAT_F16, 1, 20, 4, 20}, {K_FORMAT_F16, 1, 272, 4, 272},
                                               {K_FORMAT_F16, 1, 0, 4, 0},   {K_FORMAT_F16, 0, 16, 4, 16},
                                               {K_FORMAT_F16, 1, 16, 0, 16}, {K_FORMAT_BF16, 1, 16, 4, 16}};
    static const struct k_kv_layer layer = {NULL, NULL};
    static const struct k_block_pair pair = {0, 0};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const struct k_rope_kv_args rope = {.kv = &shapes[i], .layer = &layer, .n_q_heads = 1, .n_tokens = 1};
        const struct k_kv_copy_args copy = {&shapes[i], &layer, &layer, &pair, 1};
        assert_int_equal(b->ops->rope_kv(b, &rope, &err), QUIRE_INVALID);
        assert_int_equal(b->ops->kv_copy(b, &copy, &err), QUIRE_INVALID);
        assert_non_null(strstr(err.text, "kv_copy: impossible KV cache shape"));
    }
    static const struct k_kv_shape narrow_v = {K_FORMAT_F16, 1, 32, 4, 16};
    const struct k_rope_kv_args rope = {.kv = &narrow_v, .layer = &layer, .n_q_heads = 1, .n_tokens = 1};
    assert_int_equal(b->ops->rope_kv(b, &rope, &err), QUIRE_UNSUPPORTED);
    assert_int_equal(b->ops->kv_copy(b, &(struct k_kv_copy_args){&narrow_v, &layer, &layer, &pair, 1}, &err),
                     QUIRE_UNSUPPORTED);
    assert_int_equal(
        b->ops->attention(b, &(struct k_attention_args){.kv = &narrow_v, .layer = &layer, .n_q_heads = 1}, &err),
        QUIRE_UNSUPPORTED);
    assert_non_null(strstr(err.text, "attention: KV cache: heads of K have 32 numbers and heads of V 16"));
    static const struct k_kv_shape possible = {K_FORMAT_F16, 1, 16, 4, 16};
    static const float caps[] = {-1, NAN, INFINITY, 0x1p-127f};
    for (size_t i = 0; i < sizeof caps / sizeof caps[0]; i++) {
        const struct k_attention_args args = {.kv = &possible, .layer = &layer, .n_q_heads = 1, .softcap = caps[i]};
        assert_int_equal(b->ops->attention(b, &args, &err), QUIRE_INVALID);
        assert_non_null(strstr(err.text, "attention: softcap must be "));
    }
    assert_int_equal(b->ops->rmsnorm(b, &(struct k_rmsnorm_args){.n_tokens = 1}, &err), QUIRE_INVALID);
    static const float one = 1;
    const struct k_rmsnorm_args norms[] = {{.n_tokens = 1, .n_cols = 4, .row_stride = 3},
                                           {.n_tokens = 1, .n_cols = 1, .add_dev = &one, .into = true}};
    for (size_t i = 0; i < sizeof norms / sizeof norms[0]; i++)
        assert_int_equal(b->ops->rmsnorm(b, &norms[i], &err), QUIRE_INVALID);
    static const float three[3] = {0};
    struct k_weight *weight;
    OK(b->ops->weight_create(b, (struct k_weight_view[]){k_plain_view(three, K_F32, 3, 1, sizeof *three)}, 1, 1,
                             &weight, &err));
    const struct k_gemm_gated_args odd = {.gemm = {.weight = weight, .n_tokens = 1}};
    assert_int_equal(b->ops->gemm_gated(b, &odd, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "(gate and up), got 3"));
    b->ops->weight_destroy(b, weight);
    test_place_tokens(state);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        device = argv[1];
    const char *why;
    struct k_backend_options options = {.device = device, .n_threads = N_THREADS, .form = K_FORM_LANE};
    if (k_backend_open(&options, &b, &why, &err) != QUIRE_OK) {
        printf("cannot open backend %s: %s\n", device, err.text);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_place_tokens),
        cmocka_unit_test(test_embed_of_no_row),
        cmocka_unit_test(test_attention_of_rows_that_fill_up),
        cmocka_unit_test(test_copies_in_order),
        cmocka_unit_test(test_calls_for_nothing),
        cmocka_unit_test(test_impossible_shapes),
    };
    int n_failed = RUN_ISOLATED(tests, NULL, NULL);
    b->ops->close(b);
    return n_failed;
}
