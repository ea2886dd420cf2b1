/* The lane form: y[t, r] = lane sum over k of w[r, k] · x[t, k] (docs/numerics.md §5).
 *
 * Bytes: a weight is read from memory once per call. A block of rows that fits the first-level
 * cache meets four tokens at a time; the weights are widened in registers, once per four tokens. A
 * lane is a chain of fmas, so four tokens give the eight chains that hide an fma's latency.
 */
#include "kernels/ref/lanes.h"
#include "kernels/ref/ref.h"

#define ROW_BLOCK_BYTES 16384u /* of weights that stay in the first-level cache */
#define ROW_BLOCK_LEAST 8u     /* rows, however long: activations are read once for each block */

struct row_block {
    const struct host_part *part;
    uint32_t first, n; /* rows of the part */
};

static inline struct ref_lanes load_weights(const unsigned char *row, enum k_dtype dtype, uint32_t k)
{
    if (dtype == K_F16)
        return ref_load_f16((const uint16_t *)(const void *)row + k);
    if (dtype == K_BF16)
        return ref_load_bf16((const uint16_t *)(const void *)row + k);
    return ref_load_f32((const float *)(const void *)row + k);
}

/* The last, incomplete group of a row, filled with zeros. */
static inline struct ref_lanes load_last_weights(const unsigned char *row, enum k_dtype dtype, uint32_t k,
                                                 uint32_t n_cols)
{
    size_t size = k_dtype_bytes(dtype);
    float group[K_LANES] = {0};
    memcpy(group, row + k * size, (n_cols - k) * size);
    return load_weights((const unsigned char *)group, dtype, 0);
}

static inline struct ref_lanes load_last_f32(const float *x, uint32_t k, uint32_t n_cols)
{
    float group[K_LANES] = {0};
    memcpy(group, x + k, (n_cols - k) * sizeof *x);
    return ref_load_f32(group);
}

/* One row against four tokens; x's rows are n_cols apart. */
static inline __attribute__((always_inline)) void dot_4_tokens(const unsigned char *row, enum k_dtype dtype,
                                                               const float *x, uint32_t n_cols, float y[4])
{
    const float *x0 = x, *x1 = x0 + n_cols, *x2 = x1 + n_cols, *x3 = x2 + n_cols;
    struct ref_lanes s0 = ref_zero(), s1 = s0, s2 = s0, s3 = s0;
    uint32_t full = n_cols - n_cols % K_LANES;
    for (uint32_t k = 0; k < full; k += K_LANES) {
        struct ref_lanes w = load_weights(row, dtype, k);
        s0 = ref_fma(w, ref_load_f32(x0 + k), s0);
        s1 = ref_fma(w, ref_load_f32(x1 + k), s1);
        s2 = ref_fma(w, ref_load_f32(x2 + k), s2);
        s3 = ref_fma(w, ref_load_f32(x3 + k), s3);
    }
    if (full < n_cols) {
        struct ref_lanes w = load_last_weights(row, dtype, full, n_cols);
        s0 = ref_fma(w, load_last_f32(x0, full, n_cols), s0);
        s1 = ref_fma(w, load_last_f32(x1, full, n_cols), s1);
        s2 = ref_fma(w, load_last_f32(x2, full, n_cols), s2);
        s3 = ref_fma(w, load_last_f32(x3, full, n_cols), s3);
    }
    y[0] = ref_fold(s0);
    y[1] = ref_fold(s1);
    y[2] = ref_fold(s2);
    y[3] = ref_fold(s3);
}

static inline __attribute__((always_inline)) float dot_1_token(const unsigned char *row, enum k_dtype dtype,
                                                               const float *x, uint32_t n_cols)
{
    struct ref_lanes s = ref_zero();
    uint32_t full = n_cols - n_cols % K_LANES;
    for (uint32_t k = 0; k < full; k += K_LANES)
        s = ref_fma(load_weights(row, dtype, k), ref_load_f32(x + k), s);
    if (full < n_cols)
        s = ref_fma(load_last_weights(row, dtype, full, n_cols), load_last_f32(x, full, n_cols), s);
    return ref_fold(s);
}

static inline __attribute__((always_inline)) void gemm_block(const struct k_gemm_args *a, struct row_block block,
                                                             enum k_dtype dtype)
{
    const struct host_part *part = block.part;
    uint32_t n_cols = a->weight->n_cols, n_rows = a->weight->n_rows;
    uint32_t in_fours = a->n_tokens - a->n_tokens % 4;
    for (uint32_t t = 0; t < a->n_tokens; t += t < in_fours ? 4 : 1) {
        const float *x = a->x_dev + (uint64_t)t * n_cols;
        for (uint32_t i = block.first; i < block.first + block.n; i++) {
            const unsigned char *row = part->data + i * part->row_stride_bytes;
            uint32_t r = part->first_row + i;
            float *y = a->y_dev + (uint64_t)t * n_rows + r;
            float sums[4];
            uint32_t n = 4;
            if (t < in_fours) {
                dot_4_tokens(row, dtype, x, n_cols, sums);
            } else {
                sums[0] = dot_1_token(row, dtype, x, n_cols);
                n = 1;
            }
            for (uint32_t u = 0; u < n; u++)
                y[(uint64_t)u * n_rows] = a->bias_dev ? sums[u] + a->bias_dev[r] : sums[u];
        }
    }
}

/* Rows [begin, end) of a part. */
static void gemm_lane_rows(const struct k_gemm_args *a, const struct host_part *part, uint32_t begin, uint32_t end)
{
    uint64_t row_bytes = k_format_bytes(part->format, a->weight->n_cols);
    uint32_t step = (uint32_t)(ROW_BLOCK_BYTES / row_bytes);
    step = step < ROW_BLOCK_LEAST ? ROW_BLOCK_LEAST : step;
    for (uint32_t i = begin; i < end; i += step) {
        struct row_block block = {part, i, end - i < step ? end - i : step};
        if (part->format.kind == K_F16)
            gemm_block(a, block, K_F16);
        else if (part->format.kind == K_BF16)
            gemm_block(a, block, K_BF16);
        else
            gemm_block(a, block, K_F32);
    }
}

struct gemm_task {
    struct k_gemm_args args;
    enum k_gemm_form form;
};

/* A thread's share of the rows, cut where parts meet. */
static void gemm_task(void *context, uint32_t thread, uint32_t n_threads)
{
    const struct gemm_task *task = context;
    const struct k_weight *w = task->args.weight;
    uint32_t row_begin, row_end;
    for (uint32_t p = 0; p < w->n_parts; p++) {
        const struct host_part *part = &w->parts[p];
        if (!host_part_share(w, part, 1, thread, n_threads, &row_begin, &row_end))
            continue;
        if (task->form != K_FORM_LANE)
            ref_gemm_tile_rows(&task->args, task->form, part, row_begin, row_end);
        else
            gemm_lane_rows(&task->args, part, row_begin, row_end);
    }
}

int ref_gemm(struct k_backend *b, const struct k_gemm_args *a, struct quire_error *err)
{
    int status = host_check_form(b, a->weight, err);
    if (status != QUIRE_OK)
        return status;
    struct gemm_task task = {*a, b->form};
    uint64_t work = (uint64_t)a->weight->n_rows * a->weight->n_cols * a->n_tokens;
    host_run(b, work, gemm_task, &task);
    return QUIRE_OK;
}
