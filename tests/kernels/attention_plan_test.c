/* Plans of attention on a GPU. Host arithmetic, tested on any machine. Each split of each query is in one unit, a query
 * tile's partials are contiguous, shares are equal, and memory stays within the planned size. */
#include "kernels/cases/op_data.h"
#include "kernels/cuda/plan/attention_plan.h"
#include "kernels/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_ROWS 256u

struct step {
    struct k_attn_row rows[MAX_ROWS];
    struct k_kv_shape kv;
    struct k_attention_plan_args args;
};

static void fill_step(struct step *s, uint32_t n_rows, uint32_t n_q_heads, uint32_t n_kv_heads, uint32_t head_dim,
                      uint32_t window)
{
    uint32_t token = 0;
    for (uint32_t r = 0; r < n_rows; r++) {
        s->rows[r].token = token;
        s->rows[r].table = 1000 * r;
        token += s->rows[r].n_tokens;
    }
    s->kv = (struct k_kv_shape){K_FORMAT_F16, n_kv_heads, head_dim, 16, head_dim};
    s->args = (struct k_attention_plan_args){
        .rows = s->rows, .kv = &s->kv, .n_rows = n_rows, .n_tokens = token, .n_q_heads = n_q_heads, .window = window};
}

static struct attn_plan *make_plan(const struct step *s, uint32_t n_blocks, uint32_t partial_rows)
{
    uint64_t most = attn_plan_bytes(s->args.n_rows, s->args.n_tokens, s->args.n_q_heads, s->kv.n_kv_heads,
                                    s->kv.head_dim);
    struct attn_plan *plan = malloc(most);
    assert_non_null(plan);
    memset(plan, 0xa5, most);
    assert_true(attn_plan_make(&s->args, n_blocks, partial_rows, plan) <= most);
    return plan;
}

static const uint32_t *first_units(const struct attn_plan *plan)
{
    return (const uint32_t *)(plan + 1);
}
static const struct attn_unit *units_of(const struct attn_plan *plan)
{
    return (const void *)((const char *)plan + plan->units_at);
}
static const struct attn_merge *merges_of(const struct attn_plan *plan)
{
    return (const void *)((const char *)plan + plan->merges_at);
}

static uint32_t lowest_of(uint32_t position, uint32_t window)
{
    return window && position >= window ? position - window + 1 : 0;
}

/* Returns the number of KV tiles that a unit reads. */
static uint64_t cost_of(const struct step *s, const struct attn_unit *u)
{
    uint32_t group = s->args.n_q_heads / s->kv.n_kv_heads;
    uint32_t first = u->position + u->query / group, last = u->position + (u->query + u->n_queries - 1) / group;
    uint32_t from = lowest_of(first, s->args.window) / 64, end = last / 64 + 1;
    from = from > u->first_split * 8 ? from : u->first_split * 8;
    end = end < u->end_split * 8 ? end : u->end_split * 8;
    assert_true(from < end);
    return end - from;
}

