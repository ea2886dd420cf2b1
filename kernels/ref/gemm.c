/* GEMM: y[t, r] = the sum over k of w[r, k] · x[t, k], in its lane form (docs/internals/numerics.md §5). Computes one
 * row with one token at a time and widens a weight once per token. The optimized versions are in kernels/cpu. */
#include "kernels/math/lane_sum.h"
#include "kernels/ref/lanes.h"
#include "kernels/ref/ref.h"
#include "kernels/segments.h"

static inline struct ref_lanes load_weights(const unsigned char *row, enum k_dtype dtype, uint32_t k)
{
    if (dtype == K_F16)
        return ref_load_f16((const uint16_t *)(const void *)row + k);
    if (dtype == K_BF16)
        return ref_load_bf16((const uint16_t *)(const void *)row + k);
    return ref_load_f32((const float *)(const void *)row + k);
}

/* Loads the last, incomplete group of a row and pads it with zeros. */
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

static float dot(const unsigned char *row, enum k_dtype dtype, const float *x, uint32_t n_cols)
{
    struct ref_lanes s = ref_zero();
    uint32_t full = n_cols - n_cols % K_LANES;
    for (uint32_t k = 0; k < full; k += K_LANES)
        s = ref_fma(load_weights(row, dtype, k), ref_load_f32(x + k), s);
    if (full < n_cols)
        s = ref_fma(load_last_weights(row, dtype, full, n_cols), load_last_f32(x, full, n_cols), s);
    return ref_fold(s);
}

static float dot_segment(const unsigned char *row, enum k_dtype dtype, const float *x, uint32_t n_cols,
                         enum k_gemm_form form)
{
    if (form == K_FORM_LANE || form == K_FORM_INT8)
        return dot(row, dtype, x, n_cols);
    return ref_dot_tile((const uint16_t *)(const void *)row, dtype, x, n_cols, form == K_FORM_TILE ? 2 : 1);
}

/* Computes one row with one token: its segments and their sum. -0 stands for an empty segment, because adding it
 * changes no number. */
static float dot_segments(const struct k_gemm_args *a, const unsigned char *row, enum k_dtype dtype, const float *x,
                          enum k_gemm_form form)
{
    float s[K_SEGMENTS];
    for (uint32_t i = 0; i < K_SEGMENTS; i++) {
        uint32_t begin = k_segment_begin_in(a->weight->n_cols, a->n_whole, a->first_col, a->unit, i);
        uint32_t end = k_segment_begin_in(a->weight->n_cols, a->n_whole, a->first_col, a->unit, i + 1);
        const unsigned char *w = row + begin * k_dtype_bytes(dtype);
        s[i] = begin < end ? dot_segment(w, dtype, x + begin, end - begin, form) : -0.0f;
    }
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

/* Computes rows [begin, end) of a part. */
static void gemm_rows(const struct k_gemm_args *a, const struct host_part *part, enum k_gemm_form form, uint32_t begin,
                      uint32_t end)
{
    uint64_t n_cols = a->weight->n_cols, n_rows = a->weight->n_rows;
    for (uint32_t i = begin; i < end; i++) {
        const unsigned char *row = host_row(part, i);
        uint32_t r = part->first_row + i;
        for (uint32_t t = 0; t < a->n_tokens; t++) {
            float sum = dot_segments(a, row, part->view.format.kind, a->x_dev + t * n_cols, form);
            a->y_dev[t * n_rows + r] = a->bias_dev ? sum + a->bias_dev[r] : sum;
        }
    }
}

struct gemm_task {
    struct k_gemm_args args;
    enum k_gemm_form form;
};

/* Computes a thread's share of the rows, split at part boundaries. */
static void gemm_task(void *context, struct k_piece piece)
{
    const struct gemm_task *task = context;
    const struct k_weight *w = task->args.weight;
    uint32_t row_begin, row_end;
    for (uint32_t p = 0; p < w->n_parts; p++) {
        const struct host_part *part = &w->parts[p];
        if (k_format_is_plain(part->view.format) && host_part_share(w, part, 1, piece, &row_begin, &row_end))
            gemm_rows(&task->args, part, task->form, row_begin, row_end);
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
    for (uint32_t p = 0; p < a->weight->n_parts; p++)
        if (!k_format_is_plain(a->weight->parts[p].view.format))
            ref_gemm_quant(b, a, &a->weight->parts[p]);
    return QUIRE_OK;
}
