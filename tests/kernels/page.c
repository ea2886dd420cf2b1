#include "tests/kernels/page.h"

#include "tests/kernels/page_mma.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- §3 -------------------------------------------------------------------------------------- */

float page_f32_from_f16(uint16_t h)
{
    float sign = h >> 15 ? -1.0f : 1.0f;
    int exponent = h >> 10 & 31;
    float fraction = (float)(h & 1023);
    if (exponent == 31)
        return fraction != 0 ? NAN : sign * INFINITY;
    return exponent == 0 ? sign * ldexpf(fraction, -24) : sign * ldexpf(1024 + fraction, exponent - 25);
}

float page_f32_from_bf16(uint16_t b)
{
    uint32_t bits = (uint32_t)b << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Computes the nearest multiple of the unit in the last place as a number, then its bits by counting. */
static uint16_t narrow(float x, int fraction_bits, int min_exponent, int max_exponent)
{
    int sign_shift = 15, top = (max_exponent - min_exponent + 2);
    uint16_t sign = (uint16_t)((signbit(x) != 0) << sign_shift);
    if (isnan(x))
        return (uint16_t)(sign | top << fraction_bits | 1 << (fraction_bits - 1));
    double magnitude = fabs((double)x);
    int exponent = magnitude > 0 && !isinf(magnitude) ? ilogb(magnitude) : min_exponent;
    if (exponent < min_exponent)
        exponent = min_exponent;
    double units = isinf(magnitude) ? magnitude : rint(ldexp(magnitude, fraction_bits - exponent));
    double largest = ldexp(2.0 - ldexp(1.0, -fraction_bits), max_exponent);
    if (isinf(units) || ldexp(units, exponent - fraction_bits) > largest)
        return (uint16_t)(sign | top << fraction_bits);
    /* A normal number's units include the hidden one, which carries into the exponent field. */
    return (uint16_t)(sign | (((exponent - min_exponent) << fraction_bits) + (int)units));
}

uint16_t page_f16_from_f32(float x)
{
    return narrow(x, 10, -14, 15);
}

uint16_t page_bf16_from_f32(float x)
{
    return narrow(x, 7, -126, 127);
}

float page_exp(float x)
{
    static const float c[] = {1.0f,           1.0f,           0x1.fffffap-2f, 0x1.55548ap-3f,
                              0x1.555862p-5f, 0x1.123dccp-7f, 0x1.6b4536p-10f};
    if (isnan(x))
        return x;
    if (x <= -0x1.5d5894p+6f)
        return 0.0f;
    if (x >= 0x1.62e426p+6f)
        return INFINITY;
    float n = rintf(x * 0x1.715476p+0f);
    float r = fmaf(n, -0x1.62e430p-1f, x);
    r = fmaf(n, 0x1.05c610p-29f, r);
    float p = c[6];
    for (int i = 5; i >= 0; i--)
        p = fmaf(p, r, c[i]);
    return ldexpf(p, (int)n);
}

float page_exp_half(float x)
{
    static const double log2_e = 0x1.715476p+0;
    if (isnan(x))
        return x;
    float y = x < -18.0f ? -18.0f : x;
    double product = (double)y * log2_e, n = rint(product); /* exact: 24 + 24 digits */
    float f = (float)(product - n), p = 0x1.c3f760p-5f;
    p = fmaf(p, f, 0x1.f0de1ap-3f);
    p = fmaf(p, f, 0x1.62f31ap-1f);
    p = fmaf(p, f, 0x1.fff692p-1f);
    return page_f32_from_f16(page_f16_from_f32(ldexpf(p, (int)n)));
}

float page_tanh(float x)
{
    static const float c[] = {0x1.fffffap-2f, 0x1.55548ap-3f, 0x1.555862p-5f, 0x1.123dccp-7f, 0x1.6b4536p-10f};
    if (isnan(x))
        return x;
    if (fabsf(x) >= 10.0f)
        return copysignf(1.0f, x);
    float y = 2 * fabsf(x), n = rintf(y * 0x1.715476p+0f);
    float r = fmaf(n, -0x1.62e430p-1f, y);
    r = fmaf(n, 0x1.05c610p-29f, r);
    float p = c[4];
    for (int i = 3; i >= 0; i--)
        p = fmaf(p, r, c[i]);
    float tail = p * r;
    p = fmaf(tail, r, r);
    float power = ldexpf(1.0f, (int)n), less = power - 1.0f;
    float t = fmaf(power, p, less), sum = t + 2.0f;
    return copysignf(t / sum, x);
}

float page_softcap(float score, float cap)
{
    if (cap == 0)
        return score;
    float inverse = 1.0f / cap, share = score * inverse;
    return cap * page_tanh(share);
}

static float page_silu(float x)
{
    return x / (1.0f + page_exp(-x));
}

static double factorial(int n)
{
    return n <= 1 ? 1.0 : n * factorial(n - 1);
}

void page_sincos(double x, float *s_out, float *c_out)
{
    double k = rint(x * 0x1.45f306dc9c883p-1);
    double r = fma(k, -0x1.921fb54442d18p+0, x);
    r = fma(k, -0x1.1a62633145c07p-54, r);
    double r2 = r * r;
    double s = 1 / factorial(13), c = -1 / factorial(14);
    for (int n = 11; n >= 3; n -= 2)
        s = fma(s, r2, ((n / 2) % 2 ? -1 : 1) / factorial(n));
    s = fma(s * r2, r, r);
    for (int n = 12; n >= 0; n -= 2)
        c = fma(c, r2, ((n / 2) % 2 ? -1 : 1) / factorial(n));
    switch ((int64_t)k & 3) {
    case 0: *s_out = (float)s, *c_out = (float)c; break;
    case 1: *s_out = (float)c, *c_out = (float)-s; break;
    case 2: *s_out = (float)-s, *c_out = (float)-c; break;
    default: *s_out = (float)-c, *c_out = (float)s; break;
    }
}

double page_log(double x)
{
    int exponent;
    double m = frexp(x, &exponent); /* [1/2, 1) */
    if (m < 0x1.6a09e667f3bcdp-1) {
        m *= 2;
        exponent--;
    }
    double f = m - 1.0, s = f / (m + 1.0), s2 = s * s, p = 2.0 / 21;
    for (int n = 19; n >= 3; n -= 2)
        p = fma(p, s2, 2.0 / n);
    double tail = fma((double)exponent, 0x1.abc9e3b39803fp-56, s * s2 * p);
    return fma((double)exponent, 0x1.62e42fefa39efp-1, s + s + tail);
}

void page_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t x[4] = {counter[0], counter[1], counter[2], counter[3]}, k[2] = {key[0], key[1]};
    for (int round = 0; round < 10; round++) {
        if (round > 0) {
            k[0] += 0x9E3779B9u;
            k[1] += 0xBB67AE85u;
        }
        uint64_t p0 = x[0] * (uint64_t)0xD2511F53u, p1 = x[2] * (uint64_t)0xCD9E8D57u;
        uint32_t next[4] = {(uint32_t)(p1 >> 32) ^ x[1] ^ k[0], (uint32_t)p1, (uint32_t)(p0 >> 32) ^ x[3] ^ k[1],
                            (uint32_t)p0};
        memcpy(x, next, sizeof x);
    }
    memcpy(out, x, sizeof x);
}

