/* Compares a backend's sampling with the sorting specification at the limits of a device's code: vocabularies around
 * the sizes at which blocks and lists change, equal logits, ranges that exceed the list, many counts, several rounds,
 * bad rows among good ones. */
#include "kernels/args/sample.h"
#include "kernels/backend.h"
#include "kernels/open.h"
#include "tests/kernels/page.h"
#include "kernels/cases/op_sample.h"
#include "tests/sample.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/isolated_tests.h"

static const char *device = "ref";

struct fixture {
    struct k_backend *b;
};

static const struct k_sample_row plain = {
    .temperature = 1, .top_p = 1, .repetition_penalty = 1, .n_logprobs = -1, .forced = -1};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    const char *why;
    if (!f ||
        k_backend_open(&(struct k_backend_options){.device = device, .n_threads = 2}, &f->b, &why, NULL) != QUIRE_OK)
        return -1;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    f->b->ops->close(f->b);
    free(f);
    return 0;
}

static void *must(void *p)
{
    assert_non_null(p);
    return p;
}

/* ---- comparison ------------------------------------------------------------------------------ */

static bool same(const struct k_sample_result *a, const struct k_sample_result *b)
{
    if (a->bad_logits || b->bad_logits)
        return a->bad_logits == b->bad_logits;
    return a->token == b->token && a->rank == b->rank && a->n_top == b->n_top &&
           memcmp(&a->logprob, &b->logprob, sizeof a->logprob) == 0 &&
           memcmp(a->top_ids, b->top_ids, a->n_top * sizeof *a->top_ids) == 0 &&
           memcmp(a->top_logprobs, b->top_logprobs, a->n_top * sizeof *a->top_logprobs) == 0;
}

static void show(const char *who, const struct k_sample_result *r)
{
    print_error("  %s: token %u, rank %u, logprob %a, bad %d, %u best:", who, r->token, r->rank, (double)r->logprob,
                r->bad_logits, r->n_top);
    for (uint32_t i = 0; i < r->n_top; i++)
        print_error(" %u %a", r->top_ids[i], (double)r->top_logprobs[i]);
    print_error("\n");
}

/* Samples rows with the backend and with the specification, and compares. */
static void compare(struct fixture *f, const char *what, const float *logits, uint32_t n_vocab,
                    const struct k_sample_row *rows, uint32_t n_rows)
{
    struct quire_error err = {0};
    const struct k_backend_ops *ops = f->b->ops;
    struct k_sample_result *results = must(calloc(n_rows, sizeof *results)), want;
    uint32_t *sampled = must(calloc(n_rows, sizeof *sampled));
    uint64_t bytes = (uint64_t)n_rows * n_vocab * sizeof *logits;
    struct op_sampler sampler;
    void *dev;
    bool all_same = true;
    assert_int_equal(op_sampler_open(&sampler, f->b, n_rows, n_vocab, &err), QUIRE_OK);
    assert_int_equal(ops->alloc(f->b, bytes, &dev, &err), QUIRE_OK);
    assert_int_equal(ops->copy_in(f->b, dev, logits, bytes, &err), QUIRE_OK);
    assert_int_equal(ops->step_begin(f->b, &err), QUIRE_OK);
    if (op_sampler_run(&sampler, dev, rows, n_rows, results, &err) != QUIRE_OK)
        fail_msg("%s: %s", what, err.text);
    assert_int_equal(ops->step_end(f->b, &err), QUIRE_OK);
    assert_int_equal(ops->copy_out(f->b, sampled, sampler.sampled_dev, n_rows * sizeof *sampled, &err), QUIRE_OK);
    for (uint32_t i = 0; i < n_rows; i++) {
        page_sample(&rows[i], logits + (uint64_t)i * n_vocab, n_vocab, &want);
        if (same(&results[i], &want) && (want.bad_logits || sampled[i] == want.token))
            continue;
        print_error("%s, vocabulary %u, row %u: temperature %g top_k %u top_p %g min_p %g n_logprobs %d\n", what,
                    n_vocab, i, (double)rows[i].temperature, rows[i].top_k, (double)rows[i].top_p,
                    (double)rows[i].min_p, rows[i].n_logprobs);
        show(device, &results[i]);
        show("page", &want);
        all_same = false;
    }
    assert_true(all_same);
    ops->free(f->b, dev);
    op_sampler_close(&sampler);
    free(sampled);
    free(results);
}

/* ---- rows and logits ------------------------------------------------------------------------- */

static uint64_t random_state = 88172645463325252u;

static uint32_t random_below(uint32_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32) % n;
}

static float random_normal(void)
{
    float sum = 0;
    for (int i = 0; i < 12; i++)
        sum += (float)random_below(1u << 20) * 0x1p-20f;
    return sum - 6;
}

/* The requests for each row of logits: every kind of selection. */
enum { N_KINDS = 12 };

