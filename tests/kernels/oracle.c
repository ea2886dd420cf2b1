/* Tolerances. u = 2^-24, a float's unit roundoff. If no term of a sum of products passes through more than n roundings,
 * the sum differs from the exact one by at most γ(n) Σ|a b|, γ(n) = n u / (1 - n u) (Higham, Accuracy and Stability,
 * §3.1, §4.2), in any order. DENORM = 2^-149 covers a result that is rounded in the denormal range. The oracle's own
 * f64 errors are 2^29 times smaller; the factor SLACK covers them and second-order terms.
 *
 * k_exp: relative error at most EXP = 2 u (0.90 ulp over all floats, and an ulp is at most 2 u); below -87.3365 it is
 * 0, an error of less than TINY_EXP = 2^-125.
 */
#include "tests/kernels/oracle.h"

#include "kernels/cases/op_run.h"
#include "tests/kernels/page.h"
#include "tests/kernels/page_mma.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define U 0x1p-24
#define DENORM 0x1p-149
#define SMALLEST_NORMAL 0x1p-126
#define SLACK 1.001
#define EXP (2 * U)
#define TINY_EXP 0x1p-125
#define EXP_HALF 7.53e-5 /* k_exp_half's relative error */
#define F16_U 0x1p-11
#define F16_TINY 0x1p-25 /* below 2^-14 f16 has multiples of 2^-24 */

/* An mma of sixteen products (tests/simt/fragments/tensor_core.h), in units of u = 2^-24 of Σ|a b| + |c|. Hopper
 * truncates 17 terms to multiples of 2^-25 of the largest and the sum to 2^-23 of it: 10.5 u. Ampere and Ada do it
 * twice, with 9 terms and 2^-24: 22 u, which is the tolerance, because it must hold for every GPU. The largest term is
 * at least 2^E only if no factor is denormal. A denormal factor has the exponent -14 and any size, so MMA_TERMS of
 * 2^-14 times the other factor are added.
 */
#define MMA 22
#define MMA_TERMS (18 * U)

struct verdict {
    double worst;
    uint32_t n_bad;
};

static double gamma_n(double n)
{
    return n * U / (1 - n * U);
}

static void judge(struct verdict *v, uint64_t token, uint64_t i, double got, double want, double tolerance)
{
    double error = fabs(got - want), limit = tolerance * SLACK + DENORM;
    double ratio = error / limit;
    if (!(ratio <= 1.0)) {
        if (v->n_bad++ < 4)
            printf("  token %llu, element %llu: got %.9g, want %.9g, off by %.3g, allowed %.3g\n",
                   (unsigned long long)token, (unsigned long long)i, got, want, error, limit);
    }
    if (ratio > v->worst)
        v->worst = ratio;
}

static double stored(const void *p, enum k_dtype dtype, uint64_t i)
{
    if (dtype == K_F32)
        return ((const float *)p)[i];
    uint16_t h = ((const uint16_t *)p)[i];
    return dtype == K_F16 ? page_f32_from_f16(h) : page_f32_from_bf16(h);
}

static double output(const struct op_array *a, uint64_t i)
{
    return a->element_bytes == 2 ? page_f32_from_f16(((const uint16_t *)(const void *)a->bytes)[i])
                                 : ((const float *)(const void *)a->bytes)[i];
}

/* The exact output of a GEMM, and the tolerance of an answer. */
struct bound {
    double want, tolerance;
    bool is_infinite; /* an activation that f16 cannot represent: no output of its token is finite */
};

/* Segments are shorter sums, of which 3 additions make one. Each may have a partial tile. */
static uint32_t fold_of_segments(const struct op_case *c)
{
    return c->unit > 0 ? 3 : 0;
}

static const struct k_weight_view *part_of(const struct op_data *d, uint64_t *row)
{
    uint32_t p = 0;
    for (; *row >= d->parts[p].n_rows; p++)
        *row -= d->parts[p].n_rows;
    return &d->parts[p];
}

/* Lane form: ⌈K/16⌉ fmas in a lane and 4 additions to fold, then the bias. Tile form: a chain of 16, e + o, then one
 * addition for each of the ⌈K/32⌉ tiles and each product of terms in it. Two bf16 terms omit at most 2^-8 · 2^-8 of an
 * activation, one term at most 2^-8. Each of the operations may flush a result below 2^-126, and so may each of the
 * factors, whose partner is at most `largest`. */
static struct bound gemm_bound(const struct op_case *c, const struct op_data *d, uint64_t t, uint64_t r)
{
    double lane_n = (c->n_cols + 15) / 16 + 4 + fold_of_segments(c);
    double tiles = (c->n_cols + 31) / 32 + (c->unit > 0 ? 8 : 0);
    double sum = 0, magnitude = 0, largest = 1;
    uint64_t row = r;
    const bool is_part = op_is_quantized(c); /* a plain part among quantized ones: f16, in the lane form */
    const void *weights = is_part ? part_of(d, &row)->data : d->weights;
    for (uint64_t k = 0; k < c->n_cols; k++) {
        double w = stored(weights, is_part ? K_F16 : c->dtype, row * c->n_cols + k);
        double x = d->x[t * c->n_cols + k];
        sum += w * x;
        magnitude += fabs(w * x);
        largest = fmax(largest, fmax(fabs(w), fabs(x)));
    }
    double bias = d->vector ? d->vector[r] : 0;
    double tolerance = gamma_n(lane_n) * magnitude + c->n_cols * DENORM;
    if (c->form != K_FORM_LANE && !is_part) {
        double products = (c->form == K_FORM_TILE ? 2 : 1) * (c->dtype == K_F16 ? 2 : 1);
        double split = c->form == K_FORM_TILE ? 0x1p-16 : 0x1p-8;
        tolerance = (split + 1.01 * gamma_n(17 + products * tiles + fold_of_segments(c))) * magnitude +
                    products * (2 * c->n_cols * largest + 3 * tiles) * SMALLEST_NORMAL;
    }
    tolerance += d->vector ? U * (fabs(sum + bias) + tolerance) : 0;
    return (struct bound){sum + bias, tolerance, false};
}