/* ---- §4, §5, §6 ------------------------------------------------------------------------------ */

static float fold(float s[16])
{
    for (int half = 8; half >= 1; half /= 2) {
        for (int j = 0; j < half; j++)
            s[j] = s[j] + s[j + half];
    }
    return s[0];
}

static float stored(const unsigned char *row, enum k_dtype dtype, uint64_t k)
{
    if (dtype == K_F32) {
        float x;
        memcpy(&x, row + 4 * k, 4);
        return x;
    }
    uint16_t h;
    memcpy(&h, row + 2 * k, 2);
    return dtype == K_F16 ? page_f32_from_f16(h) : page_f32_from_bf16(h);
}

static float page_dot(const unsigned char *row, enum k_dtype dtype, const float *x, uint32_t n)
{
    float s[16] = {0};
    for (uint32_t k = 0; k < (n + 15) / 16 * 16; k++) {
        float w = k < n ? stored(row, dtype, k) : 0.0f;
        s[k % 16] = fmaf(w, k < n ? x[k] : 0.0f, s[k % 16]);
    }
    return fold(s);
}

static float flushed(float x)
{
    return fpclassify(x) == FP_SUBNORMAL ? copysignf(0.0f, x) : x;
}

/* With everything times 2^100 no minimum exponent is near: the result is rounded to 24 bits, as the rule requires.
 * Overflow does not matter. */
static float flushed_fma(float w, float v, float c)
{
    float sum = fmaf(w, v, c), larger = fmaf(ldexpf(w, 50), ldexpf(v, 50), ldexpf(c, 100));
    return fabsf(sum) <= 0x1p-126f && fabsf(larger) < 0x1p-26f ? copysignf(0.0f, sum) : sum;
}

/* Returns the first or the second bf16 term of x, as a factor. */
static float term_of(float x, uint32_t term)
{
    float high = page_f32_from_bf16(page_bf16_from_f32(x));
    return flushed(term == 0 ? high : page_f32_from_bf16(page_bf16_from_f32(x - high)));
}

