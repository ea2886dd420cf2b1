/* Sampling and logprobs (docs/internals/numerics.md §13, §14). One thread computes a row.
 *
 * No sort is needed: w is not negative, so its bits order as it does, and top_k and top_p keep a prefix of the ranking
 * by (w, then lower id). Such a prefix is a threshold: all ids whose w is above it, and the first few ids whose w
 * equals it. Three passes of a radix histogram find it. They read only those blocks of the row whose largest w can be
 * kept: with top_k 50 at most a twentieth of 152,000 tokens.
 */
#include "kernels/check.h"
#include "kernels/math/bits.h"
#include "kernels/math/exp.h"
#include "kernels/math/philox.h"
#include "kernels/math/wide.h"
#include "kernels/ref/ref.h"

#include <math.h>

#define GREEDY_BELOW 1e-5f
#define RADIX_BUCKETS 2048u
#define MAX_BLOCKS 1024u

struct threshold { /* ids kept: w's bits > key, and the first n_equal ids whose bits are key */
    uint32_t key;
    uint64_t n_equal;
};

/* Converts w in [0, 1] to an integer in units of 2^-40, rounded to nearest even: adding 2^52 + 2^51 rounds a double to
 * an integer, which its low bits then hold. */
static inline uint64_t fixed_point(float w)
{
    double sum = (double)w * 0x1p40 + 0x1.8p52;
    return k_f64_bits(sum) - 0x4338000000000000u;
}

/* ---- the raw row ----------------------------------------------------------------------------- */

/* Returns the largest of n values if none is NaN. Sets *bad if one is NaN or +inf. Compares integers in the order of
 * the floats, so that compilers vectorize the loop: the bits of a negative float are inverted except the sign. */
static inline float largest(const float *z, uint32_t n, bool *bad)
{
    int32_t max = INT32_MIN;
    uint32_t n_bad = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits = k_f32_bits(z[i]);
        n_bad |= (uint32_t)!(z[i] < INFINITY);
        int32_t order = (int32_t)(bits ^ ((0u - (bits >> 31)) >> 1));
        max = order > max ? order : max;
    }
    uint32_t bits = (uint32_t)max;
    *bad = n_bad != 0;
    return k_f32_from_bits(bits ^ ((0u - (bits >> 31)) >> 1));
}

/* Returns the largest of n values, or NaN if one is NaN or +inf. */
static float checked_max(const float *z, uint32_t n)
{
    bool bad;
    float max = largest(z, n, &bad);
    return bad ? NAN : max;
}

static double log_sum_exp(const float *z, uint32_t n, float max)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += fixed_point(k_exp(z[i] - max));
    return k_log64((double)sum * 0x1p-40);
}

static float logprob(float z, float max, double lse)
{
    return (float)(((double)z - (double)max) - lse);
}

#define TOP_BLOCK 256u

static void find_top(const float *z, uint32_t n, struct k_sample_result *out)
{
    float best[K_MAX_LOGPROBS];
    uint32_t n_best = 0;
    for (uint32_t begin = 0; begin < n; begin += TOP_BLOCK) {
        uint32_t end = n - begin < TOP_BLOCK ? n : begin + TOP_BLOCK;
        if (n_best == out->n_top && !(checked_max(z + begin, end - begin) > best[n_best - 1]))
            continue;
        for (uint32_t i = begin; i < end; i++) {
            if (n_best == out->n_top && !(z[i] > best[n_best - 1]))
                continue;
            uint32_t at = n_best < out->n_top ? n_best++ : n_best - 1;
            for (; at > 0 && z[i] > best[at - 1]; at--) {
                best[at] = best[at - 1];
                out->top_ids[at] = out->top_ids[at - 1];
            }
            best[at] = z[i];
            out->top_ids[at] = i;
        }
    }
    memcpy(out->top_logprobs, best, n_best * sizeof *best);
}

