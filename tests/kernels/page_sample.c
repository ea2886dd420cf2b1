/* A literal implementation of docs/internals/numerics.md §13 and §14: ranks all tokens by sorting and keeps a
 * prefix. */
#include "tests/kernels/page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct ranked {
    float value;
    uint32_t id;
};

/* Larger values first, then lower ids. */
static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->value != y->value)
        return x->value > y->value ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static struct ranked *rank_all(const float *values, uint32_t n)
{
    struct ranked *r = malloc(n * sizeof *r);
    if (!r)
        abort();
    for (uint32_t i = 0; i < n; i++)
        r[i] = (struct ranked){values[i], i};
    qsort(r, n, sizeof *r, by_rank);
    return r;
}

static uint64_t fixed(float w)
{
    return (uint64_t)rint(ldexp((double)w, 40));
}

static bool drawable(const float *z, uint32_t n)
{
    bool any = false;
    for (uint32_t i = 0; i < n; i++) {
        if (isnan(z[i]) || (isinf(z[i]) && z[i] > 0))
            return false;
        any = any || !isinf(z[i]);
    }
    return any;
}

static void logprobs(const struct k_sample_row *row, const float *z, uint32_t n, struct k_sample_result *out)
{
    struct ranked *r = rank_all(z, n);
    float max = r[0].value;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += fixed(page_exp(z[i] - max));
    double lse = page_log(ldexp((double)sum, -40));
    out->rank = 1;
    for (uint32_t i = 0; i < n; i++)
        out->rank += z[i] > z[out->token];
    out->logprob = (float)((double)z[out->token] - (double)max - lse);
    out->n_top = (uint32_t)row->n_logprobs < n ? (uint32_t)row->n_logprobs : n;
    for (uint32_t i = 0; i < out->n_top; i++) {
        out->top_ids[i] = r[i].id;
        out->top_logprobs[i] = (float)((double)r[i].value - (double)max - lse);
    }
    free(r);
}

static void adjust(const struct k_sample_row *row, float *z, uint32_t n)
{
    for (uint32_t b = 0; b < row->n_biases; b++)
        z[row->biases[b].id] = z[row->biases[b].id] + row->biases[b].bias;
    for (uint32_t i = 0; row->mask && i < n; i++)
        if (!(row->mask[i / 32] & 1u << i % 32))
            z[i] = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < row->n_counts; k++) {
            if (row->counts[k].id != i)
                continue;
            if (row->repetition_penalty != 1)
                z[i] = z[i] > 0 ? z[i] / row->repetition_penalty : z[i] * row->repetition_penalty;
            if (row->counts[k].n_output == 0)
                continue;
            float product = (float)row->counts[k].n_output * row->frequency_penalty;
            z[i] = z[i] - product;
            z[i] = z[i] - row->presence_penalty;
        }
    }
}

/* Returns the integer weight of every kept token, by id. */
static uint64_t *kept_weights(const struct k_sample_row *row, const float *w, uint32_t n)
{
    struct ranked *r = rank_all(w, n);
    uint32_t n_kept = 0;
    while (n_kept < n && !(row->min_p > 0 && r[n_kept].value < row->min_p))
        n_kept++;
    if (row->top_k > 0 && n_kept > row->top_k)
        n_kept = row->top_k;
    if (row->top_p < 1) {
        uint64_t sum = 0, prefix = 0;
        for (uint32_t i = 0; i < n_kept; i++)
            sum += fixed(r[i].value);
        double need = ceil((double)row->top_p * (double)sum);
        uint64_t least = need < 1 ? 1 : (uint64_t)need;
        uint32_t i = 0;
        while (i < n_kept && prefix < least)
            prefix += fixed(r[i++].value);
        n_kept = i;
    }
    uint64_t *q = calloc(n, sizeof *q);
    if (!q)
        abort();
    for (uint32_t i = 0; i < n_kept; i++)
        q[r[i].id] = fixed(r[i].value);
    free(r);
    return q;
}

static uint32_t draw_token(const struct k_sample_row *row, const uint64_t *q, uint32_t n)
{
    uint32_t counter[4] = {row->position, row->choice, 0, 0}, words[4];
    uint32_t key[2] = {(uint32_t)(row->seed & 0xffffffffu), (uint32_t)(row->seed >> 32)};
    page_philox(counter, key, words);
    uint64_t sum = 0, running = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += q[i];
    /* floor(R S / 2^64) from 32-bit halves. */
    uint64_t low = words[0] * (sum & 0xffffffffu), mid1 = words[1] * (sum & 0xffffffffu);
    uint64_t mid2 = words[0] * (sum >> 32), high = words[1] * (sum >> 32);
    uint64_t carry = ((low >> 32) + (mid1 & 0xffffffffu) + (mid2 & 0xffffffffu)) >> 32;
    uint64_t x = high + (mid1 >> 32) + (mid2 >> 32) + carry;
    uint32_t i = 0;
    while ((running += q[i]) <= x)
        i++;
    return i;
}

static bool choose(const struct k_sample_row *row, const float *logits, uint32_t n, uint32_t *token)
{
    float *z = malloc(n * sizeof *z);
    if (!z)
        abort();
    memcpy(z, logits, n * sizeof *z);
    adjust(row, z, n);
    bool ok = drawable(z, n);
    if (ok && row->temperature < 1e-5f) {
        struct ranked *r = rank_all(z, n);
        *token = r[0].id;
        free(r);
    } else if (ok) {
        float max = -INFINITY;
        for (uint32_t i = 0; i < n; i++) {
            z[i] = z[i] / row->temperature;
            max = z[i] > max ? z[i] : max;
        }
        ok = drawable(z, n);
        for (uint32_t i = 0; ok && i < n; i++)
            z[i] = page_exp(z[i] - max);
        if (ok) {
            uint64_t *q = kept_weights(row, z, n);
            *token = draw_token(row, q, n);
            free(q);
        }
    }
    free(z);
    return ok;
}

void page_sample(const struct k_sample_row *row, const float *logits, uint32_t n_vocab, struct k_sample_result *out)
{
    memset(out, 0, sizeof *out);
    out->bad_logits = !drawable(logits, n_vocab);
    if (!out->bad_logits && row->forced >= 0)
        out->token = (uint32_t)row->forced;
    else if (!out->bad_logits)
        out->bad_logits = !choose(row, logits, n_vocab, &out->token);
    if (!out->bad_logits && row->n_logprobs >= 0)
        logprobs(row, logits, n_vocab, out);
}