static float page_dot_tile(const unsigned char *row, enum k_dtype dtype, uint32_t n_terms, const float *x, uint32_t n)
{
    float c = 0.0f;
    uint32_t w_terms = dtype == K_F16 ? 2 : 1;
    for (uint32_t tile = 0; tile < n; tile += 32) {
        for (uint32_t product = 0; product < n_terms * w_terms; product++) {
            float chain[2] = {0.0f, 0.0f};
            for (uint32_t k = tile; k < tile + 32; k++) {
                float w = k < n ? term_of(stored(row, dtype, k), product % w_terms) : 0.0f;
                float v = k < n ? term_of(x[k], product / w_terms) : 0.0f;
                chain[k % 2] = flushed_fma(w, v, chain[k % 2]);
            }
            c = flushed(c + flushed(chain[0] + chain[1]));
        }
    }
    return c;
}

void page_segments(uint32_t n_cols, uint32_t unit, uint32_t begin[9])
{
    uint64_t units = unit > 0 ? (n_cols + unit - 1) / unit : 0;
    for (uint64_t i = 0; i <= 8; i++) {
        uint64_t column = i * units / 8 * unit; /* for a whole number of units */
        begin[i] = unit == 0 && i > 0 ? n_cols : column < n_cols ? (uint32_t)column : n_cols;
    }
}

float page_sum_segments(const float s[8], const uint32_t begin[9])
{
    float sum[8];
    bool is_there[8];
    for (int i = 0; i < 8; i++) {
        sum[i] = s[i];
        is_there[i] = begin[i] < begin[i + 1];
    }
    for (int apart = 1; apart < 8; apart *= 2) {
        for (int i = 0; i < 8; i += 2 * apart) {
            if (is_there[i] && is_there[i + apart])
                sum[i] = sum[i] + sum[i + apart];
            else if (is_there[i + apart])
                sum[i] = sum[i + apart];
            is_there[i] = is_there[i] || is_there[i + apart];
        }
    }
    return sum[0];
}

float page_row(const struct op_case *c, const unsigned char *row, const float *x)
{
    uint32_t begin[9];
    float s[8] = {0};
    page_segments(c->n_cols, c->unit, begin);
    for (int i = 0; i < 8; i++) {
        const unsigned char *w = row + begin[i] * k_dtype_bytes(c->dtype);
        uint32_t n = begin[i + 1] - begin[i], n_terms = c->form == K_FORM_TILE ? 2 : 1;
        s[i] = c->form == K_FORM_LANE ? page_dot(w, c->dtype, x + begin[i], n)
                                      : page_dot_tile(w, c->dtype, n_terms, x + begin[i], n);
    }
    return page_sum_segments(s, begin);
}

static void page_gemm(const struct op_case *c, const struct op_data *d, float *y)
{
    size_t row_bytes = (size_t)c->n_cols * k_dtype_bytes(c->dtype);
    for (uint64_t t = 0; t < c->n_tokens; t++) {
        for (uint64_t r = 0; r < c->n_rows; r++) {
            float sum = page_row(c, d->weights + r * row_bytes, d->x + t * c->n_cols);
            y[t * c->n_rows + r] = d->vector ? sum + d->vector[r] : sum;
        }
    }
}

/* ---- §7, §8, §9, §11 ------------------------------------------------------------------------- */

#define PAGE_EPS 1e-6f

static void page_norm_row(const float *x, const float *w, float *out, uint32_t n)
{
    float m = page_dot((const unsigned char *)x, K_F32, x, n);
    float rs = 1.0f / sqrtf(m / (float)n + PAGE_EPS);
    for (uint32_t k = 0; k < n; k++) {
        float normalised = x[k] * rs;
        out[k] = normalised * w[k];
    }
}

static void page_norm_in_place(const struct op_case *c, const struct op_data *d, float *out)
{
    const uint64_t before = (c->n_rows - c->n_cols) / 2;
    memcpy(out, d->x, (size_t)c->n_tokens * c->n_rows * sizeof *out);
    for (uint64_t t = 0; t < c->n_tokens; t++)
        page_norm_row(d->x + t * c->n_rows + before, d->vector, out + t * c->n_rows + before, c->n_cols);
}

static void page_norm(const struct op_case *c, const struct op_data *d, float *out, float *x)
{
    for (uint64_t t = 0; t < c->n_tokens; t++) {
        for (uint64_t i = t * c->n_cols; i < (t + 1) * c->n_cols; i++)
            x[i] = d->add && !c->into ? d->x[i] + d->add[i] : d->x[i];
        page_norm_row(x + t * c->n_cols, d->vector, out + t * c->n_cols, c->n_cols);
        for (uint64_t i = t * c->n_cols; c->into && i < (t + 1) * c->n_cols; i++)
            out[i] = d->add[i] + out[i];
    }
}

