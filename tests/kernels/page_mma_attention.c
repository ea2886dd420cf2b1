/* docs/internals/numerics.md §17, attention in the mma form, one (token, head) at a time. */
#include "tests/kernels/page.h"
#include "tests/kernels/page_mma.h"

#include <math.h>
#include <string.h>

struct state {
    float m, l, o[256];
    bool used;
};

static float half_at(const void *cache, uint64_t element)
{
    uint16_t h;
    memcpy(&h, (const unsigned char *)cache + 2 * element, 2);
    return page_f32_from_f16(h);
}

static float rounded(float x)
{
    return page_f32_from_f16(page_f16_from_f32(x));
}

static float score(const void *keys, uint64_t element, const float *q, uint32_t n)
{
    float c = 0.0f;
    for (uint32_t from = 0; from < n; from += 16) {
        float a[16], b[16];
        for (uint32_t k = 0; k < 16; k++) {
            a[k] = rounded(q[from + k]);
            b[k] = half_at(keys, element + from + k);
        }
        c = page_mma(c, a, b);
    }
    return c;
}

/* Returns l's sum over a tile: four lanes, each over its positions in the specified order. */
static float sum_of_weights(const float p[64])
{
    static const int offsets[4] = {0, 1, 8, 9};
    float lane[4] = {0, 0, 0, 0};
    for (int t = 0; t < 4; t++)
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < 4; k++)
                lane[t] = lane[t] + p[16 * i + 2 * t + offsets[k]];
    float low = lane[0] + lane[1], high = lane[2] + lane[3];
    return low + high;
}

/* of_sinks: a tile of the split of the sinks, whose queries are their own. */
static void attend_tile(const struct op_case *c, const struct op_data *d, uint64_t kv_row, uint32_t kv_head,
                        const float *q, bool of_sinks, uint32_t tile, uint32_t position, struct state *st)
{
    uint32_t n = c->head_dim;
    float scale = 1.0f / sqrtf((float)n), s[64], p[64], m = st->m;
    bool readable[64], any = false;
    for (uint32_t i = 0; i < 64; i++) {
        uint32_t j = tile + i;
        readable[i] = j <= position &&
                      (of_sinks ? j < c->sinks : j >= c->sinks && (c->window == 0 || j + c->window > position));
        if (!readable[i])
            continue;
        any = true;
        float scaled = score(d->k, ((kv_row + j) * c->n_kv_heads + kv_head) * n, q, n) * scale;
        s[i] = page_softcap(scaled, c->softcap);
        m = s[i] > m ? s[i] : m;
    }
    if (!any)
        return;
    float alpha = page_exp(st->m - m);
    for (uint32_t i = 0; i < 64; i++)
        p[i] = readable[i] ? page_exp_half(s[i] - m) : 0.0f;
    st->l = fmaf(st->l, alpha, sum_of_weights(p));
    st->m = m;
    st->used = true;
    for (uint32_t e = 0; e < n; e++) {
        float o = st->o[e] * alpha;
        for (uint32_t from = 0; from < 64; from += 16) {
            float v[16];
            for (uint32_t k = 0; k < 16; k++)
                v[k] = readable[from + k]
                           ? half_at(d->v, ((kv_row + tile + from + k) * c->n_kv_heads + kv_head) * n + e)
                           : 0.0f;
            o = page_mma(o, p + from, v);
        }
        st->o[e] = o;
    }
}

static void merge(struct state *all, const struct state *next, uint32_t n)
{
    if (!next->used)
        return;
    if (!all->used) {
        *all = *next;
        return;
    }
    float m = next->m > all->m ? next->m : all->m;
    float a = page_exp(all->m - m), b = page_exp(next->m - m), l2 = next->l * b;
    all->l = fmaf(all->l, a, l2);
    for (uint32_t e = 0; e < n; e++) {
        float o2 = next->o[e] * b;
        all->o[e] = fmaf(all->o[e], a, o2);
    }
    all->m = m;
}

void page_attention_mma(const struct op_case *c, const struct op_data *d, float *out)
{
    uint32_t n = c->head_dim, n_tokens = op_n_tokens(c), seq;
    for (uint32_t t = 0; t < n_tokens; t++) {
        uint32_t position = op_token_position(c, t, &seq);
        for (uint32_t h = 0; h < c->n_q_heads; h++) {
            const float *q = d->x + (uint64_t)t * d->x_width + h * n;
            uint32_t kv_head = h / (c->n_q_heads / c->n_kv_heads);
            struct state all = {0}, sinks = {.m = -INFINITY};
            for (uint32_t tile = 0; tile < c->sinks; tile += 64) {
                const float *sink_q = d->sink_q + ((uint64_t)t * c->n_q_heads + h) * n;
                attend_tile(c, d, d->kv_start[seq], kv_head, sink_q, true, tile, position, &sinks);
            }
            merge(&all, &sinks, n);
            for (uint32_t split = 0; split <= position; split += 512) {
                struct state next = {.m = -INFINITY};
                for (uint32_t tile = split; tile < split + 512; tile += 64)
                    attend_tile(c, d, d->kv_start[seq], kv_head, q, false, tile, position, &next);
                merge(&all, &next, n);
            }
            if (d->vector)
                merge(&all, &(struct state){.m = d->vector[h], .l = 1.0f, .used = true}, n);
            for (uint32_t e = 0; e < n; e++) {
                float quotient = all.o[e] / all.l;
                out[((uint64_t)t * c->n_q_heads + h) * n + e] = quotient + 0.0f; /* a zero is +0 */
            }
        }
    }
}