static void make_rows(struct k_sample_row rows[N_KINDS])
{
    for (uint32_t i = 0; i < N_KINDS; i++) {
        rows[i] = plain;
        rows[i].seed = 1000 + i;
        rows[i].position = 3 * i;
    }
    rows[0].temperature = 0;
    rows[0].n_logprobs = 20;
    rows[2].top_p = 0.9f;
    rows[3].top_p = 0.5f;
    rows[3].n_logprobs = 0;
    rows[4].top_k = 50;
    rows[4].top_p = 0.95f;
    rows[5].top_k = 1000;
    rows[5].top_p = 0.999f;
    rows[6].top_k = 100000;
    rows[6].temperature = 0.7f;
    rows[7].top_k = 9000;
    rows[7].top_p = 0.9999f;
    rows[7].temperature = 3.0f;
    rows[8].min_p = 0.02f;
    rows[8].top_p = 0.97f;
    rows[9].top_p = 1e-30f;
    rows[9].n_logprobs = 5;
    rows[10].forced = 0;
    rows[10].n_logprobs = 20;
    rows[11].top_k = 3;
    rows[11].min_p = 1.0f;
}

enum shape { NORMAL, EQUAL, TIES, PEAK, RAMP, ONE_BLOCK, N_SHAPES };
static const char *const shape_names[N_SHAPES] = {"normal", "equal", "ties", "peak", "ramp", "one block"};

static void fill(float *z, uint32_t n, enum shape shape)
{
    for (uint32_t i = 0; i < n; i++) {
        switch (shape) {
        case NORMAL: z[i] = random_normal(); break;
        case EQUAL: z[i] = -1.25f; break;
        case TIES: z[i] = (float)random_below(3) - (float)(random_below(2) * 2); break;
        case PEAK: z[i] = i == n / 3 ? 40.0f : -(float)random_below(50); break;
        case RAMP: z[i] = (float)i * -0x1p-14f; break;
        default: z[i] = i < n / 4 ? 10.0f + (float)random_below(1u << 20) * 0x1p-20f : 0.0f; break;
        }
    }
}

static void test_shapes(void **state)
{
    static const uint32_t vocabs[] = {1, 5, 31, 33, 255, 256, 257, 1023, 1024, 1025, 8192, 8193, 32003, 151936};
    struct k_sample_row rows[N_KINDS];
    struct sample some = sample_of(strcmp(device, "cuda") == 0 ? 3 : 1); /* the part that an emulator can run */
    for (size_t v = 0; v < sizeof vocabs / sizeof *vocabs; v++) {
        uint32_t n = vocabs[v];
        float *z = must(malloc((size_t)N_KINDS * n * sizeof *z));
        for (enum shape shape = 0; shape < N_SHAPES; shape++) {
            for (uint32_t i = 0; i < N_KINDS; i++)
                fill(z + (uint64_t)i * n, n, shape);
            make_rows(rows);
            if (sample_takes(&some))
                compare(*state, shape_names[shape], z, n, rows, N_KINDS);
        }
        free(z);
    }
    sample_report(&some, "shapes of logits");
}

/* Every other row cannot be sampled. The rows in between must be as if alone. */
static void test_bad_rows_among_good(void **state)
{
    enum { V = 3000, N = 2 * N_KINDS };
    static const float bads[] = {NAN, INFINITY, -INFINITY};
    struct k_sample_row rows[N], kinds[N_KINDS];
    float *z = must(malloc((size_t)N * V * sizeof *z));
    make_rows(kinds);
    for (uint32_t i = 0; i < N; i++) {
        rows[i] = kinds[i / 2];
        fill(z + (size_t)i * V, V, NORMAL);
        float bad = bads[i / 2 % 3];
        for (uint32_t id = 0; i % 2 && id < V; id++) {
            if (id == V / 2 || bad < 0)
                z[(size_t)i * V + id] = bad;
        }
    }
    compare(*state, "bad rows", z, V, rows, N);
    free(z);
}

static void test_masks(void **state)
{
    enum { V = 9001, N = 8 };
    struct k_sample_row rows[N];
    uint32_t masks[N][(V + 31) / 32] = {{0}};
    float *z = must(malloc((size_t)N * V * sizeof *z));
    for (uint32_t i = 0; i < N; i++) {
        rows[i] = plain;
        rows[i].seed = i;
        rows[i].mask = masks[i];
        rows[i].n_logprobs = 20;
        rows[i].top_k = i % 2 ? 40 : 0;
        rows[i].top_p = i % 4 < 2 ? 0.9f : 1.0f;
        fill(z + (size_t)i * V, V, NORMAL);
        for (uint32_t id = 0; id < V && i > 2; id++)
            masks[i][id / 32] |= (uint32_t)(random_below(i) == 0) << (id % 32);
    }
    masks[0][V / 32] = 1u << (V - 1) % 32; /* one token is allowed; no token; no token, with a penalty on one */
    z[V - 1] = -80.0f;
    struct k_token_count count = {7, 3};
    rows[2].counts = &count;
    rows[2].n_counts = 1;
    rows[2].frequency_penalty = 1.0f;
    rows[2].temperature = 0;
    masks[3][0] &= ~(1u << 7); /* minus infinity times 0 is NaN, masked or not */
    rows[3].counts = &count;
    rows[3].n_counts = 1;
    rows[3].repetition_penalty = 0.0f;
    compare(*state, "masks", z, V, rows, N);
    free(z);
}