/* Mma form. An activation's factor is off by 2^-11 of it, or by 2^-25 · 2^4 below f16's normal numbers. A bf16 weight
 * of 8 bits is exact down to 2^-17 of 2^e and otherwise off by 2^-25 of it. Then come a chain of at most 32
 * instructions, MMA each, and an addition for each chunk, plus the error of denormal factors of weights. */
static struct bound gemm_mma_bound(const struct op_case *c, const struct op_data *d, uint64_t t, uint64_t r)
{
    double chain = MMA * ceil(fmin(c->n_cols, 512) / 16) + (c->n_cols + 511) / 512 + fold_of_segments(c);
    int e = c->dtype == K_BF16 ? page_mma_exponent(d->weights + r * c->n_cols * 2, c->n_cols) : 0;
    double exact = ldexp(1, e - 17), denormal = ldexp(1, e - 14), lost = c->dtype == K_BF16 ? ldexp(1, e - 25) : 0;
    double sum = 0, magnitude = 0, off = 0, largest = 0, bias = d->vector ? d->vector[r] : 0;
    for (uint64_t k = 0; k < c->n_cols; k++) {
        double w = stored(d->weights, c->dtype, r * c->n_cols + k), x = d->x[t * c->n_cols + k];
        sum += w * x;
        magnitude += fabs(w * x);
        off += fabs(w) * fmax(F16_U * fabs(x), 0x1p-21) + (fabs(w) < exact ? lost * fabs(x) : 0);
        off += fabs(w) < denormal ? MMA_TERMS * denormal * fabs(x) : 0;
        largest = fmax(largest, fabs(x));
    }
    double tolerance = 1.01 * (off + gamma_n(chain) * (magnitude + off));
    tolerance += d->vector ? U * (fabs(sum + bias) + tolerance) : 0;
    return (struct bound){sum + bias, tolerance, largest >= 65520 * 16};
}

/* The maximum change of an activation by rounding to int8: half a unit of its piece, whose largest number is `most`, or
 * the excess beyond 127 of a specified scale. A piece that a segment divides has a scale no larger than the whole
 * piece's. */
static double off_by_rounding(const struct page_weights *w, double x, double most)
{
    if (w->x_scale == 0)
        return most < 0x1p-120 ? fabs(x) : most / 127 * 0.5001;
    return fmax(fabs(x) - 127 * w->x_scale, w->x_scale * 0.5001);
}

/* Quantized weights, compared with the product with s q + m. Weight-only: a term passes a group's fmas, then one or two
 * for each group, and 4 additions to fold. int8: the change by rounding; then s d, the integer as f32 and an fma or two
 * for each piece of exact integers. A denormal product is off by DENORM, times its next factor: a scale, or an integer.
 */
static struct bound quant_bound(const struct op_case *c, const struct op_data *d, uint64_t t, uint64_t r)
{
    static struct page_weights w;
    static float x[PAGE_MAX_COLS];
    uint64_t row = r;
    const struct k_weight_view *part = part_of(d, &row);
    page_weights_read(part, (uint32_t)row, &w);
    page_gather(part, d->x + t * c->n_cols, x);
    const bool is_int8 = c->form == K_FORM_INT8;
    double group = is_int8 ? fmin(w.group, w.piece) : w.group, groups = ceil(c->n_cols / group) + 8;
    double sum = 0, magnitude = 0, off = 0, largest = 1, most = 0,
           n = groups * 2 + 4 + 3 + (is_int8 ? 2 : ceil(group / 16));
    for (uint32_t k = 0; k < c->n_cols; k++) {
        double weight = (double)w.s[k] * w.q[k] + w.m[k], size = fabs((double)w.s[k] * w.q[k]) + fabs(w.m[k]);
        sum += weight * x[k];
        for (uint32_t i = k; k % w.piece == 0 && i < c->n_cols && i < k + w.piece; i++)
            most = fmax(i == k ? 0 : most, fabs(x[i]));
        double by = is_int8 ? off_by_rounding(&w, x[k], most) : 0;
        off += fabs(weight) * by;
        magnitude += size * (fabs(x[k]) + by);
        largest = fmax(largest, fmax(fabs(w.s[k]), fabs(w.m[k])));
    }
    double bias = d->vector ? d->vector[r] : 0;
    double tolerance = off + gamma_n(n) * magnitude + c->n_cols * DENORM * (is_int8 ? 255 * 127 * 2 : largest);
    tolerance += d->vector ? U * (fabs(sum + bias) + tolerance) : 0;
    return (struct bound){sum + bias, tolerance, !isfinite(sum) && w.x_scale == 0};
}

static struct bound bound_of(const struct op_case *c, const struct op_data *d, uint64_t t, uint64_t r)
{
    uint64_t row = r;
    if (op_is_quantized(c) && !k_format_is_plain(part_of(d, &row)->format))
        return quant_bound(c, d, t, r);
    return (c->form == K_FORM_MMA ? gemm_mma_bound : gemm_bound)(c, d, t, r);
}

static void judge_bound(struct verdict *v, uint64_t t, uint64_t i, double got, struct bound bound)
{
    if (bound.is_infinite)
        v->n_bad += isfinite(got) != 0;
    else
        judge(v, t, i, got, bound.want, bound.tolerance);
}