/* Computes logprobs and rank of the token from the raw logits. */
static void report_logprobs(const struct k_sample_row *row, const float *z, uint32_t n, float max,
                            struct k_sample_result *out)
{
    double lse = log_sum_exp(z, n, max);
    out->logprob = logprob(z[out->token], max, lse);
    uint32_t n_larger = 0;
    for (uint32_t i = 0; i < n; i++)
        n_larger += z[i] > z[out->token];
    out->rank = 1 + n_larger;
    out->n_top = (uint32_t)row->n_logprobs < n ? (uint32_t)row->n_logprobs : n;
    if (out->n_top > 0)
        find_top(z, n, out);
    for (uint32_t i = 0; i < out->n_top; i++)
        out->top_logprobs[i] = logprob(out->top_logprobs[i], max, lse);
}

/* ---- bias, mask and penalties ---------------------------------------------------------------- */

static void adjust_logits(const struct k_sample_row *row, float *z, uint32_t n)
{
    for (uint32_t i = 0; i < row->n_biases; i++)
        z[row->biases[i].id] += row->biases[i].bias;
    if (row->mask) {
        for (uint32_t i = 0; i < n; i++) {
            bool allowed = (row->mask[i / 32] >> (i % 32)) & 1u;
            z[i] = k_select_f32(allowed, z[i], -INFINITY);
        }
    }
    for (uint32_t i = 0; i < row->n_counts; i++) {
        const struct k_token_count *count = &row->counts[i];
        float x = z[count->id];
        if (row->repetition_penalty != 1.0f)
            x = x > 0.0f ? x / row->repetition_penalty : x * row->repetition_penalty;
        if (count->n_output > 0) {
            x -= (float)count->n_output * row->frequency_penalty;
            x -= row->presence_penalty;
        }
        z[count->id] = x;
    }
}

static uint32_t first_equal(const float *z, uint32_t n, float value)
{
    uint32_t i = 0;
    while (i < n - 1 && z[i] != value)
        i++;
    return i;
}

/* ---- the kept tokens ------------------------------------------------------------------------- */

struct weights { /* a row's w, in blocks; a block whose max is 0 contains no kept token */
    float *w;
    uint32_t n, block_size, n_blocks;
    float max[MAX_BLOCKS];
};

struct range {
    uint32_t begin, end;
};

static struct range block_of(const struct weights *v, uint32_t block)
{
    uint32_t begin = block * v->block_size;
    return (struct range){begin, v->n - begin < v->block_size ? v->n : begin + v->block_size};
}

/* Converts z to weights. */
static void weigh(struct weights *v, float *z, uint32_t n, float max)
{
    v->w = z;
    v->n = n;
    v->block_size = (n + MAX_BLOCKS - 1) / MAX_BLOCKS;
    v->block_size = (v->block_size + 31) / 32 * 32;
    v->n_blocks = (n + v->block_size - 1) / v->block_size;
    for (uint32_t b = 0; b < v->n_blocks; b++) {
        struct range r = block_of(v, b);
        for (uint32_t i = r.begin; i < r.end; i++)
            z[i] = k_exp(z[i] - max);
        v->max[b] = checked_max(z + r.begin, r.end - r.begin);
    }
}

static void drop_blocks_below(struct weights *v, float cut)
{
    for (uint32_t b = 0; b < v->n_blocks; b++)
        v->max[b] = k_select_f32(v->max[b] < cut, 0.0f, v->max[b]);
}

/* Counts, by digit, the w whose bits equal prefix in the positions of `above`, or sums their weights. */
static void add_digits(uint64_t *sums, const float *w, uint32_t n, uint32_t shift, uint32_t digit_mask, uint32_t above,
                       uint32_t prefix, bool by_weight)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t key = k_f32_bits(w[i]);
        if ((key & above) == prefix)
            sums[(key >> shift) & digit_mask] += by_weight ? fixed_point(w[i]) : 1;
    }
}

/* Processes one radix digit of w's bits from the top. Keys that equal *prefix above the digit are counted by the
 * digit's value, or their weights summed. The digit in which the running sum reaches `need` is added to *prefix, and
 * the sum above that digit is subtracted from need. */
