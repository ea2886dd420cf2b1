/* Weights of the cuda backend on the emulated GPU: the data on the device, and the factors of BF16 in the mma form. */
#include "tests/kernels/cuda_fixture.h"
#include "tests/kernels/page.h"

#include <math.h>

/* Computes e of docs/internals/numerics.md §17 directly from the numbers. */
static int naive_exponent(const uint16_t *row, uint32_t n_cols)
{
    double largest = 0;
    for (uint32_t i = 0; i < n_cols; i++) {
        uint32_t bits = (uint32_t)row[i] << 16;
        float w;
        memcpy(&w, &bits, sizeof w);
        if (isfinite(w) && fabs((double)w) > largest)
            largest = fabs((double)w);
    }
    if (largest == 0)
        return 0;
    int e = 0;
    while (ldexp(largest, -e) < 16384)
        e--;
    while (ldexp(largest, -e) >= 32768)
        e++;
    return e < -120 ? -120 : e;
}

/* Compares a row of BF16 with factors of e, one number at a time. */
static void assert_factors(const uint16_t *factors, const uint16_t *row, uint32_t n_cols, int e)
{
    for (uint32_t i = 0; i < n_cols; i++) {
        float w = page_f32_from_bf16(row[i]);
        uint16_t want = page_f16_from_f32(ldexpf(w, -e));
        if (isnan(w))
            assert_true(isnan(page_f32_from_f16(factors[i])));
        else
            assert_int_equal(factors[i], want);
    }
}

static void check_weight(struct k_backend *b, const struct k_weight *w, const struct k_weight_view *parts,
                         uint32_t n_parts)
{
    struct quire_error err;
    size_t size = k_format_bytes(parts[0].format, 1), width = parts[0].n_cols * size;
    assert_int_equal(w->n_cols, parts[0].n_cols);
    assert_int_equal(w->row_stride_bytes, (width + 15) / 16 * 16);
    assert_int_equal((uintptr_t)w->data_dev % 16, 0);
    uint64_t bytes = w->n_rows * w->row_stride_bytes;
    unsigned char *data = malloc(bytes), *zeros = calloc(1, 16);
    int8_t *exponents = malloc(w->n_rows);
    ok(b->ops->copy_out(b, data, w->data_dev, bytes, &err), &err);
    bool is_factors = w->format.kind == K_BF16 && b->form == K_FORM_MMA;
    assert_int_equal(w->exponents_dev != NULL, is_factors);
    assert_int_equal(w->stored, is_factors ? K_F16 : w->format.kind);
    if (w->exponents_dev)
        ok(b->ops->copy_out(b, exponents, w->exponents_dev, w->n_rows, &err), &err);
    uint32_t row = 0;
    for (uint32_t p = 0; p < n_parts; p++) {
        for (uint32_t r = 0; r < parts[p].n_rows; r++, row++) {
            const unsigned char *at = data + row * w->row_stride_bytes;
            const void *from = (const char *)parts[p].data + r * parts[p].row_stride_bytes;
            const void *whole = parts[p].whole ? (const char *)parts[p].whole + r * parts[p].row_stride_bytes : from;
            assert_memory_equal(at + width, zeros, w->row_stride_bytes - width);
            if (!is_factors) {
                assert_memory_equal(at, from, width);
                continue;
            }
            assert_int_equal(exponents[row], naive_exponent(whole, parts[p].whole ? parts[p].whole_cols : w->n_cols));
            assert_factors((const uint16_t *)(const void *)at, from, w->n_cols, exponents[row]);
        }
    }
    assert_int_equal(w->n_rows, row);
    free(data);
    free(zeros);
    free(exponents);
}

static void try_weight(struct k_backend *b, const struct k_weight_view *parts, uint32_t n_parts)
{
    struct quire_error err;
    struct k_weight *w;
    ok(b->ops->weight_create(b, parts, 1, n_parts, &w, &err), &err);
    check_weight(b, w, parts, n_parts);
    b->ops->weight_destroy(b, w);
}