static void check_gemm(const struct op_case *c, const struct op_data *d, const struct op_array *y, struct verdict *v)
{
    for (uint64_t t = 0; t < c->n_tokens; t++)
        for (uint64_t r = 0; r < c->n_rows; r++)
            judge_bound(v, t, r, output(y, t * c->n_rows + r), bound_of(c, d, t, r));
}

/* A gate's function of gate.want, and how far it lies from its computed value where gate itself is exact. The slopes are
 * at most 1.13, so each passes on so much of gate's error. */
static double gate_of(struct k_gate how, double gate, double *off)
{
    /* exp, 1 + exp, the division. If exp(-x) overflows, silu is 0 instead of x e^x, which is below 88.73 e^-88.7228 <
     * 2^-121. */
    const double g = how.kind == K_GATE_CLAMPED && gate > how.limit ? how.limit : gate;
    const double steep = how.kind == K_GATE_CLAMPED ? 1.702 : 1, swish = g / (1 + exp(-steep * g));
    if (how.kind == K_GATE_GELU_TANH) {
        const double t = tanh(sqrt(2 / acos(-1)) * (gate + 0.044715 * gate * gate * gate));
        *off = 10 * U * fabs(gate);
        return 0.5 * gate * (1 + t);
    }
    *off = (EXP + 2 * U) * fabs(swish) + 0x1p-121;
    if (how.kind == K_GATE_CLAMPED) /* the argument of exp is off by 2 u, and x² times silu's slope is below 1.1 |x| */
        *off += 2 * U * 1.1 * fabs(g);
    return swish;
}

static void check_gemm_gated(const struct op_case *c, const struct op_data *d, const struct op_array *out,
                             struct verdict *v)
{
    uint64_t n = c->n_rows / 2;
    const struct k_gate how = op_gate(c);
    for (uint64_t t = 0; t < c->n_tokens; t++) {
        for (uint64_t i = 0; i < n; i++) {
            struct bound gate = bound_of(c, d, t, i), up = bound_of(c, d, t, n + i), both = gate;
            double off, of = gate_of(how, gate.want, &off), by = up.want, by_off = up.tolerance;
            if (how.kind == K_GATE_CLAMPED) { /* clamping passes on no more than the error */
                by = (by > how.limit ? how.limit : by < -how.limit ? -how.limit : by) + 1;
                by_off += U * (fabs(by) + by_off);
            }
            off += 1.13 * gate.tolerance;
            both.want = of * by;
            both.tolerance = off * (fabs(by) + by_off) + fabs(of) * by_off;
            both.tolerance += U * (fabs(both.want) + both.tolerance) + DENORM;
            judge_bound(v, t, i, output(out, t * n + i), both);
        }
    }
}

/* Each choice is a GEMM of its own. */
static void check_moe_gemm(const struct op_case *c, const struct op_data *d, const struct op_array *out,
                           struct verdict *v)
{
    const uint64_t n_choices = (uint64_t)c->n_tokens * c->moe->n_used;
    struct op_array rows = *out;
    struct op_case one;
    struct op_data of;
    for (uint64_t i = 0; i < n_choices; i++, rows.bytes += out->token_bytes / c->moe->n_used) {
        op_moe_choice(c, d, i, &one, &of);
        (c->op == K_OP_MOE_GEMM ? check_gemm : check_gemm_gated)(&one, &of, &rows, v);
    }
}

/* A product and a fma for each choice but the first, and the shared expert's. */
static void check_moe_combine(const struct op_case *c, const struct op_data *d, const struct op_array *out,
                              struct verdict *v)
{
    for (uint64_t t = 0; t < c->n_tokens; t++)
        for (uint64_t i = 0; i < c->n_cols; i++) {
            const double g = c->into ? d->moe->shared_weights[t] : 1;
            double sum = c->into || c->extra ? g * d->moe->shared[t * c->n_cols + i] : 0, magnitude = fabs(sum);
            for (uint32_t k = 0; k < c->moe->n_used; k++) {
                const double o = d->x[(t * c->moe->n_used + k) * c->n_cols + i];
                sum += d->moe->weights[t * c->moe->n_used + k] * o;
                magnitude += fabs(d->moe->weights[t * c->moe->n_used + k] * o);
            }
            judge(v, t, i, output(out, t * c->n_cols + i), sum, gamma_n(c->moe->n_used + 1) * magnitude);
        }
}

/* A router's logit in f64, and the tolerance of it: ⌈H/16⌉ fmas in a lane, 4 additions, and the bias. */
static struct bound route_bound(const struct op_case *c, const struct op_data *d, uint64_t t, const float *row,
                                double bias)
{
    double sum = 0, magnitude = fabs(bias);
    for (uint32_t k = 0; k < c->n_cols; k++) {
        sum += (double)row[k] * d->x[t * c->n_cols + k];
        magnitude += fabs((double)row[k] * d->x[t * c->n_cols + k]);
    }
    return (struct bound){sum + bias, gamma_n((c->n_cols + 15) / 16 + 5) * magnitude, false};
}

/* The experts that the answer names have the weights that their logits give; whether they are the best is the page's
 * matter, since the order of two that are close is rounding's. An error δ of every logit moves a softmax or a sigmoid by
 * 2 δ of itself at most. */