static uint64_t take_digit(const struct weights *v, uint32_t shift, bool by_weight, uint32_t *prefix, uint64_t need)
{
    uint64_t sums[RADIX_BUCKETS] = {0};
    uint32_t above = shift == 21 ? 0 : ~0u << (shift == 10 ? 21 : 10);
    uint32_t digit_mask = (shift == 0 ? 1024u : RADIX_BUCKETS) - 1;
    for (uint32_t b = 0; b < v->n_blocks; b++) {
        struct range r = block_of(v, b);
        if (v->max[b] > 0.0f)
            add_digits(sums, v->w + r.begin, r.end - r.begin, shift, digit_mask, above, *prefix, by_weight);
    }
    uint32_t digit = digit_mask;
    for (; digit > 0 && sums[digit] < need; digit--)
        need -= sums[digit];
    *prefix |= digit << shift;
    return need;
}

/* Returns the shortest prefix of the ranking whose count (or sum of weights) reaches need, or the whole ranking if it
 * does not reach need. */
static struct threshold find_threshold(const struct weights *v, bool by_weight, uint64_t need)
{
    struct threshold t = {0, 0};
    need = take_digit(v, 21, by_weight, &t.key, need);
    need = take_digit(v, 10, by_weight, &t.key, need);
    need = take_digit(v, 0, by_weight, &t.key, need);
    t.n_equal = need;
    if (by_weight) {
        uint64_t q = fixed_point(k_f32_from_bits(t.key));
        t.n_equal = (need + q - 1) / q;
    }
    return t;
}

/* Sets w to 0, which no draw can select, for every token that is not kept. */
static void drop_below(struct weights *v, struct threshold t)
{
    uint64_t n_equal = t.n_equal;
    drop_blocks_below(v, k_f32_from_bits(t.key));
    for (uint32_t b = 0; b < v->n_blocks; b++) {
        struct range r = block_of(v, b);
        for (uint32_t i = r.begin; v->max[b] > 0.0f && i < r.end; i++) {
            uint32_t key = k_f32_bits(v->w[i]);
            if (key < t.key || (key == t.key && n_equal == 0))
                v->w[i] = 0.0f;
            else if (key == t.key)
                n_equal--;
        }
    }
}

/* Returns the sum of the weights that are at least `cut`. */
static uint64_t sum_range(const float *w, uint32_t n, float cut)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += fixed_point(k_select_f32(w[i] >= cut, w[i], 0.0f));
    return sum;
}

static uint64_t sum_of_weights(const struct weights *v, float cut)
{
    uint64_t sum = 0;
    for (uint32_t b = 0; b < v->n_blocks; b++) {
        struct range r = block_of(v, b);
        if (v->max[b] > 0.0f && v->max[b] >= cut)
            sum += sum_range(v->w + r.begin, r.end - r.begin, cut);
    }
    return sum;
}

/* The k largest w lie in blocks whose max is at least the k-th largest max. */
static void keep_top_k(struct weights *v, uint32_t k)
{
    if (k < v->n_blocks) {
        struct weights maxima = {
            .w = v->max, .n = v->n_blocks, .block_size = v->n_blocks, .n_blocks = 1, .max = {1.0f}};
        drop_blocks_below(v, k_f32_from_bits(find_threshold(&maxima, false, k).key));
    }
    drop_below(v, find_threshold(v, false, k));
}

/* If the weights of at least 2^-6 reach the share, smaller weights are not read. Otherwise the limit 2^-12 is tried. */
static void keep_top_p(struct weights *v, float top_p)
{
    double share = (double)top_p * (double)sum_of_weights(v, 0.0f);
    uint64_t need = (uint64_t)share;
    need += (double)need < share;
    need = need > 0 ? need : 1;
    for (float cut = 0x1p-6f; cut >= 0x1p-12f; cut *= 0x1p-6f) {
        if (sum_of_weights(v, cut) >= need) {
            drop_blocks_below(v, cut);
            break;
        }
    }
    drop_below(v, find_threshold(v, true, need));
}