static void test_weights(void **state)
{
    (void)state;
    struct k_backend *b = open_gpu();
    const uint64_t bytes = 26 * MIB;
    unsigned char *memory = malloc(bytes);
    fill(memory, bytes, 5);
    static const struct {
        uint32_t n_rows, n_cols, extra_cols, n_parts, offset; /* in elements */
    } cases[] = {
        {1, 1, 0, 1, 0},      {3, 1, 0, 1, 1},       {1, 7, 0, 1, 1},       {5, 8, 0, 1, 0},
        {9, 17, 0, 3, 1},     {4, 100, 3, 4, 5},     {64, 64, 0, 2, 0},     {33, 64, 64, 1, 7},
        {700, 1001, 0, 1, 3}, {1200, 1024, 0, 2, 1}, {2, 3000000, 1, 1, 1}, {40, 65, 100000, 1, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int dtype = K_F32; dtype <= K_BF16; dtype++) {
            struct k_weight_view parts[4];
            uint64_t size = k_dtype_bytes((enum k_dtype)dtype), at = cases[i].offset * size;
            for (uint32_t p = 0; p < cases[i].n_parts; p++) {
                uint64_t stride = (cases[i].n_cols + cases[i].extra_cols) * size;
                parts[p] = k_plain_view(memory + at, (enum k_dtype)dtype, cases[i].n_rows + p, cases[i].n_cols, stride);
                at += stride * parts[p].n_rows;
                assert_true(at <= bytes);
            }
            try_weight(b, parts, cases[i].n_parts);
        }
    }
    free(memory);
    close_gpu(b);
}

/* A model's weights are loaded one after the other, without waits in between. */
static void test_weights_in_a_row(void **state)
{
    (void)state;
    enum { N = 7 };
    struct k_backend *b = open_gpu();
    struct quire_error err;
    const uint64_t bytes = 13 * MIB;
    unsigned char *memory = malloc(bytes), *original = malloc(bytes);
    struct k_weight_view views[N];
    struct k_weight *weights[N];
    fill(original, bytes, 6);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t n_cols = i % 2 ? 1500001 : 70001;
        views[i] = k_plain_view(memory + i * 2, K_BF16, 12 * 1024 * 1024 / 2 / n_cols, n_cols, n_cols * 2);
        memcpy(memory, original, bytes);
        ok(b->ops->weight_create(b, &views[i], 1, 1, &weights[i], &err), &err);
        memset(memory, 0xEE, bytes); /* the device, or the staging memory, has a copy */
    }
    memcpy(memory, original, bytes);
    for (uint32_t i = 0; i < N; i++) {
        check_weight(b, weights[i], &views[i], 1);
        b->ops->weight_destroy(b, weights[i]);
    }
    free(memory);
    free(original);
    close_gpu(b);
}

/* Rows of zeros, denormals, infinities and NaNs among others, and each power of two. */
static void test_exponents(void **state)
{
    (void)state;
    enum { N_COLS = 300 };
    struct k_backend *b = open_gpu();
    uint16_t *data = calloc(256 * 4 * N_COLS, sizeof *data);
    for (uint32_t e = 0; e < 256;
         e++) { /* in turn: alone; its negative largest; with an inf; with a NaN and a denormal */
        uint16_t largest = (uint16_t)(e << 7 | (e * 37 & 127));
        for (uint32_t k = 0; k < 4; k++) {
            uint16_t *row = data + (e * 4 + k) * N_COLS;
            row[(e * 71 + k) % N_COLS] = (uint16_t)(largest | (k & 1) << 15);
            if (k >= 2)
                row[(e * 71 + 150) % N_COLS] = k == 2 ? 0x7f80 : 0xffc1;
            if (k == 3)
                row[(e * 71 + 151) % N_COLS] = 1;
        }
    }
    data[0] = 0x8000;
    struct k_weight_view part = k_plain_view(data, K_BF16, 1024, N_COLS, N_COLS * sizeof *data);
    try_weight(b, &part, 1);
    static const char *const orders[] = {"forward", "reverse", "random"};
    for (int i = 0; i < 3; i++) {
        setenv("QUIRE_SIMT_ORDER", orders[i], 1);
        part.n_rows = 13;
        try_weight(b, &part, 1);
    }
    unsetenv("QUIRE_SIMT_ORDER");
    struct k_weight_view cut[2] = {part, part}; /* columns of two ranks: the first 7, and the last of the others */
    cut[0].whole = cut[1].whole = data;
    cut[0].whole_cols = cut[1].whole_cols = N_COLS;
    cut[0].n_cols = cut[1].n_cols = 7;
    cut[0].n_rows = 1024;
    cut[1].data = data + N_COLS - 7;
    try_weight(b, cut, 2);
    free(data);
    close_gpu(b);
}

/* The lane form widens the stored numbers. */
static void test_lane_form(void **state)
{
    (void)state;
    struct k_backend *b;
    struct quire_error err;
    uint16_t data[5 * 20];
    fill((unsigned char *)data, sizeof data, 8);
    ok(try_open("cuda", K_FORM_LANE, K_BF16, &b, &err), &err);
    const struct k_weight_view part = k_plain_view(data, K_BF16, 5, 20, 40);
    try_weight(b, &part, 1);
    close_gpu(b);
}

