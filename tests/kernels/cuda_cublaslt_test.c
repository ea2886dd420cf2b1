/* --invariance off on the emulated GPU: GEMMs of many tokens by cuBLASLt's stub, and the behaviour if it has no kernel
 * for a shape, fails, or is missing. Argument `absent`: run without it on the loader's path. */
#include "kernels/args/gemm.h"
#include "kernels/planner.h"
#include "tests/kernels/cuda_fixture.h"
#include "tests/kernels/page.h"

#include <limits.h>
#include <math.h>

#define T 70u
#define N 40u
#define K 100u

static int try_off(enum k_gemm_form form, struct k_backend **b, struct quire_error *err)
{
    const char *why;
    struct k_backend_options options = {
        .device = "cuda", .form = form, .weight_format = K_FORMAT_BF16, .not_invariant = true};
    return k_backend_open(&options, b, &why, err);
}

static struct k_backend *open_off(void)
{
    struct k_backend *b;
    struct quire_error err;
    ok(try_off(K_FORM_AUTO, &b, &err), &err);
    assert_string_equal(b->gemm_library, "cuBLASLt 13.1.2");
    return b;
}

struct gemm {
    struct k_backend *b;
    uint16_t w[N * K];
    float x[T * K], bias[N], y[T * N];
    struct k_weight *weight;
    float *x_dev, *bias_dev, *y_dev, *out_dev;
    void *workspace;
};

static void put(struct k_backend *b, void *dev, const void *data, uint64_t bytes)
{
    struct quire_error err;
    ok(b->ops->copy_in(b, dev, data, bytes, &err), &err);
}

static const int downwards[] = {0, -1, -2, -3, -4, -5, -6}; /* rows of different sizes */

/* Row r has weights of moderate size times 2^powers[r % n_powers]; INT_MIN gives zeros. */
static void make_of(struct gemm *g, struct k_backend *b, enum k_dtype dtype, const int *powers, uint32_t n_powers)
{
    struct quire_error err;
    struct k_plan_bytes bytes;
    uint64_t seed = 3;
    g->b = b;
    for (uint32_t i = 0; i < N * K; i++) {
        int power = powers[i / K % n_powers];
        float w = power == INT_MIN ? 0 : ldexpf(op_random_value(&seed, VALUES_PLAIN), power);
        g->w[i] = dtype == K_F16 ? page_f16_from_f32(w) : page_bf16_from_f32(w);
    }
    for (uint32_t i = 0; i < T * K; i++)
        g->x[i] = op_random_value(&seed, VALUES_PLAIN);
    for (uint32_t i = 0; i < N; i++)
        g->bias[i] = op_random_value(&seed, VALUES_PLAIN);
    const struct k_plan_dims dims = {.n_tokens = T, .max_gemm_cols = K, .n_threads = 1, .not_invariant = true};
    const struct k_weight_view view = k_plain_view(g->w, dtype, N, K, K * 2);
    k_planner_find("cuda")->workspace(&dims, &bytes);
    ok(b->ops->weight_create(b, &view, 1, 1, &g->weight, &err), &err);
    g->x_dev = new_memory(b, sizeof g->x, false);
    g->bias_dev = new_memory(b, sizeof g->bias, false);
    g->y_dev = new_memory(b, sizeof g->y, false);
    g->out_dev = new_memory(b, sizeof g->y, false);
    g->workspace = new_memory(b, bytes.gemm, false);
    put(b, g->x_dev, g->x, sizeof g->x);
    put(b, g->bias_dev, g->bias, sizeof g->bias);
}

static void make(struct gemm *g, struct k_backend *b, enum k_dtype dtype)
{
    make_of(g, b, dtype, downwards, sizeof downwards / sizeof downwards[0]);
}

static void drop(struct gemm *g)
{
    void *const all[] = {g->x_dev, g->bias_dev, g->y_dev, g->out_dev, g->workspace};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        g->b->ops->free(g->b, all[i]);
    g->b->ops->weight_destroy(g->b, g->weight);
}

static struct k_gemm_args args_of(const struct gemm *g, uint32_t n_tokens)
{
    return (struct k_gemm_args){.weight = g->weight,
                                .x_dev = g->x_dev,
                                .bias_dev = g->bias_dev,
                                .y_dev = g->y_dev,
                                .workspace_dev = g->workspace,
                                .n_tokens = n_tokens};
}