static void filter_weights(const struct k_sample_row *row, struct weights *v)
{
    if (row->min_p > 0.0f) {
        drop_blocks_below(v, row->min_p);
        for (uint32_t i = 0; i < v->n; i++)
            v->w[i] = k_select_f32(v->w[i] >= row->min_p, v->w[i], 0.0f);
    }
    if (row->top_k > 0 && row->top_k < v->n)
        keep_top_k(v, row->top_k);
    if (row->top_p < 1.0f)
        keep_top_p(v, row->top_p);
}

/* ---- the draw -------------------------------------------------------------------------------- */

static uint32_t draw(const struct k_sample_row *row, const struct weights *v)
{
    uint32_t key[2] = {(uint32_t)row->seed, (uint32_t)(row->seed >> 32)};
    uint32_t counter[4] = {row->position, row->choice, 0, 0}, words[4];
    k_philox(counter, key, words);
    uint64_t random = words[0] | (uint64_t)words[1] << 32;
    uint64_t x = (uint64_t)(((unsigned __int128)random * sum_of_weights(v, 0.0f)) >> 64);
    uint64_t running = 0;
    for (uint32_t b = 0; b < v->n_blocks; b++) {
        struct range r = block_of(v, b);
        uint64_t sum = v->max[b] > 0.0f ? sum_range(v->w + r.begin, r.end - r.begin, 0.0f) : 0;
        if (running + sum <= x) {
            running += sum;
            continue;
        }
        for (uint32_t i = r.begin;; i++) {
            running += fixed_point(v->w[i]);
            if (running > x)
                return i;
        }
    }
    return v->n - 1; /* not reached: x is below the sum */
}

/* Chooses the token. Returns false if no token can be drawn. z is scratch. */
static bool choose_token(const struct k_sample_row *row, float *z, uint32_t n, uint32_t *token)
{
    adjust_logits(row, z, n);
    float max = checked_max(z, n);
    if (!(max > -INFINITY))
        return false;
    if (row->temperature < GREEDY_BELOW) {
        *token = first_equal(z, n, max);
        return true;
    }
    for (uint32_t i = 0; i < n; i++)
        z[i] = z[i] / row->temperature;
    max = checked_max(z, n);
    if (!(max > -INFINITY))
        return false;
    struct weights v;
    weigh(&v, z, n, max);
    filter_weights(row, &v);
    *token = draw(row, &v);
    return true;
}

static void sample_row(const struct k_sample_row *row, const float *logits, float *scratch, uint32_t n,
                       struct k_sample_result *out)
{
    memset(out, 0, sizeof *out);
    float max = checked_max(logits, n);
    out->bad_logits = !(max > -INFINITY);
    if (out->bad_logits)
        return;
    if (row->forced >= 0) {
        out->token = (uint32_t)row->forced;
    } else {
        memcpy(scratch, logits, (size_t)n * sizeof *scratch);
        out->bad_logits = !choose_token(row, scratch, n, &out->token);
    }
    if (row->n_logprobs >= 0 && !out->bad_logits)
        report_logprobs(row, logits, n, max, out);
}

static void sample_task(void *context, struct k_piece piece)
{
    const struct k_sample_args *a = context;
    float *scratch = (float *)a->workspace_dev + (uint64_t)piece.thread * a->n_vocab;
    for (uint64_t i = piece.index; i < a->n_rows; i += piece.count) {
        sample_row(&a->rows[i], a->logits_dev + i * a->n_vocab, scratch, a->n_vocab, &a->results_dev[i]);
        a->sampled_dev[i] = a->results_dev[i].token;
    }
}

int ref_sample(struct k_backend *b, const struct k_sample_args *a, struct quire_error *err)
{
    (void)err;
    struct k_sample_args args = *a;
    host_run(b, (uint64_t)a->n_rows * a->n_vocab * 16, sample_task, &args);
    return QUIRE_OK;
}

int ref_sample_plan(struct k_backend *b, const struct k_sample_plan_args *a, struct quire_error *err)
{
    (void)b;
    *a->n_planned = a->n_rows;
    *a->parts_bytes = 0;
    return k_check_sample(a, err);
}