static float page_lane_sum(const float *x, uint32_t n, bool squares)
{
    float s[16] = {0};
    for (uint32_t k = 0; k < (n + 15) / 16 * 16; k++) {
        float v = k < n ? x[k] : 0.0f;
        s[k % 16] = squares ? fmaf(v, v, s[k % 16]) : s[k % 16] + v;
    }
    for (uint32_t apart = 8; apart > 0; apart /= 2)
        for (uint32_t j = 0; j < apart; j++)
            s[j] = s[j] + s[j + apart];
    return s[0];
}

static void page_layernorm(const struct op_case *c, const struct op_data *d, float *out)
{
    const uint32_t n = c->n_cols;
    for (uint64_t t = 0; t < c->n_tokens; t++, out += n) {
        for (uint32_t k = 0; k < n; k++)
            out[k] = d->add ? d->x[t * n + k] + d->add[t * n + k] : d->x[t * n + k];
        float mean = page_lane_sum(out, n, false) / (float)n;
        for (uint32_t k = 0; k < n; k++)
            out[k] = out[k] - mean;
        float rs = 1.0f / sqrtf(page_lane_sum(out, n, true) / (float)n + PAGE_EPS);
        for (uint32_t k = 0; k < n; k++) {
            float normalised = out[k] * rs;
            out[k] = fmaf(normalised, d->vector[k], d->bias[k]);
        }
    }
}

static float page_gelu(float x)
{
    static const float c[] = {0x1.5a7ef2p-3f, 0x1.5da43cp-3f,  0x1.2fb1f6p-3f, 0x1.b885eep-3f, -0x1.852b34p-4f,
                              0x1.18ac66p-1f, -0x1.067a50p-1f, 0x1.f16308p-2f, -0x1.0953e4p-3f};
    float z = fabsf(x) * 0x1.6a09e6p-1f, t = 1.0f / fmaf(z, 0x1.333334p-2f, 1.0f), q = c[8], zz = z * z, tq, tail;
    for (int i = 7; i >= 0; i--)
        q = fmaf(q, t, c[i]);
    tq = t * q;
    tail = tq * page_exp(-zz);
    tail = 0.5f * tail;
    return x < 0 ? x * tail : x * (1.0f - tail);
}

static void page_activate(const struct op_case *c, const struct op_data *d, float *out)
{
    for (uint64_t i = 0; i < (uint64_t)c->n_tokens * c->n_cols; i++)
        out[i] = c->activation == K_ACT_TANH      ? page_tanh(d->x[i])
                 : c->activation == K_ACT_SCALE   ? d->x[i] * c->scale
                 : c->activation == K_ACT_SOFTCAP ? c->scale * page_tanh(d->x[i] * (1.0f / c->scale))
                                                  : page_gelu(d->x[i]);
}

static void page_pool(const struct op_case *c, const struct op_data *d, float *out)
{
    const uint32_t n = c->n_cols;
    const float *x = d->x;
    for (uint32_t r = 0; r < op_n_seqs(c); x += (uint64_t)c->seqs[r++].n_tokens * n, out += n) {
        uint32_t n_tokens = c->seqs[r].n_tokens;
        for (uint32_t k = 0; k < n; k++) {
            float sum = x[k];
            for (uint64_t t = 1; t < n_tokens; t++)
                sum = sum + x[t * n + k];
            out[k] = c->pooling == K_POOL_MEAN   ? sum / (float)n_tokens
                     : c->pooling == K_POOL_LAST ? x[(uint64_t)(n_tokens - 1) * n + k]
                                                 : x[k];
        }
        float length = sqrtf(page_lane_sum(out, n, true));
        for (uint32_t k = 0; k < n && c->extra; k++)
            out[k] = out[k] / (length < 1e-12f ? 1e-12f : length);
    }
}

static void page_angles(const struct op_case *c, const struct op_data *d, float *out)
{
    for (uint64_t t = 0; t < c->n_tokens; t++) {
        for (uint64_t i = 0; i < c->n_cols; i++) {
            const uint32_t p = c->most_position && d->ids[t] > c->most_position ? c->most_position : d->ids[t];
            float angle = (float)p * d->vector[i], s, co;
            page_sincos(c->exact ? (double)p * (double)d->vector[i] : (double)angle, &s, &co);
            float *pair = out + (t * c->n_cols + i) * 2;
            pair[0] = c->scale != 0 ? co * c->scale : co;
            pair[1] = c->scale != 0 ? s * c->scale : s;
        }
    }
}