/* Walks the units in their promised order: rows, query tiles, KV heads, splits. Returns the largest share. */
static uint64_t check_plan(const struct step *s, const struct attn_plan *plan, uint32_t n_blocks, uint32_t partial_rows,
                           uint64_t *total)
{
    const struct attn_unit *u = units_of(plan), *end_unit = u + plan->n_units;
    const struct attn_merge *merge = merges_of(plan);
    const uint32_t *arrivals = (const void *)((const char *)plan + plan->arrivals_at);
    uint32_t group = s->args.n_q_heads / s->kv.n_kv_heads, next_partial = 0, n_merges = 0;
    for (uint32_t r = 0; r < s->args.n_rows; r++) {
        const struct k_attn_row *row = &s->rows[r];
        uint32_t n_queries = row->n_tokens * group;
        uint32_t rows = n_queries <= 16 || s->kv.head_dim > 128 ? 16 : 64;
        for (uint32_t query = 0; query < n_queries; query += rows) {
            uint32_t n = n_queries - query < rows ? n_queries - query : rows;
            uint32_t first = row->position + query / group, last = row->position + (query + n - 1) / group;
            for (uint32_t h = 0; h < s->kv.n_kv_heads; h++) {
                uint32_t split = lowest_of(first, s->args.window) / 512, end = last / 512 + 1, n_partials = 0,
                         n_units = 0;
                bool is_cut = u < end_unit && u->end_split < end;
                for (bool is_first = true; split < end; u++, is_first = false) {
                    assert_true(u < end_unit);
                    assert_true(u->token == row->token && u->position == row->position && u->table == row->table);
                    assert_true(u->query == query && u->n_queries == n && u->kv_head == h);
                    assert_int_equal(u->first_split, split);
                    assert_true(u->end_split > split && u->end_split <= end);
                    if (is_cut) {
                        assert_int_equal(u->partial, next_partial);
                        assert_int_equal(u->partial_rows, is_first ? 0 : n);
                        assert_int_equal(u->merge, n_merges);
                        n_units++;
                        n_partials += is_first ? 1 : u->end_split - split;
                        next_partial += (is_first ? 1 : u->end_split - split) * n;
                    } else {
                        assert_int_equal(u->partial, ATTN_NO_PARTIAL);
                    }
                    split = u->end_split;
                }
                if (is_cut) {
                    assert_true(n_merges < plan->n_merges);
                    assert_true(merge->token == row->token && merge->query == query && merge->kv_head == h);
                    assert_true(merge->n_queries == n && merge->n_partials == n_partials);
                    assert_true(merge->n_units == n_units && n_units >= 2 && arrivals[n_merges] == 0);
                    assert_int_equal(merge->partial, next_partial - n_partials * n);
                    merge++;
                    n_merges++;
                }
            }
        }
    }
    assert_true(u == end_unit && n_merges == plan->n_merges && next_partial <= partial_rows);
    assert_int_equal(plan->n_blocks, n_blocks);
    const uint32_t *begin = first_units(plan);
    uint64_t largest = 0;
    *total = 0;
    assert_int_equal(begin[0], 0);
    assert_int_equal(begin[n_blocks], plan->n_units);
    for (uint32_t b = 0; b < n_blocks; b++) {
        uint64_t share = 0;
        assert_true(begin[b] <= begin[b + 1]);
        for (uint32_t i = begin[b]; i < begin[b + 1]; i++)
            share += cost_of(s, &units_of(plan)[i]);
        largest = share > largest ? share : largest;
        *total += share;
    }
    return largest;
}

/* Zipf lengths from 1k to 32k on a grid of 264: within 1.05 of an equal share. 64 sequences have shares of about 126
 * tiles; a split is 8 tiles. */
static void test_zipf(void **state)
{
    (void)state;
    static struct step s;
    uint64_t random = 1, total;
    for (uint32_t trial = 0; trial < 20; trial++) {
        uint32_t n = trial % 2 ? 64 : 256;
        for (uint32_t r = 0; r < n; r++)
            s.rows[r] = (struct k_attn_row){.n_tokens = 1,
                                            .position = 32768 / (1 + (uint32_t)(op_random(&random) % 32)) - 1};
        fill_step(&s, n, 32, 8, 128, 0);
        uint32_t most = attn_partial_rows(128);
        struct attn_plan *plan = make_plan(&s, 264, most);
        double largest = (double)check_plan(&s, plan, 264, most, &total);
        double ratio = largest / ((double)total / 264);
        double most_ratio = n == 256 ? 1.05 : 1 + 9.0 / ((double)total / 264);
        if (ratio > most_ratio)
            print_message("%u rows: %.3f of an equal share\n", n, ratio);
        assert_true(ratio <= most_ratio);
        free(plan);
    }
}

/* A causal chunk that starts at position 0, and one long sequence: shares differ by at most half a split at each end,
 * or a 48th. */
static void test_prefill(void **state)
{
    (void)state;
    static struct step s;
    uint64_t total, most = attn_partial_rows(128);
    static const struct {
        uint32_t n_tokens, position;
    } shapes[] = {{8192, 0}, {16384, 0}, {512, 4096}, {1, 131071}};
    for (uint32_t i = 0; i < 4; i++) {
        s.rows[0] = (struct k_attn_row){.n_tokens = shapes[i].n_tokens, .position = shapes[i].position};
        fill_step(&s, 1, 32, 8, 128, 0);
        struct attn_plan *plan = make_plan(&s, 264, (uint32_t)most);
        uint64_t largest = check_plan(&s, plan, 264, (uint32_t)most, &total), share = total / 264;
        uint64_t slack = share / 48 > 4 ? share / 48 : 4;
        assert_true(largest <= share + 1 + 2 * slack);
        free(plan);
    }
}

/* Without space for partials nothing is divided; with little space, little. */
static void test_caps(void **state)
{
    (void)state;
    static struct step s;
    uint64_t total;
    for (uint32_t r = 0; r < 8; r++)
        s.rows[r] = (struct k_attn_row){.n_tokens = 1 + r, .position = 5000};
    fill_step(&s, 8, 16, 2, 64, 0);
    for (uint32_t most = 0; most < 2000; most += 97) {
        struct attn_plan *plan = make_plan(&s, 100, most);
        check_plan(&s, plan, 100, most, &total);
        if (most == 0)
            assert_int_equal(plan->n_merges, 0);
        free(plan);
    }
}