static int run(struct gemm *g, uint32_t n_tokens, struct quire_error *err)
{
    const struct k_gemm_args args = args_of(g, n_tokens);
    int status = g->b->ops->gemm(g->b, &args, err);
    return status == QUIRE_OK ? g->b->ops->copy_out(g->b, g->y, g->y_dev, n_tokens * N * 4, err) : status;
}

/* Compares with results in doubles. Tolerance: an activation's factor is off by 2^-11 of it or, if small, by 2^-21;
 * sums of K terms are off by K 2^-24. There is no more tolerance, so lost bits of weights are detected. */
static void check_y(const struct gemm *g, enum k_dtype dtype, uint32_t n_tokens)
{
    for (uint32_t t = 0; t < n_tokens; t++)
        for (uint32_t r = 0; r < N; r++) {
            double sum = g->bias[r], magnitude = fabs(sum), weights = 0;
            for (uint32_t k = 0; k < K; k++) {
                uint16_t bits = g->w[r * K + k];
                double w = dtype == K_F16 ? page_f32_from_f16(bits) : page_f32_from_bf16(bits),
                       term = g->x[t * K + k] * w;
                sum += term;
                magnitude += fabs(term);
                weights += fabs(w);
            }
            assert_true(fabs(g->y[t * N + r] - sum) <= magnitude * (0x1p-11 + 2 * K * 0x1p-24) + weights * 0x1p-21);
        }
}

static void test_who_computes(void **state)
{
    (void)state;
    static const enum k_dtype dtypes[] = {K_F16, K_BF16};
    struct quire_error err;
    for (int i = 0; i < 2; i++) {
        struct k_backend *b = open_off();
        struct gemm g;
        make(&g, b, dtypes[i]);
        static const uint32_t counts[] = {1, 32, 33, 64, T};
        for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++) {
            unsigned long before = simt_calls("cublasLtMatmul");
            ok(run(&g, counts[n], &err), &err);
            assert_int_equal(simt_calls("cublasLtMatmul") - before, counts[n] > 32);
            check_y(&g, dtypes[i], counts[n]);
        }
        unsigned long asked = simt_calls("cublasLtMatmulAlgoGetHeuristic");
        ok(run(&g, 50, &err), &err); /* in a known bucket */
        assert_int_equal(simt_calls("cublasLtMatmulAlgoGetHeuristic"), asked);
        drop(&g);
        close_gpu(b);
    }
}

/* SiLU is a separate launch here, with the same arithmetic. */
static void test_gate_and_up(void **state)
{
    (void)state;
    struct quire_error err;
    struct k_backend *b = open_off();
    struct gemm g;
    static float out[T * N / 2], page[N / 2];
    make(&g, b, K_BF16);
    ok(run(&g, T, &err), &err);
    const struct k_gemm_gated_args args = {.gemm = args_of(&g, T), .out_dev = g.out_dev};
    ok(b->ops->gemm_gated(b, &args, &err), &err);
    ok(b->ops->copy_out(b, out, g.out_dev, sizeof out, &err), &err);
    for (uint32_t t = 0; t < T; t++) {
        page_gate((struct k_gate){K_GATE_SILU, 0.0f}, g.y + t * N, N / 2, page);
        assert_memory_equal(out + t * N / 2, page, sizeof page);
    }
    drop(&g);
    close_gpu(b);
}

/* BF16 is stored as factors with one exponent; as an embedding it must keep its value. */
static void test_embedding(void **state)
{
    (void)state;
    struct quire_error err;
    struct k_backend *b = open_off();
    struct gemm g;
    uint32_t ids[N];
    make(&g, b, K_BF16);
    assert_true(g.weight->has_one_exponent);
    for (uint32_t i = 0; i < N; i++)
        ids[i] = i;
    put(b, g.bias_dev, ids, sizeof ids);
    float *out_dev = new_memory(b, N * K * 4, false), out[N * K];
    const struct k_embed_args args = {
        .table = g.weight, .ids_dev = (uint32_t *)(void *)g.bias_dev, .out_dev = out_dev, .n_tokens = N};
    ok(b->ops->embed(b, &args, &err), &err);
    ok(b->ops->copy_out(b, out, out_dev, sizeof out, &err), &err);
    for (uint32_t i = 0; i < N * K; i++)
        assert_true(out[i] == page_f32_from_bf16(g.w[i]));
    b->ops->free(b, out_dev);
    drop(&g);
    close_gpu(b);
}

