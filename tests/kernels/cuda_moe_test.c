/* Experts of the cuda backend on the emulated GPU, beyond what the table of cases has: weights of which other ranks hold
 * some experts, experts that round by themselves, recorded steps, NaN logits. Each row is compared with gemm() of its
 * expert's matrix. */
#include "tests/kernels/cuda_fixture.h"

#include "kernels/args/moe.h"
#include "kernels/math/gate.h"
#include "kernels/planner.h"

#include <math.h>

enum { EXPERTS = 6, USED = 2, TOKENS = 11, ROWS = 34, COLS = 96, CHOICES = TOKENS * USED };

static uint64_t seed = 1;

static float number(void)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)((double)(seed >> 40) / (1 << 23) - 1);
}

static struct k_backend *open_form(enum k_gemm_form form)
{
    struct k_backend *b;
    struct quire_error err;
    ok(try_open("cuda", form, K_BF16, &b, &err), &err);
    return b;
}

/* ---- the matrices ---------------------------------------------------------------------------- */

struct matrices {
    struct k_format format;
    struct k_weight_view views[EXPERTS];
    unsigned char data[EXPERTS][ROWS * COLS * 4];
    float scales[EXPERTS][ROWS * COLS];
    uint32_t orders[EXPERTS][COLS];
};

static void make_view(struct matrices *m, uint32_t e)
{
    for (uint32_t i = 0; i < ROWS * COLS; i++) {
        const float x = number();
        if (m->format.kind == K_F32)
            memcpy(m->data[e] + 4 * (size_t)i, &x, 4);
        else if (m->format.kind == K_BF16)
            memcpy(m->data[e] + 2 * (size_t)i, (const char *)&x + 2, 2);
        else
            m->data[e][i] = (unsigned char)(int)(x * 127);
        m->scales[e][i] = (x + 2) / 256;
    }
    if (k_format_is_plain(m->format))
        m->views[e] = k_plain_view(m->data[e], m->format.kind, ROWS, COLS, k_format_bytes(m->format, COLS));
    else
        m->views[e] = (struct k_weight_view){.data = m->data[e],
                                             .format = m->format,
                                             .n_rows = ROWS,
                                             .n_cols = COLS,
                                             .row_stride_bytes = k_format_bytes(m->format, COLS),
                                             .scales = m->scales[e]};
}

static struct matrices *make_matrices(struct k_format format)
{
    struct matrices *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->format = format;
    for (uint32_t e = 0; e < EXPERTS; e++) {
        make_view(m, e);
        for (uint32_t k = 0; k < COLS; k++)
            m->orders[e][k] = (k * 5 + e) % COLS; /* 5 and 96 have no common factor */
    }
    return m;
}

/* ---- a GEMM ---------------------------------------------------------------------------------- */

struct gemm {
    struct k_backend *b;
    float *x_dev, *y_dev, *bias_dev; /* [CHOICES, COLS], [CHOICES, ROWS], [EXPERTS, ROWS] */
    uint32_t *experts_dev;
    void *moe_dev, *gemm_dev; /* workspaces */
    uint32_t experts[CHOICES];
    bool per_choice, is_gated;
    uint32_t unit;
};

static void put_numbers(struct k_backend *b, float *dev, uint32_t n)
{
    struct quire_error err;
    float *host = malloc(n * sizeof *host);
    for (uint32_t i = 0; i < n; i++)
        host[i] = number();
    ok(b->ops->copy_in(b, dev, host, n * sizeof *host, &err), &err);
    free(host);
}

static void open_gemm(struct gemm *g, struct k_backend *b)
{
    struct quire_error err;
    const struct k_plan_dims dims = {.n_tokens = CHOICES,
                                     .max_gemm_cols = COLS,
                                     .n_experts = EXPERTS,
                                     .n_used = USED,
                                     .expert_rows = ROWS,
                                     .choice_cols = COLS};
    struct k_plan_bytes bytes;
    *g = (struct gemm){.b = b};
    b->ops->planner->workspace(&dims, &bytes);
    g->x_dev = new_memory(b, CHOICES * COLS * 4, false);
    g->y_dev = new_memory(b, CHOICES * ROWS * 4, false);
    g->bias_dev = new_memory(b, EXPERTS * ROWS * 4, false);
    g->experts_dev = new_memory(b, sizeof g->experts, false);
    g->moe_dev = new_memory(b, bytes.moe, false);
    g->gemm_dev = new_memory(b, bytes.gemm, false);
    put_numbers(b, g->x_dev, CHOICES * COLS);
    put_numbers(b, g->bias_dev, EXPERTS * ROWS);
    for (uint32_t t = 0; t < TOKENS; t++) {
        g->experts[USED * t] = t % 3;
        g->experts[USED * t + 1] = 3 + t * t % 3;
    }
    ok(b->ops->copy_in(b, g->experts_dev, g->experts, sizeof g->experts, &err), &err);
}