static void test_random_steps(void **state)
{
    (void)state;
    static struct step s;
    static const uint32_t groups[] = {1, 2, 4, 5, 7, 8, 16, 17, 40, 71}, windows[] = {0, 0, 1, 9, 64, 500, 700, 4096};
    uint64_t random = 7, total;
    for (uint32_t trial = 0; trial < 2000; trial++) {
        uint32_t n = 1 + (uint32_t)(op_random(&random) % 24), longest = 1u << op_random(&random) % 15;
        for (uint32_t r = 0; r < n; r++)
            s.rows[r] = (struct k_attn_row){.n_tokens = op_random(&random) % 3 ? (uint32_t)(op_random(&random) % 3)
                                                                               : (uint32_t)(op_random(&random) % 200),
                                            .position = (uint32_t)(op_random(&random) % longest)};
        uint32_t kv_heads = 1 + (uint32_t)(op_random(&random) % 8), group = groups[op_random(&random) % 10];
        fill_step(&s, n, kv_heads * group, kv_heads, op_random(&random) % 4 ? 128 : 256,
                  windows[op_random(&random) % 8]);
        uint32_t n_blocks = 1 + (uint32_t)(op_random(&random) % ATTN_MAX_BLOCKS);
        uint32_t most = op_random(&random) % 2 ? attn_partial_rows(128) : (uint32_t)(op_random(&random) % 3000);
        struct attn_plan *plan = make_plan(&s, n_blocks, most);
        check_plan(&s, plan, n_blocks, most, &total);
        free(plan);
    }
}

static bool is_small(uint32_t most_tokens, uint32_t group, uint32_t head_dim)
{
    const struct k_attn_row rows[] = {{.n_tokens = 1}, {.n_tokens = most_tokens}, {.n_tokens = 0}};
    return attn_is_small(rows, 3, group, head_dim);
}

/* The kernel for query tiles of few rows must never receive a larger tile, and the other kernel must never receive
 * heads that are too wide for it. */
static void test_which_kernel(void **state)
{
    (void)state;
    assert_true(is_small(1, ATTN_SMALL, 128));
    assert_false(is_small(1, ATTN_SMALL + 1, 128));
    assert_true(is_small(4, ATTN_SMALL / 4, 16));
    assert_false(is_small(5, ATTN_SMALL / 4, 16));
    assert_false(is_small(UINT32_C(1) << 31, 2, 64)); /* times the group, this exceeds 32 bits */
    assert_true(is_small(1000, 8, ATTN_MOST_LARGE + 16));
    assert_true(attn_is_small(NULL, 64, 8, 64)); /* for a recorded step, in which each row will have one token */
    assert_false(attn_is_small(NULL, 64, ATTN_SMALL + 1, 64));
    assert_true(attn_is_small(NULL, 0, 1, 64));
    for (uint32_t n_tokens = 1; n_tokens <= 40; n_tokens++) {
        for (uint32_t head_dim = 64; head_dim <= 256; head_dim += 192) {
            struct step s;
            uint32_t largest = 0;
            s.rows[0] = (struct k_attn_row){.n_tokens = 1, .position = 900};
            s.rows[1] = (struct k_attn_row){.n_tokens = n_tokens, .position = 700};
            fill_step(&s, 2, 6, 2, head_dim, 0);
            struct attn_plan *plan = make_plan(&s, 4, attn_partial_rows(head_dim));
            for (uint32_t u = 0; u < first_units(plan)[4]; u++)
                largest = units_of(plan)[u].n_queries > largest ? units_of(plan)[u].n_queries : largest;
            assert_true((largest <= ATTN_SMALL) == attn_is_small(s.rows, 2, 3, head_dim));
            free(plan);
        }
    }
}

static void test_no_tokens(void **state)
{
    (void)state;
    static struct step s;
    uint64_t total;
    memset(&s, 0, sizeof s);
    fill_step(&s, 3, 4, 2, 64, 0);
    struct attn_plan *plan = make_plan(&s, 7, 100);
    check_plan(&s, plan, 7, 100, &total);
    assert_int_equal(plan->n_units, 0);
    free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zipf),         cmocka_unit_test(test_prefill),   cmocka_unit_test(test_caps),
        cmocka_unit_test(test_random_steps), cmocka_unit_test(test_no_tokens), cmocka_unit_test(test_which_kernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