static void page_rotate(const float *v, const float *cos_sin, float *out, uint32_t n)
{
    for (uint32_t i = 0; i < n / 2; i++) {
        float a = v[i], b = v[i + n / 2], c = cos_sin[2 * i], s = cos_sin[2 * i + 1];
        float ac = a * c, bc = b * c;
        out[i] = fmaf(-b, s, ac);
        out[i + n / 2] = fmaf(a, s, bc);
    }
}

/* Stores one head of a token. In 8 bits the scales follow all heads' bytes. */
static void page_store(const struct op_array *array, uint64_t t, uint32_t head, uint32_t n_heads, enum k_dtype kind,
                       const float *x, uint32_t n)
{
    unsigned char *row = array->bytes + t * array->token_bytes;
    for (uint32_t i = 0; i < n && array->element_bytes > 1; i++) {
        uint16_t h = page_f16_from_f32(x[i]);
        memcpy(row + ((size_t)head * n + i) * array->element_bytes,
               array->element_bytes == 2 ? (void *)&h : (void *)(uintptr_t)&x[i], array->element_bytes);
    }
    if (array->element_bytes == 1) {
        float scale = page_kv_store(kind, x, n, row + (size_t)head * n);
        memcpy(row + (size_t)n_heads * n + head * sizeof scale, &scale, sizeof scale);
    }
}

static void page_rope_kv(const struct op_case *c, const struct op_data *d, struct op_output *out)
{
    uint32_t n = c->head_dim, heads = c->n_q_heads + 2 * c->n_kv_heads;
    for (uint64_t t = 0; t < out->n_tokens; t++) {
        for (uint32_t h = 0; h < heads; h++) {
            const float *x = d->x + (t * heads + h) * n;
            float normed[256], result[256];
            bool is_q = h < c->n_q_heads, is_v = h >= c->n_q_heads + c->n_kv_heads;
            if (!is_q && op_is_fill(c, t))
                continue;
            memcpy(normed, x, n * sizeof *x);
            if (c->extra && !is_v)
                page_norm_row(x, is_q ? d->q_norm : d->k_norm, normed, n);
            memcpy(result, normed, n * sizeof *result);
            page_rotate(normed, d->cos_sin + t * (n - c->n_fixed), result, n - c->n_fixed);
            uint32_t kv_head = (h - c->n_q_heads) % c->n_kv_heads;
            if (is_q && c->sinks > 0) {
                float second[256];
                memcpy(second, normed, n * sizeof *second);
                page_rotate(normed, d->sink_cos_sin + t * (n - c->n_fixed), second, n - c->n_fixed);
                page_store(&out->arrays[3], t, h, c->n_q_heads, K_F32, second, n);
            }
            if (is_q)
                page_store(&out->arrays[0], t, h, c->n_q_heads, K_F32, result, n);
            else
                page_store(&out->arrays[is_v ? 2 : 1], t, kv_head, c->n_kv_heads, c->dtype, is_v ? x : result, n);
        }
    }
}

static float page_gelu_tanh(float x)
{
    float cubic = fmaf(0x1.6e4e26p-5f * x, x * x, x), half = 0.5f * x;
    float t = page_tanh(0x1.988454p-1f * cubic);
    return half * (1.0f + t);
}

/* A NaN is no smaller and no larger than the limit. */
static float page_clamped(float gate, float up, float limit)
{
    float g = gate > limit ? limit : gate, u = up > limit ? limit : up < -limit ? -limit : up;
    float steep = g * 0x1.b3b646p+0f, swish = g / (1.0f + page_exp(-steep));
    return swish * (u + 1.0f);
}

void page_gate(struct k_gate how, const float *gate_up, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i++) {
        const float gate = gate_up[i], up = gate_up[n + i];
        switch (how.kind) {
        case K_GATE_SILU: out[i] = page_silu(gate) * up; break;
        case K_GATE_GELU_TANH: out[i] = page_gelu_tanh(gate) * up; break;
        case K_GATE_CLAMPED: out[i] = page_clamped(gate, up, how.limit); break;
        }
    }
}

static void (*gemm_of(const struct op_case *c))(const struct op_case *c, const struct op_data *d, float *y)
{
    return op_is_quantized(c) ? page_gemm_quant : c->form == K_FORM_MMA ? page_gemm_mma : page_gemm;
}

static void page_gemm_gated(const struct op_case *c, const struct op_data *d, float *out)
{
    uint32_t n = c->n_rows / 2;
    float *y = malloc((size_t)c->n_tokens * c->n_rows * sizeof *y);
    if (!y)
        abort();
    gemm_of(c)(c, d, y);
    for (uint64_t t = 0; t < c->n_tokens; t++)
        page_gate(op_gate(c), y + t * c->n_rows, n, out + t * n);
    free(y);
}

/* ---- §20 ------------------------------------------------------------------------------------- */