static void close_gemm(struct gemm *g)
{
    void *const all[] = {g->x_dev, g->y_dev, g->bias_dev, g->experts_dev, g->moe_dev, g->gemm_dev};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        g->b->ops->free(g->b, all[i]);
}

/* One choice by gemm() or gemm_gated(). */
static void compute_one(const struct gemm *g, const struct k_weight_view *view, uint32_t choice, float *out)
{
    struct k_backend *b = g->b;
    struct quire_error err;
    struct k_weight *w;
    ok(b->ops->weight_create(b, view, 1, 1, &w, &err), &err);
    const struct k_gemm_args gemm = {.weight = w,
                                     .x_dev = g->x_dev + (g->per_choice ? choice : choice / USED) * COLS,
                                     .bias_dev = g->bias_dev + g->experts[choice] * ROWS,
                                     .y_dev = g->y_dev,
                                     .workspace_dev = g->gemm_dev,
                                     .n_tokens = 1,
                                     .unit = g->unit};
    const struct k_gemm_gated_args gated = {.gemm = gemm, .out_dev = g->y_dev, .gate = {.kind = K_GATE_SILU}};
    ok(g->is_gated ? b->ops->gemm_gated(b, &gated, &err) : b->ops->gemm(b, &gemm, &err), &err);
    ok(b->ops->copy_out(b, out, g->y_dev, (g->is_gated ? ROWS / 2 : ROWS) * 4, &err), &err);
    b->ops->weight_destroy(b, w);
}

/* All choices by the operation, of a rank that has experts [first, first + n). */
static void compute_all(const struct gemm *g, const struct matrices *m, uint32_t first, uint32_t n, float *out)
{
    struct k_backend *b = g->b;
    struct quire_error err;
    struct k_weight *w;
    ok(b->ops->weight_create(b, m->views + first, n, 1, &w, &err), &err);
    const struct k_moe_gemm_args gemm = {.weight = w,
                                         .x_dev = g->x_dev,
                                         .experts_dev = g->experts_dev,
                                         .bias_dev = g->bias_dev + first * ROWS,
                                         .y_dev = g->y_dev,
                                         .workspace_dev = g->moe_dev,
                                         .n_tokens = TOKENS,
                                         .n_used = USED,
                                         .first_expert = first,
                                         .unit = g->unit,
                                         .per_choice = g->per_choice};
    const struct k_moe_gemm_gated_args gated = {.gemm = gemm, .out_dev = g->y_dev, .gate = {.kind = K_GATE_SILU}};
    ok(g->is_gated ? b->ops->moe_gemm_gated(b, &gated, &err) : b->ops->moe_gemm(b, &gemm, &err), &err);
    ok(b->ops->copy_out(b, out, g->y_dev, CHOICES * (g->is_gated ? ROWS / 2 : ROWS) * 4, &err), &err);
    b->ops->weight_destroy(b, w);
}

static void check_share(const struct gemm *g, const struct matrices *m, uint32_t first, uint32_t n)
{
    const uint32_t width = g->is_gated ? ROWS / 2 : ROWS;
    const float missing = g->is_gated ? k_gated((struct k_gate){.kind = K_GATE_SILU}, -0.0f, -0.0f) : -0.0f;
    float all[CHOICES * ROWS], one[ROWS];
    compute_all(g, m, first, n, all);
    for (uint32_t i = 0; i < CHOICES; i++) {
        const bool is_here = g->experts[i] >= first && g->experts[i] < first + n;
        if (is_here)
            compute_one(g, &m->views[g->experts[i]], i, one);
        for (uint32_t r = 0; !is_here && r < width; r++)
            one[r] = missing;
        assert_memory_equal(all + i * width, one, width * sizeof *one);
    }
}

static void check_shares(struct k_backend *b, const struct matrices *m)
{
    struct gemm g;
    open_gemm(&g, b);
    check_share(&g, m, 0, EXPERTS);
    check_share(&g, m, 2, 3);
    g.per_choice = true;
    check_share(&g, m, 0, 3);
    g.is_gated = true;
    check_share(&g, m, 3, 3);
    g.per_choice = false;
    check_share(&g, m, 5, 1);
    close_gemm(&g);
}