/* A row's relative error must stay as in a strict engine: rows too far below the largest would lose bits as factors of
 * its e, or become zeros. Our kernel computes such a matrix. Rows of zeros, as in a padded vocabulary, do not count. */
static void test_range(void **state)
{
    (void)state;
    static const struct {
        int powers[4];
        bool is_taken;
    } cases[] = {
        {{0, -5, -11, 0}, true},
        {{-6, INT_MIN, -9, -8}, true},
        {{90, INT_MIN, 88, 87}, true},
        {{-90, INT_MIN, -88, -87}, true},
        {{INT_MIN, INT_MIN, INT_MIN, INT_MIN}, true},
        {{0, 0, 0, -22}, false},
        {{0, -70, 0, 0}, false},
        {{0, 60, 0, -60}, false},
    };
    struct quire_error err;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct k_backend *b = open_off();
        struct gemm g;
        make_of(&g, b, K_BF16, cases[i].powers, 4);
        memset(g.bias, 0, sizeof g.bias); /* a bias would hide a small row's loss */
        put(b, g.bias_dev, g.bias, sizeof g.bias);
        assert_int_equal(g.weight->has_one_exponent, cases[i].is_taken);
        unsigned long before = simt_calls("cublasLtMatmul");
        ok(run(&g, T, &err), &err);
        assert_int_equal(simt_calls("cublasLtMatmul") - before, cases[i].is_taken);
        check_y(&g, K_BF16, T);
        drop(&g);
        close_gpu(b);
    }
}

/* The largest number of each row is set. A row 15 powers of two below is accepted with all its bits; a row 16 below is
 * not. */
static void test_range_to_the_bit(void **state)
{
    (void)state;
    struct quire_error err;
    for (int below = 15; below <= 16; below++) {
        struct k_backend *b = open_off();
        uint16_t w[4 * 8], back[4 * 8];
        int8_t exponents[4];
        for (uint32_t i = 0; i < 4 * 8; i++) {
            float largest = ldexpf(1.9921875f, i < 8 ? 0 : -below); /* all eight bits */
            w[i] = page_bf16_from_f32(ldexpf(largest, -(int)(i % 8) * 2));
        }
        const struct k_weight_view view = k_plain_view(w, K_BF16, 4, 8, 16);
        struct k_weight *weight;
        ok(b->ops->weight_create(b, &view, 1, 1, &weight, &err), &err);
        assert_int_equal(weight->has_one_exponent, below == 15);
        ok(b->ops->copy_out(b, back, weight->data_dev, sizeof back, &err), &err);
        ok(b->ops->copy_out(b, exponents, weight->exponents_dev, sizeof exponents, &err), &err);
        for (uint32_t i = 0; i < 4 * 8; i++) {
            int e = weight->has_one_exponent ? weight->exponent : exponents[i / 8];
            assert_true(ldexpf(page_f32_from_f16(back[i]), e) == page_f32_from_bf16(w[i]));
        }
        b->ops->weight_destroy(b, weight);
        close_gpu(b);
    }
}

/* Shapes that have run before are recorded; our kernel computes others. */
static void test_recorded(void **state)
{
    (void)state;
    struct quire_error err;
    struct k_backend *b = open_off();
    struct gemm g;
    struct k_graph *graph;
    make(&g, b, K_F16);
    ok(run(&g, T, &err), &err);
    for (uint32_t n = 60; n <= T; n += T - 60) {
        const struct k_gemm_args args = args_of(&g, n);
        unsigned long before = simt_calls("cublasLtMatmul");
        ok(b->ops->graph_begin(b, &err), &err);
        ok(b->ops->gemm(b, &args, &err), &err);
        ok(b->ops->graph_end(b, &graph, &err), &err);
        assert_int_equal(simt_calls("cublasLtMatmul") - before, n == T);
        ok(b->ops->graph_launch(b, graph, &err), &err);
        ok(b->ops->copy_out(b, g.y, g.y_dev, n * N * 4, &err), &err);
        check_y(&g, K_F16, n);
        b->ops->graph_destroy(b, graph);
    }
    drop(&g);
    close_gpu(b);
}