static void page_moe_gemm(const struct op_case *c, const struct op_data *d, float *y)
{
    const uint32_t width = c->op == K_OP_MOE_GEMM ? c->n_rows : c->n_rows / 2;
    struct op_case one;
    struct op_data of;
    for (uint64_t i = 0; i < (uint64_t)c->n_tokens * c->moe->n_used; i++) {
        op_moe_choice(c, d, i, &one, &of);
        if (c->op == K_OP_MOE_GEMM)
            gemm_of (&one)(&one, &of, y + i * width);
        else
            page_gemm_gated(&one, &of, y + i * width);
    }
}

static void page_moe_combine(const struct op_case *c, const struct op_data *d, float *out)
{
    for (uint64_t t = 0; t < c->n_tokens; t++)
        for (uint64_t i = 0; i < c->n_cols; i++) {
            const float *w = d->moe->weights + t * c->moe->n_used, *o = d->x + t * c->moe->n_used * c->n_cols + i;
            float y = w[0] * o[0];
            for (uint32_t k = 1; k < c->moe->n_used; k++)
                y = fmaf(w[k], o[(uint64_t)k * c->n_cols], y);
            if (c->into)
                y = fmaf(d->moe->shared_weights[t], d->moe->shared[t * c->n_cols + i], y);
            else if (c->extra)
                y = y + d->moe->shared[t * c->n_cols + i];
            out[t * c->n_cols + i] = y;
        }
}

/* How many of n numbers come before c[i]: the larger ones, and the equal ones with a lower index. */
static uint32_t page_rank(const float *c, uint32_t n, uint32_t i)
{
    uint32_t rank = 0;
    for (uint32_t j = 0; j < n; j++)
        rank += c[j] > c[i] || (c[j] == c[i] && j < i);
    return rank;
}

static float page_sigmoid(float x)
{
    return 1.0f / (1.0f + page_exp(-x));
}

static void page_divide(float *w, uint32_t n, bool is_sigmoid)
{
    float sum = w[0];
    for (uint32_t i = 1; i < n; i++)
        sum = sum + w[i];
    if (is_sigmoid)
        sum = sum + 1e-20f;
    for (uint32_t i = 0; i < n; i++)
        w[i] = w[i] / sum;
}

/* c of the experts of groups that are left out becomes -inf: no score is. */
static void page_groups(const struct op_moe *m, float *c)
{
    const uint32_t size = m->n_experts / m->n_groups;
    float group[1024];
    for (uint32_t g = 0; g < m->n_groups; g++)
        for (uint32_t i = 0; i < size; i++) {
            const uint32_t rank = page_rank(c + g * size, size, i);
            if (rank == 0)
                group[g] = c[g * size + i];
        }
    for (uint32_t g = 0; g < m->n_groups && !m->group_by_best; g++)
        for (uint32_t i = 0; i < size; i++)
            if (page_rank(c + g * size, size, i) == 1) {
                group[g] = group[g] + c[g * size + i];
                break;
            }
    for (uint32_t g = 0; g < m->n_groups; g++)
        for (uint32_t i = 0; page_rank(group, m->n_groups, g) >= m->n_groups_used && i < size; i++)
            c[g * size + i] = -INFINITY;
}

static void page_scores(const struct op_moe *m, const float *logits, float *s)
{
    float most = logits[0], lanes[16] = {0};
    for (uint32_t e = 0; e < m->n_experts; e++)
        most = logits[e] > most ? logits[e] : most;
    for (uint32_t e = 0; e < m->n_experts; e++) {
        s[e] = m->score == K_ROUTE_SOFTMAX   ? page_exp(logits[e] - most)
               : m->score == K_ROUTE_SIGMOID ? page_sigmoid(logits[e])
                                             : logits[e];
        lanes[e % 16] = lanes[e % 16] + s[e];
    }
    const float sum = fold(lanes);
    for (uint32_t e = 0; e < m->n_experts && m->score == K_ROUTE_SOFTMAX; e++)
        s[e] = s[e] / sum;
}

static void page_choose(const struct op_case *c, const struct op_data *d, const float *s, uint32_t *experts, float *w)
{
    const struct op_moe *m = c->moe;
    float by[1024], most = -INFINITY;
    uint32_t n = 0;
    for (uint32_t e = 0; e < m->n_experts; e++)
        by[e] = d->moe->correction ? s[e] + d->moe->correction[e] : s[e];
    if (m->n_groups > 1)
        page_groups(m, by);
    for (uint32_t e = 0; e < m->n_experts; e++)
        if (page_rank(by, m->n_experts, e) < m->n_used) {
            experts[n] = e;
            w[n++] = s[e];
            most = s[e] > most ? s[e] : most;
        }
    if (m->score == K_ROUTE_TOP_SOFTMAX) {
        for (uint32_t i = 0; i < n; i++)
            w[i] = page_exp(w[i] - most);
        page_divide(w, n, false);
    }
    if (m->normalize)
        page_divide(w, n, m->score == K_ROUTE_SIGMOID);
    for (uint32_t i = 0; c->scale != 0 && i < n; i++)
        w[i] = w[i] * c->scale;
}