static void test_shares_of_plain_weights(void **state)
{
    (void)state;
    for (int form = 0; form < 3; form++) {
        struct k_backend *b = open_form(form == 2 ? K_FORM_MMA : K_FORM_LANE);
        struct matrices *m = make_matrices(k_format_of(form == 0 ? K_F32 : K_BF16));
        check_shares(b, m);
        free(m);
        close_gpu(b);
    }
}

/* Each expert has an order of columns, and some state a scale of activations. */
static void test_shares_of_planes(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++)
        for (int ordered = 0; ordered < 2; ordered++) {
            struct k_backend *b = open_form(form ? K_FORM_INT8 : K_FORM_LANE);
            struct matrices *m = make_matrices(k_format_of_planes(K_INT, 8, ordered ? 32 : 0, K_F32));
            for (uint32_t e = 0; e < EXPERTS; e++) {
                m->views[e].permutation = ordered && e != 1 ? m->orders[e] : NULL;
                m->views[e].x_scale = ordered || e % 2 ? 0 : 0.01f * (float)(e + 1);
            }
            check_shares(b, m);
            free(m);
            close_gpu(b);
        }
}

static void test_formats_that_differ(void **state)
{
    (void)state;
    struct k_backend *b = open_form(K_FORM_LANE);
    struct matrices *bytes = make_matrices(k_format_of_planes(K_INT, 8, 32, K_F32)),
                    *floats = make_matrices(k_format_of(K_F32));
    struct k_weight *w;
    struct quire_error err;
    bytes->views[2].format.group = 16;
    assert_int_equal(b->ops->weight_create(b, bytes->views, EXPERTS, 1, &w, &err), QUIRE_UNSUPPORTED);
    assert_says(&err, "expert 2");
    assert_null(w);
    floats->views[4].format = k_format_of(K_BF16);
    assert_int_equal(b->ops->weight_create(b, floats->views, EXPERTS, 1, &w, &err), QUIRE_UNSUPPORTED);
    assert_null(w);
    free(bytes);
    free(floats);
    close_gpu(b);
}

/* ---- a recorded block ------------------------------------------------------------------------ */

struct block {
    struct gemm g; /* its x_dev is the block's */
    float *router_dev, *weights_dev, *narrow_dev, *choices_dev, *out_dev;
    struct k_weight *gate_up, *down;
};

/* Router, gate and up, down, combination. down reads columns that gate and up leave: ROWS / 2 of them. */
static int run_block(const struct block *l, struct quire_error *err)
{
    struct k_backend *b = l->g.b;
    const struct k_moe_route_args route = {.x_dev = l->g.x_dev,
                                           .router_dev = l->router_dev,
                                           .experts_dev = l->g.experts_dev,
                                           .weights_dev = l->weights_dev,
                                           .workspace_dev = l->g.moe_dev,
                                           .n_tokens = TOKENS,
                                           .n_cols = COLS,
                                           .n_experts = EXPERTS,
                                           .n_used = USED,
                                           .normalize = true,
                                           .scale = 1};
    const struct k_moe_gemm_args gemm = {.weight = l->gate_up,
                                         .x_dev = l->g.x_dev,
                                         .experts_dev = l->g.experts_dev,
                                         .workspace_dev = l->g.moe_dev,
                                         .n_tokens = TOKENS,
                                         .n_used = USED};
    const struct k_moe_gemm_gated_args gate_up = {
        .gemm = gemm, .out_dev = l->narrow_dev, .gate = {.kind = K_GATE_SILU}, .for_gemm = true};
    struct k_moe_gemm_args down = gemm;
    down.weight = l->down;
    down.x_dev = l->narrow_dev;
    down.y_dev = l->choices_dev;
    down.per_choice = down.x_for_gemm = true;
    const struct k_moe_combine_args sum = {.y_dev = l->choices_dev,
                                           .weights_dev = l->weights_dev,
                                           .out_dev = l->out_dev,
                                           .n_tokens = TOKENS,
                                           .n_used = USED,
                                           .n_cols = ROWS};
    int status = b->ops->moe_route(b, &route, err);
    status = status == QUIRE_OK ? b->ops->moe_gemm_gated(b, &gate_up, err) : status;
    status = status == QUIRE_OK ? b->ops->moe_gemm(b, &down, err) : status;
    return status == QUIRE_OK ? b->ops->moe_combine(b, &sum, err) : status;
}