static void check_moe_route(const struct op_case *c, const struct op_data *d, const struct op_output *out,
                            struct verdict *v)
{
    const struct op_moe *m = c->moe;
    for (uint64_t t = 0; t < c->n_tokens; t++) {
        const uint32_t *experts = (const uint32_t *)(const void *)out->arrays[1].bytes + t * m->n_used;
        double logits[K_MOE_MAX_EXPERTS], most = -INFINITY, all = 0, used = 0, worst = 0;
        for (uint32_t e = 0; e < m->n_experts; e++) {
            const struct bound b = route_bound(c, d, t, d->moe->router + (uint64_t)e * c->n_cols,
                                               d->vector ? d->vector[e] : 0);
            logits[e] = b.want;
            most = fmax(most, b.want);
            worst = fmax(worst, b.tolerance);
        }
        for (uint32_t e = 0; e < m->n_experts; e++)
            all += exp(logits[e] - most);
        for (uint32_t i = 0; i < m->n_used; i++) {
            v->n_bad += experts[i] >= m->n_experts || (i > 0 && experts[i] <= experts[i - 1]);
            used += m->score == K_ROUTE_SIGMOID ? 1 / (1 + exp(-logits[experts[i]])) : exp(logits[experts[i]] - most);
        }
        for (uint32_t i = 0; i < m->n_used; i++) {
            const double l = logits[experts[i]];
            const double s = m->score == K_ROUTE_SIGMOID ? 1 / (1 + exp(-l)) : exp(l - most);
            const bool is_shared = m->normalize || m->score == K_ROUTE_TOP_SOFTMAX;
            const double sum = is_shared ? used : m->score == K_ROUTE_SOFTMAX ? all : 1;
            const double want = s / sum * (c->scale != 0 ? c->scale : 1);
            judge(v, t, i, output(&out->arrays[0], t * m->n_used + i), want,
                  want * (expm1(4 * worst) + 2 * EXP + (m->n_experts + 8) * U + fabs(l - most) * 4 * U));
        }
        if (c->extra) {
            const struct bound b = route_bound(c, d, t, d->moe->gate, 0);
            judge(v, t, m->n_used, output(&out->arrays[2], t), 1 / (1 + exp(-b.want)), b.tolerance + EXP + 3 * U);
        }
    }
}

/* Relative error of a normalized element: the sum of squares has ⌈n/16⌉ + 4 roundings, all of one sign, and the
 * division and the addition of eps have 2 more. The square root halves them and adds 1; then a reciprocal and two
 * products. */
static double norm_relative(uint32_t n)
{
    return ((n + 15) / 16 + 4 + 2) * U / 2 + 4 * U;
}

static double norm_factor(const float *x, const float *add, uint32_t n)
{
    double sum = 0;
    for (uint32_t k = 0; k < n; k++) {
        double value = (double)x[k] + (add ? add[k] : 0);
        sum += value * value;
    }
    return 1 / sqrt(sum / n + OP_EPS);
}

/* A norm in the middle of wider rows must not change the columns around it. */
static void check_norm_in_place(const struct op_case *c, const struct op_data *d, const struct op_array *a,
                                struct verdict *v)
{
    const uint64_t before = (c->n_rows - c->n_cols) / 2;
    for (uint64_t t = 0; t < c->n_tokens; t++) {
        const float *row = d->x + t * c->n_rows;
        double rs = norm_factor(row + before, NULL, c->n_cols);
        for (uint64_t k = 0; k < c->n_rows; k++) {
            const bool inside = k >= before && k < before + c->n_cols;
            double want = inside ? row[k] * rs * d->vector[k - before] : row[k];
            double tolerance = inside ? norm_relative(c->n_cols) * fabs(want) + DENORM : 0;
            judge(v, t, k, output(a, t * c->n_rows + k), want, tolerance);
        }
    }
}

/* One addition: u of the sum, plus the error of the norm. */
static void check_norm_into(const struct op_case *c, const struct op_data *d, const struct op_output *out,
                            struct verdict *v)
{
    for (uint64_t t = 0; t < c->n_tokens; t++) {
        const float *x = d->x + t * c->n_cols, *was = d->add + t * c->n_cols;
        double rs = norm_factor(x, NULL, c->n_cols);
        for (uint64_t k = 0; k < c->n_cols; k++) {
            double y = x[k] * rs * d->vector[k], want = was[k] + y;
            double tolerance = norm_relative(c->n_cols) * fabs(y) + DENORM;
            judge(v, t, k, output(&out->arrays[0], t * c->n_cols + k), want, tolerance + U * (fabs(want) + tolerance));
            judge(v, t, k, output(&out->arrays[1], t * c->n_cols + k), x[k], 0);
        }
    }
}

/* An added residual is off by u of the element itself, and by u in the factor. */
static void check_norm(const struct op_case *c, const struct op_data *d, const struct op_output *out, struct verdict *v)
{
    if (c->n_rows)
        return check_norm_in_place(c, d, &out->arrays[0], v);
    if (c->into)
        return check_norm_into(c, d, out, v);
    for (uint64_t t = 0; t < c->n_tokens; t++) {
        const float *x = d->x + t * c->n_cols, *add = d->add ? d->add + t * c->n_cols : NULL;
        double rs = norm_factor(x, add, c->n_cols);
        for (uint64_t k = 0; k < c->n_cols; k++) {
            double value = (double)x[k] + (add ? add[k] : 0), want = value * rs * d->vector[k];
            double relative = norm_relative(c->n_cols) + (add ? 2 * U : 0);
            judge(v, t, k, output(&out->arrays[0], t * c->n_cols + k), want, relative * fabs(want) + DENORM);
            judge(v, t, k, output(&out->arrays[1], t * c->n_cols + k), value, add ? U * fabs(value) : 0);
        }
    }
}

/* The f32 product is off by u of the angle, and so is a position past 2^24. A sine's slope is at most 1. The result is
 * rounded to f32 and, if there is a scale, multiplied. */