static void page_moe_route(const struct op_case *c, const struct op_data *d, struct op_output *out)
{
    const struct op_moe *m = c->moe;
    for (uint64_t t = 0; t < c->n_tokens; t++) {
        const float *x = d->x + t * c->n_cols;
        float logits[1024], s[1024], *w = (float *)(void *)out->arrays[0].bytes + t * m->n_used;
        uint32_t *experts = (uint32_t *)(void *)out->arrays[1].bytes + t * m->n_used;
        bool is_nan = false;
        for (uint32_t e = 0; e < m->n_experts; e++) {
            logits[e] = page_dot((const unsigned char *)(d->moe->router + (uint64_t)e * c->n_cols), K_F32, x,
                                 c->n_cols);
            logits[e] = d->vector ? logits[e] + d->vector[e] : logits[e];
            is_nan = is_nan || isnan(logits[e]);
        }
        for (uint32_t i = 0; is_nan && i < m->n_used; i++) {
            experts[i] = i;
            w[i] = NAN;
        }
        if (!is_nan) {
            page_scores(m, logits, s);
            page_choose(c, d, s, experts, w);
        }
        if (c->extra)
            ((float *)(void *)out->arrays[2].bytes)[t] = page_sigmoid(
                page_dot((const unsigned char *)d->moe->gate, K_F32, x, c->n_cols));
    }
}

/* ---- §10 ------------------------------------------------------------------------------------- */

struct page_state {
    float m, l, o[256];
    bool used;
};

/* of_sinks: the split of the sinks, whose queries are their own. */
static void page_attend_split(const struct op_case *c, const struct op_data *d, uint64_t kv_row, uint32_t kv_head,
                              const float *q, bool of_sinks, uint32_t split, uint32_t position, struct page_state *st)
{
    uint32_t n = c->head_dim;
    float scale = 1.0f / sqrtf((float)n);
    *st = (struct page_state){.m = -INFINITY};
    for (uint32_t tile = split; tile < split + 512; tile += 64) {
        float s[64], m = st->m;
        bool any = false, readable[64];
        for (uint32_t i = 0; i < 64; i++) {
            uint32_t j = tile + i;
            readable[i] = j <= position &&
                          (of_sinks ? j < c->sinks : j >= c->sinks && (c->window == 0 || j + c->window > position));
            if (!readable[i])
                continue;
            any = true;
            uint64_t element = ((kv_row + j) * c->n_kv_heads + kv_head) * n;
            float key[256];
            for (uint32_t k = 0; k < n; k++)
                key[k] = page_key(c, d, element + k);
            float scaled = page_dot((const unsigned char *)key, K_F32, q, n) * scale;
            s[i] = page_softcap(scaled, c->softcap);
            m = s[i] > m ? s[i] : m;
        }
        if (!any)
            continue;
        float alpha = page_exp(st->m - m), lanes[16] = {0};
        for (uint32_t d_i = 0; d_i < n; d_i++)
            st->o[d_i] = st->o[d_i] * alpha;
        for (uint32_t i = 0; i < 64; i++) {
            if (!readable[i])
                continue;
            float p = page_exp(s[i] - m);
            lanes[i % 16] = lanes[i % 16] + p;
            uint64_t element = ((kv_row + tile + i) * c->n_kv_heads + kv_head) * n;
            for (uint32_t k = 0; k < n; k++)
                st->o[k] = fmaf(p, page_value(c, d, element + k), st->o[k]);
        }
        st->l = fmaf(st->l, alpha, fold(lanes));
        st->m = m;
        st->used = true;
    }
}

static void page_merge(struct page_state *all, const struct page_state *next, uint32_t n)
{
    if (!all->used) {
        *all = *next;
        return;
    }
    float m = next->m > all->m ? next->m : all->m;
    float a = page_exp(all->m - m), b = page_exp(next->m - m);
    float l2 = next->l * b;
    all->l = fmaf(all->l, a, l2);
    for (uint32_t k = 0; k < n; k++) {
        float o2 = next->o[k] * b;
        all->o[k] = fmaf(all->o[k], a, o2);
    }
    all->m = m;
}