/* The library rejects the shape in either call. Our kernel computes it, and the library is not queried again. */
static void test_refusals(void **state)
{
    (void)state;
    static const char *const calls[] = {"cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmul"};
    struct quire_error err;
    for (int i = 0; i < 2; i++) {
        struct k_backend *b = open_off();
        struct gemm g;
        make(&g, b, K_BF16);
        unsigned long before = simt_calls("cublasLtMatmul");
        simt_fail_call(calls[i], 1, (cudaError_t)15);
        for (int again = 0; again < 2; again++) {
            ok(run(&g, T, &err), &err);
            check_y(&g, K_BF16, T);
        }
        assert_int_equal(simt_calls("cublasLtMatmul") - before, i);
        drop(&g);
        close_gpu(b);
        simt_new_device();
    }
}

/* An address that the fastest kernels do not support. */
static void test_addresses(void **state)
{
    (void)state;
    struct quire_error err;
    struct k_backend *b = open_off();
    struct gemm g;
    make(&g, b, K_F16);
    struct k_gemm_args args = args_of(&g, T - 1);
    args.y_dev++;
    unsigned long before = simt_calls("cublasLtMatmul");
    ok(b->ops->gemm(b, &args, &err), &err);
    assert_int_equal(simt_calls("cublasLtMatmul"), before);
    drop(&g);
    close_gpu(b);
}

static void test_failures(void **state)
{
    (void)state;
    static const char *const calls[] = {"cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmul", "cublasLtMatmulDescCreate",
                                        "cublasLtMatrixLayoutCreate", "cublasLtMatmulPreferenceCreate"};
    struct quire_error err;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        struct k_backend *b = open_off();
        struct gemm g;
        make(&g, b, K_BF16);
        simt_fail_call(calls[i], 1, (cudaError_t)13);
        assert_int_equal(run(&g, T, &err), QUIRE_INTERNAL);
        assert_says(&err, "gemm by cuBLASLt: CUBLAS_STATUS_EXECUTION_FAILED; the GPU's state is lost");
        assert_int_equal(run(&g, 1, &err), QUIRE_INTERNAL);
        drop(&g);
        close_gpu(b);
    }
    struct k_backend *b;
    simt_fail_call("cublasLtCreate", 1, (cudaError_t)1);
    assert_int_equal(try_off(K_FORM_AUTO, &b, &err), QUIRE_UNSUPPORTED);
    assert_says(&err, "cuBLASLt does not start on this GPU: CUBLAS_STATUS_NOT_INITIALIZED");
    assert_int_equal(simt_live(), 0);
}

/* The lane form gives a CPU's bits with and without the option. */
static void test_lane(void **state)
{
    (void)state;
    struct quire_error err;
    struct k_backend *b;
    ok(try_off(K_FORM_LANE, &b, &err), &err);
    assert_null(b->gemm_library);
    close_gpu(b);
}

static void test_absent(void **state)
{
    struct quire_error err;
    struct k_backend *b;
    assert_int_equal(try_off(K_FORM_AUTO, &b, &err), QUIRE_INVALID);
    assert_null(b);
    assert_says(&err, "device cuda: --invariance off needs cuBLASLt, but libcublasLt");
    assert_says(&err, "LD_LIBRARY_PATH");
    assert_int_equal(simt_live(), 0);
    test_lane(state);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest absent[] = {cmocka_unit_test_setup(test_absent, set_up)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_who_computes, set_up),     cmocka_unit_test_setup(test_gate_and_up, set_up),
        cmocka_unit_test_setup(test_embedding, set_up),        cmocka_unit_test_setup(test_range, set_up),
        cmocka_unit_test_setup(test_range_to_the_bit, set_up), cmocka_unit_test_setup(test_recorded, set_up),
        cmocka_unit_test_setup(test_refusals, set_up),         cmocka_unit_test_setup(test_addresses, set_up),
        cmocka_unit_test_setup(test_failures, set_up),         cmocka_unit_test_setup(test_lane, set_up),
    };
    if (argc > 1 && strcmp(argv[1], "absent") == 0)
        return cmocka_run_group_tests(absent, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