/* Biases and penalties on tokens among the best, different in each row. */
static void test_many_counts(void **state)
{
    enum { V = 5000, N = 6, MANY = 300 };
    struct k_sample_row rows[N];
    struct k_token_count counts[N][MANY];
    struct k_logit_bias biases[N][MANY];
    float *z = must(malloc((size_t)N * V * sizeof *z));
    for (uint32_t i = 0; i < N; i++) {
        fill(z + (size_t)i * V, V, i % 2 ? TIES : NORMAL);
        rows[i] = plain;
        rows[i].temperature = i < 2 ? 0.0f : 0.8f;
        rows[i].top_p = i == 3 ? 0.9f : 1.0f;
        rows[i].seed = i;
        rows[i].repetition_penalty = 1.1f + 0.3f * (float)i;
        rows[i].presence_penalty = i % 3 == 0 ? 0.5f : 0.0f;
        rows[i].frequency_penalty = i % 3 == 1 ? -0.25f : 0.1f;
        rows[i].n_logprobs = i % 2 ? 20 : 0;
        rows[i].counts = counts[i];
        rows[i].biases = biases[i];
        rows[i].n_counts = rows[i].n_biases = MANY - i;
        for (uint32_t k = 0; k < MANY; k++) {
            counts[i][k] = (struct k_token_count){k * 16 + random_below(16), random_below(4)};
            biases[i][k] = (struct k_logit_bias){k * 16 + random_below(16), 4 * random_normal()};
        }
        biases[i][7].bias = -INFINITY;
    }
    compare(*state, "counts", z, V, rows, N);
    free(z);
}

/* More than the workspace of a device holds at once. */
static void test_rounds(void **state)
{
    enum { V = 700, N = 1600 };
    struct k_sample_row *rows = must(calloc(N, sizeof *rows));
    struct k_token_count *counts = must(calloc(V, sizeof *counts));
    uint32_t mask[(V + 31) / 32];
    float *z = must(malloc((size_t)N * V * sizeof *z));
    memset(mask, 0xf7, sizeof mask);
    for (uint32_t i = 0; i < V; i++)
        counts[i] = (struct k_token_count){i, i % 5};
    for (uint32_t i = 0; i < N; i++) {
        fill(z + (size_t)i * V, V, NORMAL);
        rows[i] = plain;
        rows[i].position = i;
        rows[i].repetition_penalty = 1.3f;
        rows[i].frequency_penalty = 0.1f;
        rows[i].counts = counts;
        rows[i].n_counts = V - i % 3;
        rows[i].mask = i % 2 ? mask : NULL;
        rows[i].n_logprobs = i % 7 ? -1 : 3;
    }
    compare(*state, "rounds", z, V, rows, N);
    free(rows);
    free(counts);
    free(z);
}

/* Plans one row with at most one bias and one count. */
static int plan(struct fixture *f, const struct k_sample_row *row, uint32_t n_vocab)
{
    _Alignas(16) unsigned char room[512];
    uint32_t n_planned;
    uint64_t parts_bytes;
    return f->b->ops->sample_plan(
        f->b, &(struct k_sample_plan_args){row, room, room + 256, 1, n_vocab, &n_planned, &parts_bytes}, NULL);
}

static void test_refusals(void **state)
{
    struct fixture *f = *state;
    struct k_token_count count = {5, 1};
    struct k_logit_bias bias = {5, 1.0f};
    struct k_sample_row bad[6];
    for (int i = 0; i < 6; i++)
        bad[i] = plain;
    bad[0].counts = &count;
    bad[0].n_counts = 1;
    bad[1].biases = &bias;
    bad[1].n_biases = 1;
    bad[2].forced = 5;
    bad[3].n_logprobs = K_MAX_LOGPROBS + 1;
    bad[4].temperature = NAN;
    bad[5].min_p = 1.5f;
    for (int i = 0; i < 6; i++)
        assert_int_equal(plan(f, &bad[i], 5), QUIRE_INVALID);
    assert_int_equal(plan(f, &plain, 5), QUIRE_OK);
    for (uint32_t n_vocab = 0; n_vocab <= (1u << 22) + 1; n_vocab += (1u << 22) + 1)
        assert_int_equal(plan(f, &plain, n_vocab), QUIRE_INVALID);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        device = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes), cmocka_unit_test(test_bad_rows_among_good),
        cmocka_unit_test(test_masks),  cmocka_unit_test(test_many_counts),
        cmocka_unit_test(test_rounds), cmocka_unit_test(test_refusals),
    };
    return RUN_ISOLATED(tests, setup, teardown);
}