static void page_attention(const struct op_case *c, const struct op_data *d, float *out)
{
    uint32_t n = c->head_dim, n_tokens = op_n_tokens(c), seq;
    for (uint32_t t = 0; t < n_tokens; t++) {
        uint32_t position = op_token_position(c, t, &seq);
        if (c->whole)
            position = c->seqs[seq].position + c->seqs[seq].n_tokens - 1;
        for (uint32_t h = 0; h < c->n_q_heads; h++) {
            const float *q = d->x + (uint64_t)t * d->x_width + h * n;
            uint32_t kv_head = h / (c->n_q_heads / c->n_kv_heads);
            struct page_state all = {0}, next;
            if (c->sinks > 0) {
                const float *sink_q = d->sink_q + ((uint64_t)t * c->n_q_heads + h) * n;
                page_attend_split(c, d, d->kv_start[seq], kv_head, sink_q, true, 0, position, &all);
            }
            for (uint32_t split = 0; split <= position; split += 512) {
                page_attend_split(c, d, d->kv_start[seq], kv_head, q, false, split, position, &next);
                if (next.used)
                    page_merge(&all, &next, n);
            }
            if (d->vector)
                page_merge(&all, &(struct page_state){.m = d->vector[h], .l = 1.0f}, n);
            for (uint32_t k = 0; k < n; k++)
                out[((uint64_t)t * c->n_q_heads + h) * n + k] = all.o[k] / all.l;
        }
    }
}

/* ---- all ------------------------------------------------------------------------------------- */

static void page_copy_rows(const struct op_case *c, const struct op_data *d, float *out, uint32_t n_tokens)
{
    for (uint64_t t = 0; t < n_tokens; t++) {
        for (uint64_t k = 0; k < c->n_cols; k++) {
            uint64_t from = (uint64_t)d->ids[t] * c->n_cols + k;
            float v = op_is_quantized(c)    ? page_embed_quant(c, d, d->ids[t], (uint32_t)k)
                      : c->op == K_OP_EMBED ? stored(d->weights, c->dtype, from)
                                            : d->x[from];
            if (c->scale != 0)
                v = v * c->scale;
            out[t * c->n_cols + k] = c->into ? d->add[t * c->n_cols + k] + v : v;
        }
    }
}

static void page_copy_blocks(const struct op_data *d, struct op_output *out)
{
    size_t bytes = out->arrays[0].token_bytes;
    for (uint64_t t = 0; t < out->n_tokens; t++) {
        memcpy(out->arrays[0].bytes + t * bytes, (const char *)d->k + d->ids[t] * bytes, bytes);
        memcpy(out->arrays[1].bytes + t * bytes, (const char *)d->v + d->ids[t] * bytes, bytes);
    }
}

void page_run(const struct op_case *c, const struct op_data *d, struct op_output *out)
{
    if (op_output_make(c, out, NULL) != QUIRE_OK)
        abort(); /* memory is out */
    float *first = (float *)(void *)out->arrays[0].bytes;
    switch (c->op) {
    case K_OP_EMBED:
    case K_OP_GATHER: page_copy_rows(c, d, first, out->n_tokens); break;
    case K_OP_RMSNORM:
        if (c->n_rows)
            page_norm_in_place(c, d, first);
        else
            page_norm(c, d, first, (float *)(void *)out->arrays[1].bytes);
        break;
    case K_OP_LAYERNORM: page_layernorm(c, d, first); break;
    case K_OP_ACTIVATE: page_activate(c, d, first); break;
    case K_OP_POOL: page_pool(c, d, first); break;
    case K_OP_GEMM: gemm_of(c)(c, d, first); break;
    case K_OP_ROPE_ANGLES: page_angles(c, d, first); break;
    case K_OP_ROPE_KV: page_rope_kv(c, d, out); break;
    case K_OP_ATTENTION:
        (c->form == K_FORM_MMA && c->dtype == K_F16 ? page_attention_mma : page_attention)(c, d, first);
        break;
    case K_OP_GEMM_GATED: page_gemm_gated(c, d, first); break;
    case K_OP_MOE_ROUTE: page_moe_route(c, d, out); break;
    case K_OP_MOE_GEMM:
    case K_OP_MOE_GEMM_GATED: page_moe_gemm(c, d, first); break;
    case K_OP_MOE_COMBINE: page_moe_combine(c, d, first); break;
    case K_OP_KV_COPY: page_copy_blocks(d, out); break;
    case K_OP_SAMPLE:
        for (uint64_t t = 0; t < out->n_tokens; t++)
            page_sample(&d->rows[t], d->x + t * c->n_rows, c->n_rows,
                        (struct k_sample_result *)(void *)out->arrays[0].bytes + t);
        break;
    case K_OP_ATTENTION_PLAN:
    case K_OP_SAMPLE_PLAN:
    case K_OP_ALL_REDUCE:
    case K_OP_ALL_GATHER:
    case K_OP_CHECKSUM:
    case K_OP_PLACE_TOKENS: break; /* without cases */
    }
}