/* Factors as an embedding: exact down to 2^-31 of the row's largest; smaller numbers are off by at most half of 2^-24 ·
 * 2^e. */
static void test_embedding(void **state)
{
    (void)state;
    enum { N_ROWS = 4, N_COLS = 64 };
    static const int largest[N_ROWS] = {0, -126, 127, -30};
    struct k_backend *b = open_gpu();
    struct quire_error err;
    uint16_t data[N_ROWS * N_COLS];
    float out[N_ROWS * N_COLS];
    for (uint32_t i = 0; i < N_ROWS * N_COLS; i++)
        data[i] = page_bf16_from_f32(ldexpf(i % 2 ? -1.9921875f : 1.0078125f, largest[i / N_COLS] - (int)(i % N_COLS)));
    const struct k_weight_view part = k_plain_view(data, K_BF16, N_ROWS, N_COLS, N_COLS * sizeof *data);
    struct k_weight *w;
    ok(b->ops->weight_create(b, &part, 1, 1, &w, &err), &err);
    const uint32_t ids[N_ROWS] = {2, 0, 3, 1};
    uint32_t *ids_dev = new_memory(b, sizeof ids, false);
    float *out_dev = new_memory(b, sizeof out, false);
    ok(b->ops->copy_in(b, ids_dev, ids, sizeof ids, &err), &err);
    ok(b->ops->embed(b, &(struct k_embed_args){.table = w, .ids_dev = ids_dev, .out_dev = out_dev, .n_tokens = N_ROWS},
                     &err),
       &err);
    ok(b->ops->copy_out(b, out, out_dev, sizeof out, &err), &err);
    for (uint32_t i = 0; i < N_ROWS * N_COLS; i++) {
        uint32_t row = ids[i / N_COLS];
        double want = page_f32_from_bf16(data[row * N_COLS + i % N_COLS]), most = ldexp(1, largest[row] - 14 - 25);
        if (i % N_COLS <= 31)
            assert_true(out[i] == (float)want);
        else
            assert_true(fabs(out[i] - want) <= most);
    }
    b->ops->free(b, ids_dev);
    b->ops->free(b, out_dev);
    b->ops->weight_destroy(b, w);
    close_gpu(b);
}

static void test_bad_weights(void **state)
{
    (void)state;
    struct k_backend *b = open_gpu();
    struct quire_error err;
    struct k_weight *w;
    static const uint16_t data[64] = {0};
    const struct k_weight_view good = k_plain_view(data, K_F16, 4, 8, 16);
    struct k_weight_view pair[2] = {good, good};
    pair[1].format = k_format_of(K_BF16);
    assert_int_equal(b->ops->weight_create(b, pair, 1, 2, &w, &err), QUIRE_UNSUPPORTED);
    assert_null(w);
    assert_says(&err, "part 1: is bfloat16, but part 0 is float16");
    pair[1] = good;
    pair[1].n_cols = 7;
    assert_int_equal(b->ops->weight_create(b, pair, 1, 2, &w, &err), QUIRE_INVALID);
    assert_says(&err, "part 1");
    pair[1] = good;
    pair[1].whole = data;
    pair[1].whole_cols = 9; /* of rows of 8 */
    assert_int_equal(b->ops->weight_create(b, pair, 1, 2, &w, &err), QUIRE_INVALID);
    assert_says(&err, "part 1: not a column range of the rows of `whole`");
    assert_int_equal(b->ops->weight_create(b, pair, 1, 0, &w, &err), QUIRE_INVALID);
    pair[1] = k_plain_view(data, K_F32, 1u << 31, 1u << 30, UINT64_C(1) << 32);
    assert_int_equal(b->ops->weight_create(b, &pair[1], 1, 1, &w, &err), QUIRE_NO_MEMORY);
    assert_null(w);
    simt_fail_call("cudaMalloc", 1, cudaErrorMemoryAllocation);
    assert_int_equal(b->ops->weight_create(b, &good, 1, 1, &w, &err), QUIRE_NO_MEMORY);
    assert_null(w);
    ok(b->ops->weight_create(b, &good, 1, 1, &w, &err), &err);
    b->ops->weight_destroy(b, w);
    b->ops->weight_destroy(b, NULL);
    close_gpu(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_weights, set_up),   cmocka_unit_test_setup(test_weights_in_a_row, set_up),
        cmocka_unit_test_setup(test_exponents, set_up), cmocka_unit_test_setup(test_lane_form, set_up),
        cmocka_unit_test_setup(test_embedding, set_up), cmocka_unit_test_setup(test_bad_weights, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