static void open_block(struct block *l, struct k_backend *b, const struct matrices *m)
{
    struct quire_error err;
    struct k_weight_view down[EXPERTS];
    open_gemm(&l->g, b);
    l->router_dev = new_memory(b, EXPERTS * COLS * 4, false);
    l->weights_dev = new_memory(b, CHOICES * 4, false);
    l->narrow_dev = new_memory(b, CHOICES * ROWS / 2 * 4, false);
    l->choices_dev = new_memory(b, CHOICES * ROWS * 4, false);
    l->out_dev = new_memory(b, TOKENS * ROWS * 4, false);
    put_numbers(b, l->router_dev, EXPERTS * COLS);
    for (uint32_t e = 0; e < EXPERTS; e++) {
        down[e] = m->views[e];
        down[e].n_cols = ROWS / 2; /* the first columns of each row */
    }
    ok(b->ops->weight_create(b, m->views, EXPERTS, 1, &l->gate_up, &err), &err);
    ok(b->ops->weight_create(b, down, EXPERTS, 1, &l->down, &err), &err);
}

static void close_block(struct block *l)
{
    struct k_backend *b = l->g.b;
    void *const all[] = {l->router_dev, l->weights_dev, l->narrow_dev, l->choices_dev, l->out_dev};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        b->ops->free(b, all[i]);
    b->ops->weight_destroy(b, l->gate_up);
    b->ops->weight_destroy(b, l->down);
    close_gemm(&l->g);
}

static void get_block(const struct block *l, float *out, uint32_t *experts)
{
    struct quire_error err;
    struct k_backend *b = l->g.b;
    ok(b->ops->copy_out(b, out, l->out_dev, TOKENS * ROWS * 4, &err), &err);
    ok(b->ops->copy_out(b, experts, l->g.experts_dev, CHOICES * sizeof *experts, &err), &err);
}

/* A block is recorded with some tokens and runs with others, whose experts are others. */
static void test_a_recorded_block(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++) {
        struct k_backend *b = open_form(form ? K_FORM_MMA : K_FORM_LANE);
        struct matrices *m = make_matrices(k_format_of(K_BF16));
        struct quire_error err;
        struct k_graph *graph;
        struct block l;
        float first[TOKENS * ROWS], want[TOKENS * ROWS], got[TOKENS * ROWS];
        uint32_t of_first[CHOICES], want_experts[CHOICES], got_experts[CHOICES];
        open_block(&l, b, m);
        ok(run_block(&l, &err), &err);
        get_block(&l, first, of_first);
        ok(b->ops->graph_begin(b, &err), &err);
        ok(run_block(&l, &err), &err);
        ok(b->ops->graph_end(b, &graph, &err), &err);
        put_numbers(b, l.g.x_dev, TOKENS * COLS);
        ok(b->ops->graph_launch(b, graph, &err), &err);
        get_block(&l, got, got_experts);
        ok(run_block(&l, &err), &err);
        get_block(&l, want, want_experts);
        assert_memory_equal(got, want, sizeof want);
        assert_memory_equal(got_experts, want_experts, sizeof want_experts);
        assert_memory_not_equal(of_first, want_experts, sizeof want_experts);
        b->ops->graph_destroy(b, graph);
        close_block(&l);
        free(m);
        close_gpu(b);
    }
}

/* A token with a NaN has the first experts and weights that are NaN; the others are as they were. */
static void test_a_nan(void **state)
{
    (void)state;
    struct k_backend *b = open_form(K_FORM_MMA);
    struct matrices *m = make_matrices(k_format_of(K_BF16));
    struct quire_error err;
    struct block l;
    float before[TOKENS * ROWS], after[TOKENS * ROWS];
    uint32_t experts_before[CHOICES], experts[CHOICES];
    const uint32_t bad = 4;
    open_block(&l, b, m);
    ok(run_block(&l, &err), &err);
    get_block(&l, before, experts_before);
    ok(b->ops->copy_in(b, l.g.x_dev + bad * COLS + 3, &(float){NAN}, sizeof(float), &err), &err);
    ok(run_block(&l, &err), &err);
    get_block(&l, after, experts);
    for (uint32_t t = 0; t < TOKENS; t++) {
        if (t != bad) {
            assert_memory_equal(after + t * ROWS, before + t * ROWS, ROWS * sizeof *after);
            assert_memory_equal(experts + t * USED, experts_before + t * USED, USED * sizeof *experts);
            continue;
        }
        for (uint32_t i = 0; i < USED; i++)
            assert_int_equal(experts[t * USED + i], i);
        for (uint32_t r = 0; r < ROWS; r++)
            assert_true(isnan(after[t * ROWS + r]));
    }
    close_block(&l);
    free(m);
    close_gpu(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_shares_of_plain_weights, set_up),
        cmocka_unit_test_setup(test_shares_of_planes, set_up),
        cmocka_unit_test_setup(test_formats_that_differ, set_up),
        cmocka_unit_test_setup(test_a_recorded_block, set_up),
        cmocka_unit_test_setup(test_a_nan, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
