/* Quantized weights (docs/internals/numerics.md §19) in both of their forms, one row with one token at a time. */
#include "kernels/math/lane_sum.h"
#include "kernels/math/round.h"
#include "kernels/quant.h"
#include "kernels/ref/lanes.h"
#include "kernels/ref/ref.h"
#include "kernels/segments.h"

/* Loads n floats as lanes, padded with zeros. */
static inline struct ref_lanes load(const float *x, uint32_t n)
{
    float group[K_LANES] = {0};
    if (n >= K_LANES)
        return ref_load_f32(x);
    memcpy(group, x, n * sizeof *x);
    return ref_load_f32(group);
}

/* ---- weight-only ------------------------------------------------------------------------------------ */

/* Columns [begin, end) of a row, within one segment. */
static float dot_lanes(const struct k_weight_view *w, uint32_t row, const float *x, uint32_t begin, uint32_t end)
{
    const bool has_least = k_format_has_least(w->format);
    struct ref_lanes a = ref_zero();
    for (uint32_t k = begin; k < end;) {
        uint32_t stop = k_group_end(w->format, w->n_cols, k);
        stop = stop < end ? stop : end;
        struct ref_lanes g = ref_zero(), t = ref_zero();
        float q[K_QUANT_READ], scale, least;
        k_quant_scale(w, row, k, &scale, &least);
        while (k < stop) {
            uint32_t n = stop - k < K_QUANT_READ ? stop - k : K_QUANT_READ;
            k_quant_read(w, row, k, k + n, q);
            for (uint32_t i = 0; i < n; i += K_LANES) {
                struct ref_lanes v = load(x + k + i, n - i);
                g = ref_fma(load(q + i, n - i), v, g);
                t = (struct ref_lanes){t.low + v.low, t.high + v.high};
            }
            k += n;
        }
        a = ref_fma(ref_splat(scale), g, a);
        if (has_least)
            a = ref_fma(ref_splat(least), t, a);
    }
    return ref_fold(a);
}

/* ---- int8 -------------------------------------------------------------------------------------------- */

/* A token's activations in the int8 form: u, and a scale for each piece of columns that share one. */
struct rounded {
    int8_t *u;
    float *scale; /* column k in segment i has scale[k / group + i]; group 0: scale[0] */
    uint32_t group;
};

/* Returns the bytes for one token: its u, then its scales. */
static size_t rounded_bytes(uint32_t n_cols)
{
    return ((size_t)n_cols + 3) / 4 * 4 + (n_cols / 32 + 1 + K_SEGMENTS) * sizeof(float);
}

static struct rounded rounded_at(const struct k_gemm_args *a, uint32_t token, uint32_t group)
{
    const uint32_t n_cols = a->weight->n_cols;
    int8_t *u = (int8_t *)a->workspace_dev + token * rounded_bytes(n_cols);
    return (struct rounded){u, (float *)(void *)(u + ((size_t)n_cols + 3) / 4 * 4), group};
}