static void check_angles(const struct op_case *c, const struct op_data *d, const struct op_array *a, struct verdict *v)
{
    double scale = c->scale != 0 ? c->scale : 1;
    for (uint64_t t = 0; t < c->n_tokens; t++) {
        for (uint64_t i = 0; i < c->n_cols; i++) {
            double p = c->most_position && d->ids[t] > c->most_position ? c->most_position : d->ids[t];
            double angle = p * d->vector[i];
            double tolerance = scale * ((c->exact ? 0 : 2 * U * angle) + U + 0x1p-44);
            tolerance += c->scale != 0 ? U * scale : 0;
            uint64_t at = (t * c->n_cols + i) * 2;
            judge(v, t, 2 * i, output(a, at), scale * cos(angle), tolerance);
            judge(v, t, 2 * i + 1, output(a, at + 1), scale * sin(angle), tolerance);
        }
    }
}

/* A head's numbers in 8 bits: half a unit of an integer, or 2^-4 or 2^-3 of an FP8 number, and half of a denormal's
 * unit. Factor and scale are two divisions, and a product each. A number too small for a scale becomes 0. */
static void check_bytes(const struct op_case *c, const struct op_array *array, uint64_t t, uint32_t head,
                        const double *want, const double *tolerance, struct verdict *v)
{
    const uint32_t n = c->head_dim;
    const unsigned char *row = array->bytes + t * array->token_bytes, *u = row + (size_t)head * n;
    float scale;
    double most = 0, off = 0;
    bool is_finite = true;
    memcpy(&scale, row + (size_t)c->n_kv_heads * n + head * sizeof scale, sizeof scale);
    for (uint32_t i = 0; i < n; i++) {
        is_finite = is_finite && isfinite(want[i]);
        most = fmax(most, fabs(want[i]));
        off = fmax(off, tolerance[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        double got = c->dtype == K_INT ? (int8_t)u[i] : page_f32_from_fp8(u[i], c->dtype == K_E4M3 ? 3 : 2);
        double size = fabs(want[i]) + tolerance[i], unit = c->dtype == K_E4M3 ? 0x1p-9 : 0x1p-16;
        double by = c->dtype == K_INT ? 0.5 : fmax(size / scale * (c->dtype == K_E4M3 ? 0x1p-4 : 0x1p-3), unit / 2);
        bool is_too_small = scale == 0 && most - off < 0x1p-110;
        double rounding = is_too_small ? size : by * scale * (1 + 4 * U) + 4 * U * size;
        if (!is_finite)
            v->n_bad += !isnan(scale) || u[i] != 0;
        else
            judge(v, t, i, got * scale, want[i], tolerance[i] + rounding + (is_too_small ? 0 : off));
    }
}

/* Two terms, one of which is a rounded product, and one rounded fma; factors from the head norm. The cache rounds K and
 * V once more. */
static void check_rope_head(const struct op_case *c, const struct op_data *d, const struct op_output *out, uint64_t t,
                            uint32_t h, bool for_sinks, struct verdict *v)
{
    const float *cos_sin = for_sinks ? d->sink_cos_sin : d->cos_sin;
    uint32_t n = c->head_dim, n_rotated = n - c->n_fixed, half = n_rotated / 2,
             heads = c->n_q_heads + 2 * c->n_kv_heads;
    bool is_q = h < c->n_q_heads, is_v = h >= c->n_q_heads + c->n_kv_heads;
    const float *x = d->x + (t * heads + h) * n, *norm = is_q ? d->q_norm : d->k_norm;
    const struct op_array *array = &out->arrays[for_sinks ? 3 : is_q ? 0 : is_v ? 2 : 1];
    uint64_t at = is_q ? (t * c->n_q_heads + h) * n : (t * c->n_kv_heads + (h - c->n_q_heads) % c->n_kv_heads) * n;
    double rs = norm && !is_v ? norm_factor(x, NULL, n) : 1;
    double relative = norm && !is_v ? norm_relative(n) : 0, wants[256], tolerances[256];
    for (uint32_t i = 0; i < n; i++) {
        const bool is_fixed = i >= n_rotated;
        uint32_t j = is_fixed ? 0 : i % half;
        double a = is_fixed ? x[i] : x[j], b = is_fixed ? 0 : x[j + half];
        double cosine = is_fixed ? 1 : cos_sin[t * n_rotated + 2 * j];
        double sine = is_fixed ? 0 : cos_sin[t * n_rotated + 2 * j + 1];
        if (norm && !is_v && is_fixed) {
            a *= rs * norm[i];
        } else if (norm && !is_v) {
            a *= rs * norm[j];
            b *= rs * norm[j + half];
        }
        const bool is_low = i < half || is_fixed;
        double first = is_low ? a * cosine : b * cosine, second = is_low ? -b * sine : a * sine;
        double want = is_v ? x[i] : first + second;
        double tolerance = is_v ? 0 : (2 * U + relative) * (fabs(first) + fabs(second)) + DENORM;
        wants[i] = want;
        tolerances[i] = tolerance;
        if (array->element_bytes == 1)
            continue;
        double got = output(array, at + i);
        if (!isfinite(want) && isfinite(got))
            v->n_bad++;
        if (!isfinite(want))
            continue;
        if (array->element_bytes == 2) { /* numbers of at least 2^16 round to f16's inf */
            tolerance += F16_U * (fabs(want) + tolerance) + 0x1p-25;
            want = fmax(-65536, fmin(65536, want));
            got = fmax(-65536, fmin(65536, got));
        }
        judge(v, t, h * n + i, got, want, tolerance);
    }
    if (array->element_bytes == 1)
        check_bytes(c, array, t, (h - c->n_q_heads) % c->n_kv_heads, wants, tolerances, v);
}

static void check_rope_kv(const struct op_case *c, const struct op_data *d, const struct op_output *out,
                          struct verdict *v)
{
    for (uint64_t t = 0; t < out->n_tokens; t++)
        for (uint32_t h = 0; h < (op_is_fill(c, t) ? c->n_q_heads : c->n_q_heads + 2 * c->n_kv_heads); h++)
            check_rope_head(c, d, out, t, h, false, v);
    for (uint64_t t = 0; t < out->n_tokens; t++)
        for (uint32_t h = 0; h < (c->sinks > 0 ? c->n_q_heads : 0); h++)
            check_rope_head(c, d, out, t, h, true, v);
}

/* The weight of position j is exp(s_j - m), then a product of exp(m - m')s from the m of its tile to the last one; the
 * m themselves cancel against l. Its relative error:
 * - the score's absolute error, γ(⌈D/16⌉ + 5) |scale| Σ|q k| for the sum and the product by scale;
 * - u of every difference in an exponent, which add up to |s_j - m_last| because m only rises;
 * - EXP for each exp: one, one for each tile of the split, and one or two for each split.
 *
 * In o, a term passes a product by α for each tile of its split and an fma for each later position of the split, then 2
 * roundings per split. In l: 4 additions of a lane, 4 of the fold, then the same by tiles and splits. The output is one
 * more division. Mma form: scores are D/16 instructions, MMA each, of q rounded to f16. Weights are rounded to f16
 * before they are summed, in 16 additions per lane and 2 for the lanes, and multiplied: MMA for 16 positions, some of
 * which may be in half of one. Errors of scores in the hundreds are not small, hence expm1. A softcap does not move two
 * scores further apart, and has its own error: 2 u of its argument, 5.4 u of tanh (kernels/math/) and u for the
 * product by the cap. A sink's logit is one more split, with an exact score, and the positions of attention sinks are
 * one more, too.
 */
static void check_attention_head(const struct op_case *c, const struct op_data *d, const struct op_array *out,
                                 uint32_t t, uint32_t h, struct verdict *v)
{
    uint32_t n = c->head_dim, seq, position = op_token_position(c, t, &seq);
    if (c->whole)
        position = c->seqs[seq].position + c->seqs[seq].n_tokens - 1;
    uint32_t lowest = c->window && position >= c->window ? position - c->window + 1 : 0;
    lowest = lowest > c->sinks ? lowest : c->sinks;
    const uint32_t n_sinks = c->sinks < position + 1 ? c->sinks : position + 1; /* readable */
    uint32_t kv_head = h / (c->n_q_heads / c->n_kv_heads),
             count = n_sinks + (position + 1 > lowest ? position + 1 - lowest : 0);
    bool is_mma = c->form == K_FORM_MMA && c->dtype == K_F16;
    double scale = 1.0f / sqrtf((float)n), m = -INFINITY, l = 0, l_error = 0,
           sink = d->vector ? d->vector[h] : -INFINITY;
    double *s = malloc(2 * count * sizeof *s), *error = s + count;
    if (!s)
        abort();
    for (uint32_t i = 0; i < count; i++) {
        const float *q = i < n_sinks ? d->sink_q + ((uint64_t)t * c->n_q_heads + h) * n
                                     : d->x + (uint64_t)t * d->x_width + h * n;
        uint32_t j = i < n_sinks ? i : lowest + i - n_sinks;
        uint64_t at = ((uint64_t)(d->kv_start[seq] + j) * c->n_kv_heads + kv_head) * n;
        double dot = 0, magnitude = 0, keys = 0, queries = 0;
        for (uint32_t k = 0; k < n; k++) {
            double key = page_key(c, d, at + k);
            dot += q[k] * key;
            magnitude += fabs(q[k] * key);
            keys += fabs(key);
            queries += fabs(q[k]);
        }
        s[i] = dot * scale;
        error[i] = gamma_n((is_mma ? MMA * n / 16.0 : (n + 15) / 16) + 5) * scale * magnitude;
        error[i] += is_mma ? scale * (F16_U * magnitude + F16_TINY * keys + MMA_TERMS * 0x1p-14 * queries) : 0;
        if (c->softcap != 0) {
            s[i] = c->softcap * tanh(s[i] / c->softcap);
            error[i] += 8.4 * U * fabs(s[i]);
        }
        m = fmax(m, s[i]);
    }
    double above = fmax(sink - m, 0); /* the sink's contribution to the last m */
    double splits = (position < lowest ? 0 : position / 512 - lowest / 512 + 1) + (d->vector != NULL) + (n_sinks > 0),
           in_split = fmin(count, 512);
    double n_o = (is_mma ? MMA / 16.0 * in_split + 6 : in_split) + 8 + 2 * splits,
           n_l = (is_mma ? 26 : 16) + 2 * splits;
    double tiny = is_mma ? F16_TINY : TINY_EXP;
    for (uint32_t i = 0; i < count; i++) {
        error[i] += U * (m - s[i] + above) + EXP * (1 + 8 + 2 * splits) + (is_mma ? F16_U + EXP_HALF : 0);
        error[i] = expm1(error[i]);
        s[i] = exp(s[i] - m);
        l += s[i];
        l_error += s[i] * (error[i] + gamma_n(n_l)) + tiny;
    }
    if (sink > m - 80) { /* below, its weight is less than the tolerance for tiny results */
        double weight = exp(sink - m);
        l += weight;
        l_error += weight * (expm1(U * fabs(sink - m) + EXP * (1 + 2 * splits)) + gamma_n(n_l));
    }
    for (uint32_t k = 0; k < n; k++) {
        double o = 0, o_error = 0;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t j = i < n_sinks ? i : lowest + i - n_sinks;
            uint64_t at = ((uint64_t)(d->kv_start[seq] + j) * c->n_kv_heads + kv_head) * n;
            double value = page_value(c, d, at + k);
            o += s[i] * value;
            o_error += fabs(value) * (s[i] * (error[i] + gamma_n(n_o)) + tiny);
            o_error += is_mma ? MMA_TERMS * 0x1p-14 : 0;
        }
        double want = o / l;
        judge(v, t, h * n + k, output(out, ((uint64_t)t * c->n_q_heads + h) * n + k), want,
              (o_error + fabs(want) * l_error) / fmax(l - l_error, 0) * 1.01 + U * fabs(want));
    }
    free(s);
}

static void check_attention(const struct op_case *c, const struct op_data *d, const struct op_array *out,
                            struct verdict *v)
{
    for (uint32_t t = 0; t < op_n_tokens(c); t++)
        for (uint32_t h = 0; h < c->n_q_heads; h++)
            check_attention_head(c, d, out, t, h, v);
}

static void check_exact(const struct op_case *c, const struct op_data *d, const struct op_output *out,
                        struct verdict *v)
{
    for (uint64_t t = 0; t < out->n_tokens; t++)
        for (uint64_t k = 0; k < c->n_cols; k++) {
            uint64_t at = (uint64_t)d->ids[t] * c->n_cols + k;
            double was = c->into ? d->add[t * c->n_cols + k] : 0;
            double taken = op_is_quantized(c)    ? page_embed_quant(c, d, d->ids[t], (uint32_t)k)
                           : c->op == K_OP_EMBED ? stored(d->weights, c->dtype, at)
                                                 : d->x[at];
            double by = c->scale != 0 ? c->scale : 1, want = was + taken * by;
            double off = (c->into ? U * fabs(want) : 0) + (by != 1 ? U * fabs(taken * by) + DENORM : 0);
            judge(v, t, k, output(&out->arrays[0], t * c->n_cols + k), want, off);
        }
}

/* With d = s - mean: s is off by u |s| if there was an addition, the mean by a sum of n / 16 + 4 and a division, their
 * difference by another u. The factor's error is that of a norm plus at most the largest of these, because roots of
 * squares are not further apart than the numbers. */
static void check_layernorm(const struct op_case *c, const struct op_data *d, const struct op_array *a,
                            struct verdict *v)
{
    const uint32_t n = c->n_cols;
    for (uint64_t t = 0; t < c->n_tokens; t++) {
        double mean = 0, size = 0, squares = 0, largest = 0;
        const float *x = d->x + t * n, *add = d->add ? d->add + t * n : NULL;
        for (uint32_t k = 0; k < n; k++) {
            double s = (double)x[k] + (add ? add[k] : 0);
            mean += s / n;
            size += fabs(s) / n;
            largest = fabs(s) > largest ? fabs(s) : largest;
        }
        double off = gamma_n((n + 15) / 16 + 4 + 2) * size + (add ? 2 * U * largest : 0);
        for (uint32_t k = 0; k < n; k++) {
            double difference = (double)x[k] + (add ? add[k] : 0) - mean;
            squares += difference * difference / n;
            off = off > U * largest ? off : U * largest;
        }
        double rs = 1 / sqrt(squares + OP_EPS);
        for (uint32_t k = 0; k < n; k++) {
            double difference = (double)x[k] + (add ? add[k] : 0) - mean,
                   want = difference * rs * d->vector[k] + d->bias[k];
            double d_off = off + 2 * U * fabs(difference) + U * largest;
            double relative = norm_relative(n) + (off + 2 * U * largest) * rs + U;
            double tolerance = fabs(d->vector[k]) * rs * (d_off + fabs(difference) * relative);
            judge(v, t, k, output(a, t * n + k), want, tolerance + U * (fabs(want) + tolerance) + DENORM);
        }
    }
}

/* GELU by kernels/math/activation.h: off by 3.9e-7 at most, and near 0 and far from it by 10 u of x. */
static void check_activate(const struct op_case *c, const struct op_data *d, const struct op_array *a,
                           struct verdict *v)
{
    for (uint64_t i = 0; i < (uint64_t)c->n_tokens * c->n_cols; i++) {
        double x = d->x[i], want = tanh(x), tolerance = 5.4 * U * fabs(want);
        if (c->activation == K_ACT_SCALE) {
            want = x * c->scale;
            tolerance = U * fabs(want);
        } else if (c->activation == K_ACT_SOFTCAP) { /* the argument is off by 2 u, the result by one more */
            want = c->scale * tanh(x / c->scale);
            tolerance = (5.4 + 2 + 1) * U * fabs(want);
        }
        if (c->activation == K_ACT_GELU) {
            want = 0.5 * x * erfc(-x / sqrt(2));
            tolerance = 10 * U * fabs(x) < 3.9e-7 ? 10 * U * fabs(x) : 3.9e-7;
            tolerance += U * fabs(want);
        }
        judge(v, i / c->n_cols, i % c->n_cols, output(a, i), want, tolerance + DENORM);
    }
}

/* A mean passes n roundings and a division. A length is off by at most its vector's error, plus a norm's factor. */
static void check_pool(const struct op_case *c, const struct op_data *d, const struct op_array *a, struct verdict *v)
{
    const uint32_t n = c->n_cols;
    const float *x = d->x;
    for (uint32_t r = 0; r < op_n_seqs(c); x += (uint64_t)c->seqs[r++].n_tokens * n) {
        double want[4096], off[4096], squares = 0, off_squares = 0;
        uint32_t n_tokens = c->seqs[r].n_tokens;
        for (uint32_t k = 0; k < n; k++) {
            double sum = 0, size = 0;
            for (uint64_t t = 0; t < n_tokens; t++) {
                sum += x[t * n + k];
                size += fabs(x[t * n + k]);
            }
            const uint64_t one = c->pooling == K_POOL_LAST ? n_tokens - 1 : 0;
            want[k] = c->pooling == K_POOL_MEAN ? sum / n_tokens : x[one * n + k];
            off[k] = c->pooling == K_POOL_MEAN ? gamma_n(n_tokens + 1) * size / n_tokens + DENORM : 0;
            squares += want[k] * want[k];
            off_squares += off[k] * off[k];
        }
        double length = sqrt(squares), least = length < 1e-12 ? 1e-12 : length;
        double relative = sqrt(off_squares) / least + norm_relative(n) + 2 * U;
        for (uint32_t k = 0; k < n; k++) {
            double y = c->extra ? want[k] / least : want[k];
            double tolerance = c->extra ? off[k] / least + relative * fabs(y) : off[k];
            judge(v, r, k, output(a, (uint64_t)r * n + k), y, tolerance + DENORM);
        }
    }
}

static void check_copy(const struct op_case *c, const struct op_data *d, const struct op_output *out, struct verdict *v)
{
    if (op_has_byte_cache(c)) /* codes, not numbers: they must equal the specification */
        return;
    uint64_t n = out->arrays[0].token_bytes / out->arrays[0].element_bytes;
    for (uint64_t t = 0; t < out->n_tokens; t++)
        for (uint64_t k = 0; k < n; k++) {
            uint64_t from = d->ids[t] * n + k;
            judge(v, t, k, output(&out->arrays[0], t * n + k), stored(d->k, c->dtype, from), 0);
            judge(v, t, k, output(&out->arrays[1], t * n + k), stored(d->v, c->dtype, from), 0);
        }
}

/* Logprobs: the sum is off by V half units of 2^-40, where it is at least 1, and by EXP and u of each exponent,
 * weighted; then one rounding to f32. page_sample judges the token itself. */
static void check_sample(const struct op_case *c, const struct op_data *d, const struct op_output *out,
                         struct verdict *v)
{
    const struct k_sample_result *results = (const void *)out->arrays[0].bytes;
    for (uint64_t t = 0; t < c->n_tokens; t++) {
        const float *z = d->x + t * c->n_rows;
        if (results[t].bad_logits || d->rows[t].n_logprobs < 0)
            continue;
        double m = -INFINITY, sum = 0, spread = 0;
        for (uint32_t i = 0; i < c->n_rows; i++)
            m = fmax(m, z[i]);
        for (uint32_t i = 0; i < c->n_rows; i++) {
            double e = exp(z[i] - m);
            sum += e;
            spread += e > 0 ? e * (m - z[i]) : 0;
        }
        double tolerance = EXP + U * spread / sum + c->n_rows * 0x1p-41;
        double want = z[results[t].token] - m - log(sum);
        if (!isinf(want))
            judge(v, t, 0, results[t].logprob, want, tolerance + U * fabs(want));
        for (uint32_t i = 0; i < results[t].n_top; i++) {
            want = z[results[t].top_ids[i]] - m - log(sum);
            if (!isinf(want))
                judge(v, t, 1 + i, results[t].top_logprobs[i], want, tolerance + U * fabs(want));
        }
    }
}

bool oracle_check(const struct op_case *c, const struct op_data *d, const struct op_output *out, double *worst)
{
    struct verdict v = {0, 0};
    switch (c->op) {
    case K_OP_EMBED:
    case K_OP_GATHER: check_exact(c, d, out, &v); break;
    case K_OP_RMSNORM: check_norm(c, d, out, &v); break;
    case K_OP_LAYERNORM: check_layernorm(c, d, &out->arrays[0], &v); break;
    case K_OP_ACTIVATE: check_activate(c, d, &out->arrays[0], &v); break;
    case K_OP_POOL: check_pool(c, d, &out->arrays[0], &v); break;
    case K_OP_GEMM: check_gemm(c, d, &out->arrays[0], &v); break;
    case K_OP_ROPE_ANGLES: check_angles(c, d, &out->arrays[0], &v); break;
    case K_OP_ROPE_KV: check_rope_kv(c, d, out, &v); break;
    case K_OP_ATTENTION: check_attention(c, d, &out->arrays[0], &v); break;
    case K_OP_GEMM_GATED: check_gemm_gated(c, d, &out->arrays[0], &v); break;
    case K_OP_MOE_ROUTE: check_moe_route(c, d, out, &v); break;
    case K_OP_MOE_GEMM:
    case K_OP_MOE_GEMM_GATED: check_moe_gemm(c, d, &out->arrays[0], &v); break;
    case K_OP_MOE_COMBINE: check_moe_combine(c, d, &out->arrays[0], &v); break;
    case K_OP_SAMPLE: check_sample(c, d, out, &v); break;
    case K_OP_KV_COPY: check_copy(c, d, out, &v); break;
    case K_OP_ATTENTION_PLAN:
    case K_OP_SAMPLE_PLAN:
    case K_OP_ALL_REDUCE:
    case K_OP_ALL_GATHER:
    case K_OP_CHECKSUM:
    case K_OP_PLACE_TOKENS: break; /* without cases */
    }
    *worst = v.worst;
    return v.n_bad == 0;
}