/* Rounds columns that share a scale. Returns the scale. */
static float round_group(const struct k_weight_view *w, const float *x, uint32_t begin, uint32_t end, int8_t *u)
{
    uint32_t largest = 0; /* largest |x|, compared as bits, so a NaN is the largest */
    for (uint32_t k = begin; k < end && w->x_scale == 0; k++) {
        uint32_t bits = k_f32_bits(x[w->permutation ? w->permutation[k] : k]) & 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    const float most = k_f32_from_bits(largest);
    const bool states = w->x_scale != 0;
    const float factor = states ? 1.0f / w->x_scale : k_round_factor(most);
    for (uint32_t k = begin; k < end; k++)
        u[k] = k_round_int8(x[w->permutation ? w->permutation[k] : k], factor);
    return states ? w->x_scale : k_round_scale(most);
}

struct quant_task {
    struct k_gemm_args args;
    const struct host_part *part;
    bool as_int8;
};

static void round_task(void *context, struct k_piece piece)
{
    const struct quant_task *task = context;
    const struct k_gemm_args *a = &task->args;
    const struct k_weight_view *w = &task->part->view;
    const uint32_t n_cols = w->n_cols, group = k_quant_x_group(w->format);
    uint64_t first, last;
    k_pool_share(a->n_tokens, piece, &first, &last);
    for (uint64_t t = first; t < last; t++) {
        const float *x = a->x_dev + t * n_cols;
        struct rounded r = rounded_at(a, (uint32_t)t, group);
        if (group == 0) {
            r.scale[0] = round_group(w, x, 0, n_cols, r.u);
            continue;
        }
        for (uint32_t i = 0; i < K_SEGMENTS; i++) {
            uint32_t end = k_segment_begin_in(n_cols, a->n_whole, a->first_col, a->unit, i + 1);
            for (uint32_t k = k_segment_begin_in(n_cols, a->n_whole, a->first_col, a->unit, i), stop; k < end;
                 k = stop) {
                stop = k - k % group + group < end ? k - k % group + group : end;
                r.scale[k / group + i] = round_group(w, x, k, stop, r.u);
            }
        }
    }
}

/* Columns [begin, end) of a row, in segment i. */
static float dot_int8(const struct k_weight_view *w, uint32_t row, struct rounded x, uint32_t begin, uint32_t end,
                      uint32_t i)
{
    const bool has_least = k_format_has_least(w->format);
    float sum = 0;
    for (uint32_t k = begin; k < end;) {
        uint32_t stop = k_group_end(w->format, w->n_cols, k);
        if (x.group && stop > k - k % x.group + x.group)
            stop = k - k % x.group + x.group;
        stop = stop < end ? stop : end;
        float q[K_QUANT_READ], scale, least, d = x.scale[x.group ? k / x.group + i : 0];
        k_quant_scale(w, row, k, &scale, &least);
        int64_t products = 0, inputs = 0; /* exact */
        while (k < stop) {
            uint32_t n = stop - k < K_QUANT_READ ? stop - k : K_QUANT_READ;
            k_quant_read(w, row, k, k + n, q);
            for (uint32_t j = 0; j < n; j++) {
                products += (int64_t)q[j] * x.u[k + j];
                inputs += x.u[k + j];
            }
            k += n;
        }
        sum = __builtin_fmaf(scale * d, (float)products, sum);
        if (has_least)
            sum = __builtin_fmaf(least * d, (float)inputs, sum);
    }
    return sum;
}

/* ---- both -------------------------------------------------------------------------------------------- */

static float dot_segment(const struct quant_task *task, const float *gathered, uint32_t row, uint32_t token, uint32_t i)
{
    const struct k_gemm_args *a = &task->args;
    const struct k_weight_view *w = &task->part->view;
    const uint32_t begin = k_segment_begin_in(w->n_cols, a->n_whole, a->first_col, a->unit, i);
    const uint32_t end = k_segment_begin_in(w->n_cols, a->n_whole, a->first_col, a->unit, i + 1);
    if (begin == end)
        return -0.0f; /* an empty segment: adding -0 changes no number */
    if (task->as_int8)
        return dot_int8(w, row, rounded_at(a, token, k_quant_x_group(w->format)), begin, end, i);
    return dot_lanes(w, row, gathered, begin, end);
}

static void rows_task(void *context, struct k_piece piece)
{
    const struct quant_task *task = context;
    const struct k_gemm_args *a = &task->args;
    const struct host_part *part = task->part;
    const uint64_t n_cols = a->weight->n_cols, n_rows = a->weight->n_rows;
    const bool gathers = part->view.permutation && !task->as_int8;
    uint32_t begin, end;
    if (!host_part_share(a->weight, part, 1, piece, &begin, &end))
        return;
    for (uint32_t t = 0; t < a->n_tokens; t++) {
        const float *x = gathers ? (const float *)a->workspace_dev + t * n_cols : a->x_dev + t * n_cols;
        for (uint32_t row = begin; row < end; row++) {
            float s[K_SEGMENTS];
            for (uint32_t i = 0; i < K_SEGMENTS; i++)
                s[i] = dot_segment(task, x, row, t, i);
            float sum = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
            const uint32_t r = part->first_row + row;
            a->y_dev[t * n_rows + r] = a->bias_dev ? sum + a->bias_dev[r] : sum;
        }
    }
}

static void gather_task(void *context, struct k_piece piece)
{
    const struct quant_task *task = context;
    const struct k_gemm_args *a = &task->args;
    const uint64_t n_cols = a->weight->n_cols;
    uint64_t first, last;
    k_pool_share(a->n_tokens, piece, &first, &last);
    for (uint64_t t = first; t < last; t++)
        for (uint64_t k = 0; k < n_cols; k++)
            ((float *)a->workspace_dev)[t * n_cols + k] = a->x_dev[t * n_cols + task->part->view.permutation[k]];
}

void ref_gemm_quant(struct k_backend *b, const struct k_gemm_args *a, const struct host_part *part)
{
    struct quant_task task = {*a, part, b->form == K_FORM_INT8};
    const uint64_t inputs = (uint64_t)a->weight->n_cols * a->n_tokens;
    if (task.as_int8)
        host_run(b, inputs, round_task, &task);
    else if (part->view.permutation)
        host_run(b, inputs, gather_task, &task);
    host_run(b, inputs * a->weight->n_rows, rows_task, &task);
}
