/* Sampling and logprobs (docs/internals/numerics.md §13, §14): one block computes one row, from raw logits to its
 * result. For few rows, many blocks first make the passes over the whole row that most requests need: the survey.
 *
 * Sums are integers, so the order of threads cannot change a bit. The ranking uses a key of 64 bits: order(value) << 32
 * | ~id, where order() rearranges a float's bits so that they compare as the float does. A larger key ranks higher,
 * equal values rank by the lower id, and no two keys are equal: top_k and top_p keep every token whose key is at least
 * `keep`.
 *
 * Passes over the row, each of 4 bytes per logit:
 *   greedy           1: the largest and its position
 *   temperature      2: + sums of weights; then a 16th of the row again, and so on, to find the token
 *   top_k            2: + candidates; the rest uses their list, in shared memory; then a 16th
 *   top_p            3: + histogram, candidates of one bucket; then a 16th
 *   logprobs        +2: log-sum with candidates of the best n; rank
 *   bias, penalties, mask: +1
 * 128 rows of 131,072 logits are 64 MiB per pass: 20 to 22 us at 3.35 TB/s, for which 512 threads with 8 logits each
 * have 16 KiB of each SM in flight. Instructions per token, of the machine code for sm_90a: about 7 to find the
 * largest, 50 for the first histogram (15 for the weight, 9 for its units, the rest bucket and sum), 34 to gather
 * candidates. A temperature other than 1 is a division, 17 more in each of the last two. 16.8 M tokens x 50 / (132 SMs
 * x 128 lanes x 1.755 GHz) = 28 us, slightly longer than the bytes. So weights are computed again in each pass: storing
 * them costs a pass that also writes, 45 us, and saves 15 us of the next one. top_p is predicted to take 85 us, 100 us
 * with a temperature.
 * A single row has one SM: 131,072 tokens would be 20 us of loads to find the largest, 29 us of instructions for the
 * histogram, 20 us for candidates or sums. For up to 32 rows 16 blocks each have 8,192 tokens, in three launches: the
 * largest, 3 us; the histogram of a row that only top_p limits, 4 to 5 us (41 instructions per token are 1.5 us; the
 * rest is a node of the graph, serial loads, and the blocks' additions in L2); its candidates, 5 to 6 us. Sums are
 * integers, and the list has no order, so it does not matter which block adds first. Then a block has about 1,140 keys,
 * and takes 10 us to narrow them down and to draw. So top_p alone is predicted to take 25 us (60 by one block after the
 * largest), greedy 8, of which 2 are launches that it does not use, a temperature or top_k 29 to 34. Not measured.
 *
 * Candidates: the n-th best of 128 groups' maxima is a bound that at least n tokens reach, and few more: 22 of 131,072
 * for n = 20, 64 for n = 50. For top_p the bound is a bucket of a histogram, 1/32 of a power of two wide: 1,140 tokens
 * if 131,072 logits are normal with a deviation of 1. If there are more than the list holds, histograms of the row
 * continue to the last bit: two to four more passes. Equal logits are slow, because they all add to one bucket at once.
 *
 * The block has 512 threads, because 1,024 threads have 64 registers each and spill.
 */
#include "kernels/cuda/sample_select.cuh"
#include "kernels/math/philox.h"
#include "kernels/math/wide.h"

#define GREEDY_BELOW 1e-5f
#define SPAN 128u /* tokens in which one warp finds the drawn one */

/* ---- the largest ------------------------------------------------------------------------------- */

struct best {
    uint64_t own, all; /* the thread's best key by logit (0: none above -inf), and the row's */
    bool is_bad;       /* a NaN or +inf, or no logit above -inf */
};

#define BAD (~UINT64_C(0))

/* Returns the best key of the calling thread's tokens: 0 if none is above -inf, BAD if one is NaN or +inf. */
static __device__ __forceinline__ uint64_t own_best(const struct view *v)
{
    float best = minus_inf();
    uint32_t best_id = 0;
    bool bad = false;
    each_own_token<false>(v, [&](uint32_t id, float z, bool is_there) {
        (void)is_there; /* missing tokens are -inf */
        bad = bad || !is_usual(z);
        if (z > best) {
            best = z;
            best_id = id;
        }
    });
    return bad ? BAD : best > minus_inf() ? key_of(order(best), best_id) : 0;
}

/* Computes the best from the row, or from a survey of it (survey not NULL). */
static __device__ __forceinline__ struct best find_best(struct block_state *s, const struct view *v,
                                                        const struct sample_survey *survey)
{
    struct best b;
    b.own = survey ? survey->bests[threadIdx.x / (MAX_THREADS / SAMPLE_BESTS)] : own_best(v);
    b.all = block_max(s, b.own);
    b.is_bad = b.all == BAD || b.all == 0;
    return b;
}

/* ---- §14 --------------------------------------------------------------------------------------- */

static __device__ __forceinline__ float logprob(float z, float max, double lse)
{
    return (float)(((double)z - (double)max) - lse);
}

/* Stores the best n, which are in the list, into s->top_ids. */
static __device__ __forceinline__ void rank_top(struct block_state *s, const struct view *v, uint32_t n)
{
    for (uint32_t i = threadIdx.x; i < s->n_list; i += blockDim.x) {
        uint64_t own = list()[i];
        uint32_t rank = 0;
        for (uint32_t k = 0; k < s->n_list; k++)
            rank += list()[k] > own;
        if (rank < n) {
            s->top_ids[rank] = id_of(own);
            s->top_logprobs[rank] = logprob(v->z[id_of(own)], v->max, s->lse);
        }
    }
}

/* Returns 1 + the number of tokens with a larger logit. */
static __device__ __forceinline__ uint32_t rank_of(struct block_state *s, const struct view *v, float z)
{
    uint32_t n_larger = 0;
    each_own_token<false>(v, [&](uint32_t id, float other, bool is_there) {
        (void)id;
        (void)is_there;
        n_larger += other > z;
    });
    return 1 + (uint32_t)block_sum(s, n_larger);
}

static __device__ __forceinline__ uint32_t n_top_of(const struct sample_row_dev *row, uint32_t n_vocab)
{
    uint32_t n = row->n_logprobs > 0 ? (uint32_t)row->n_logprobs : 0;
    return n < n_vocab ? n : n_vocab;
}

/* rank is 0 if no logprobs are requested, or the row is bad. */
static __device__ __forceinline__ void report(const struct block_state *s, const struct sample_row_dev *row,
                                              const struct view *v, bool is_bad, uint32_t token, uint32_t rank,
                                              struct k_sample_result *out)
{
    uint32_t n_top = rank > 0 ? n_top_of(row, v->n) : 0;
    for (uint32_t i = threadIdx.x; i < K_MAX_LOGPROBS; i += blockDim.x) {
        out->top_ids[i] = i < n_top ? s->top_ids[i] : 0;
        out->top_logprobs[i] = i < n_top ? s->top_logprobs[i] : 0.0f;
    }
    if (threadIdx.x == 0) {
        out->token = is_bad ? 0 : token;
        out->rank = rank;
        out->logprob = rank > 0 ? logprob(v->z[token], s->max, s->lse) : 0.0f;
        out->n_top = n_top;
        out->bad_logits = is_bad;
    }
}

/* ---- bias, mask and penalties ------------------------------------------------------------------ */

/* Adjusts the logits in place. The old values go to `saved`. A masked token stays masked, except that the row cannot be
 * sampled if a penalty turns its -inf into NaN or +inf. */
static __device__ __forceinline__ void adjust(struct block_state *s, const struct sample_row_dev *row, float *z,
                                              const uint32_t *words, float *saved)
{
    const struct k_logit_bias *biases = (const struct k_logit_bias *)(words + row->biases);
    const struct k_token_count *counts = (const struct k_token_count *)(words + row->counts);
    const uint32_t *mask = row->mask ? words + row->mask : NULL;
    for (uint32_t i = threadIdx.x; i < row->n_biases; i += blockDim.x) {
        uint32_t id = biases[i].id;
        if (row->is_saved)
            saved[i] = z[id];
        z[id] += biases[i].bias;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < row->n_counts; i += blockDim.x) {
        struct k_token_count count = counts[i];
        float x = z[count.id];
        bool is_masked = mask && !(mask[count.id / 32] >> (count.id % 32) & 1u);
        if (row->is_saved)
            saved[row->n_biases + i] = x;
        x = is_masked ? minus_inf() : x;
        if (row->repetition_penalty != 1.0f)
            x = x > 0.0f ? x / row->repetition_penalty : x * row->repetition_penalty;
        if (count.n_output > 0) {
            x -= (float)count.n_output * row->frequency_penalty;
            x -= row->presence_penalty;
        }
        if (is_masked && !is_usual(x))
            atomicOr(&s->bad, 1u);
        z[count.id] = x;
    }
    __syncthreads();
}

static __device__ __forceinline__ void restore(const struct sample_row_dev *row, float *z, const uint32_t *words,
                                               const float *saved)
{
    const struct k_logit_bias *biases = (const struct k_logit_bias *)(words + row->biases);
    const struct k_token_count *counts = (const struct k_token_count *)(words + row->counts);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < row->n_counts; i += blockDim.x)
        z[counts[i].id] = saved[row->n_biases + i];
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < row->n_biases; i += blockDim.x)
        z[biases[i].id] = saved[i];
    __syncthreads();
}

/* ---- §13 --------------------------------------------------------------------------------------- */

/* z is divided by the temperature. */
static __device__ __forceinline__ uint64_t kept_amount(const struct view *v, float z, uint32_t id)
{
    float w = weight(v, z);
    return fixed_point(key_of(k_f32_bits(w), id) >= v->keep ? w : 0.0f);
}

/* Stores the sum of the kept weights in each warp's part of [begin, end) into s->segment. */
static __device__ __forceinline__ void sum_parts(struct block_state *s, const struct view *v, uint32_t begin,
                                                 uint32_t end, uint32_t part)
{
    uint64_t sum = 0;
    begin += warp_of() * part;
    each_token<true>(v, begin, begin < end && end - begin > part ? begin + part : end,
                     [&](uint32_t id, float z, bool) { sum += kept_amount(v, z, id); });
    sum = warp_sum(sum);
    __syncthreads();
    if (lane_of() == 0)
        s->segment[warp_of()] = sum;
}

/* The same for the whole row, from the list. */
static __device__ __forceinline__ void sum_list(struct block_state *s, const struct view *v, struct place place)
{
    clear_histogram(s, MAX_WARPS);
    for (uint32_t i = threadIdx.x; i < s->n_list; i += blockDim.x) {
        uint64_t key = list()[i];
        if (key >= v->keep)
            add_to(s, id_of(key) / v->segment, amount(key, true));
    }
    __syncthreads();
    if (threadIdx.x < n_warps())
        s->segment[threadIdx.x] = bucket_sum(s, threadIdx.x) + (place.in_bucket ? s->segment[threadIdx.x] : 0);
}

/* Returns the first token at which the running sum of kept weights, from `begin`, reaches need. The calling warp
 * computes it. */
static __device__ __forceinline__ uint32_t scan_span(const struct view *v, uint32_t begin, uint32_t end, uint64_t need)
{
    for (; begin < end; begin += 32) {
        uint32_t id = begin + lane_of();
        uint64_t x = 0;
        if (id < end) {
            bool allowed = !v->mask || (v->mask[id / 32] >> (id % 32) & 1u);
            x = kept_amount(v, tempered(v, allowed ? v->z[id] : minus_inf()), id);
        }
        uint32_t lane = first_to_reach(x, &need);
        if (lane < 32)
            return begin + lane;
    }
    return v->n - 1; /* not reached: need is at most the sum */
}

/* Returns floor(R S / 2^64). */
static __device__ __forceinline__ uint64_t draw_point(const struct sample_row_dev *row, uint64_t sum)
{
    uint32_t key[2] = {(uint32_t)row->seed, (uint32_t)(row->seed >> 32)};
    uint32_t counter[4] = {row->position, row->choice, 0, 0}, words[4];
    k_philox(counter, key, words);
    uint64_t random = words[0] | (uint64_t)words[1] << 32;
    return (uint64_t)(((unsigned __int128)random * sum) >> 64);
}

/* Returns the token at which the running sum exceeds x, by rising id: in one warp's part, then in a warp's part of
 * that, and so on. */
static __device__ __forceinline__ uint32_t draw(struct block_state *s, const struct sample_row_dev *row,
                                                const struct view *v, struct place place)
{
    uint32_t begin = 0, end = v->n, part = v->segment;
    uint64_t need = 0;
    for (;;) {
        if (need == 0 && (place.in_list || place.in_bucket))
            sum_list(s, v, place);
        else
            sum_parts(s, v, begin, end, part);
        __syncthreads();
        uint64_t own = lane_of() < n_warps() ? s->segment[lane_of()] : 0;
        if (need == 0)
            need = draw_point(row, warp_sum(own)) + 1;
        begin += first_to_reach(own, &need) * part;
        end = end - begin < part ? end : begin + part;
        if (part <= SPAN || n_warps() == 1)
            break;
        part = (part / 32 + n_warps() - 1) / n_warps() * 32;
    }
    if (warp_of() == 0) {
        uint32_t token = scan_span(v, begin, end, need);
        if (lane_of() == 0)
            s->found = token;
    }
    __syncthreads();
    return (uint32_t)s->found;
}

/* ---- a row ------------------------------------------------------------------------------------- */

static __device__ __forceinline__ const struct sample_row_dev *row_of(const struct sample_launch *a, uint32_t i)
{
    return (const struct sample_row_dev *)(a->plan_dev + 1) + i;
}

/* Returns whether the row is drawn from unadjusted logits, limited only by top_p (and min_p). Such rows are surveyed
 * first. */
static __device__ __forceinline__ bool is_of_top_p(const struct sample_row_dev *row)
{
    return row->forced < 0 && row->temperature >= GREEDY_BELOW && row->top_k == 0 && row->top_p < 1.0f &&
           row->mask == 0 && row->n_biases == 0 && row->n_counts == 0;
}

enum phase { RAW, TOP_K, TOP_P, END };

/* Sets up the view of adjusted logits as weights. Returns false if no token can be drawn. `best` is that of the
 * adjusted logits. */
static __device__ __forceinline__ bool view_weights(struct view *v, const struct sample_row_dev *row, struct best best)
{
    v->raw = false;
    v->temperature = row->temperature;
    v->max = v->z[id_of(best.all)] / row->temperature; /* the largest, because rounding is monotonic */
    v->keep = key_of(row->min_p > 0.0f ? k_f32_bits(row->min_p) : 1, ~0u);
    return is_usual(v->max) && v->max > minus_inf();
}

/* Returns the key of the thread's best in this view. It belongs to a token, but is not always the thread's largest
 * weight. */
static __device__ __forceinline__ uint64_t own_key(const struct view *v, struct best best)
{
    if (v->raw || best.own >> 32 <= order(minus_inf()))
        return v->raw ? best.own : 0;
    return key_of(k_f32_bits(weight(v, tempered(v, v->z[id_of(best.own)]))), id_of(best.own));
}

/* Chooses the row's token, or returns false if there is none. Also fills s->top_ids, s->top_logprobs, s->max and s->lse
 * if requested. Divided into phases, so that each pass is compiled once. */
static __device__ __forceinline__ bool choose(struct block_state *s, const struct sample_row_dev *row, struct view *v,
                                              float *z, const uint32_t *words, float *saved,
                                              const struct sample_survey *survey, uint32_t *token)
{
    struct best best = {0, 0, false};
    struct place place = {false, false};
#pragma unroll 1
    for (uint32_t phase = RAW; phase < END; phase++) {
        bool finds = phase == RAW;
        if (phase == TOP_K) {
            if (row->forced >= 0) {
                *token = (uint32_t)row->forced;
                return true;
            }
            v->mask = row->mask ? words + row->mask : NULL;
            adjust(s, row, z, words, saved);
            finds = row->mask || row->n_biases > 0 || row->n_counts > 0;
        }
        if (finds) {
            best = find_best(s, v, phase == RAW ? survey : NULL);
            if (best.is_bad || s->bad)
                return false;
        }
        struct goal goal = {0, 1.0f};
        if (phase == RAW && row->n_logprobs >= 0) {
            v->max = z[id_of(best.all)];
            goal.k = row->n_logprobs > 0 ? n_top_of(row, v->n) : 1; /* the log-sum is a by-product */
        } else if (phase == TOP_K) {
            *token = id_of(best.all);
            if (row->temperature < GREEDY_BELOW)
                return true;
            if (!view_weights(v, row, best))
                return false;
            goal.k = row->top_k;
            place.in_list = place.in_bucket = false;
        } else if (phase == TOP_P) {
            goal.share = row->top_p;
            v->survey = is_of_top_p(row) && is_of_values(range_of_weights(v)) ? survey : NULL;
        }
        if (goal.k == 0 && !(goal.share < 1.0f))
            continue;
        uint64_t bound = goal.k > 0 ? bound_of_bests(s, v, own_key(v, best), goal.k) : v->keep;
        select(s, v, &place, bound, goal);
        if (phase == RAW) {
            double lse = k_log64((double)block_sum(s, lane_of() == 0 ? s->segment[warp_of()] : 0) * 0x1p-40);
            if (threadIdx.x == 0) {
                s->lse = lse;
                s->max = v->max;
            }
            __syncthreads();
            rank_top(s, v, goal.k);
            __syncthreads(); /* the logits change next */
        }
    }
    *token = draw(s, row, v, place);
    return true;
}

/* Returns a view of a row's raw logits: all of them, or one of n_parts, each as long as a warp's part in a block that
 * has the whole row. */
static __device__ __forceinline__ struct view view_of(const struct sample_launch *a, uint32_t row, uint32_t part,
                                                      uint32_t n_parts)
{
    uint32_t n_all = (a->n_vocab + 31) / 32, n = (n_all + n_parts - 1) / n_parts;
    struct view v;
    v.z = a->logits_dev + (uint64_t)row * a->n_vocab;
    v.mask = NULL;
    v.n = a->n_vocab;
    v.is_aligned = (uintptr_t)v.z % 16 == 0;
    v.begin = part * n * 32;
    v.end = v.begin + n * 32 < v.n ? v.begin + n * 32 : v.n;
    v.segment = (n + n_warps() - 1) / n_warps() * 32;
    v.survey = NULL;
    v.raw = true;
    v.temperature = 1.0f;
    v.max = 0.0f;
    v.keep = 1; /* below the key of any logit */
    return v;
}

/* ---- the survey -------------------------------------------------------------------------------- */

/* Block x has a part of row y. Pairs of its warps store their bests: as many per row as a sampling block has groups of
 * four threads, which use them as their own. Also clears the sums to which the next two kernels add. */
#define SURVEY_PAIRS (SAMPLE_BESTS / SAMPLE_PARTS) /* pairs of warps per block */

static __global__ void __launch_bounds__(MAX_THREADS) survey_kernel(struct sample_launch a)
{
    static __shared__ uint64_t bests[MAX_WARPS];
    if (blockIdx.y >= a.plan_dev->n_rows)
        return;
    struct sample_survey *survey = a.surveys_dev + blockIdx.y;
    struct view v = view_of(&a, blockIdx.y, blockIdx.x, SAMPLE_PARTS);
    uint64_t best = warp_max(own_best(&v));
    if (lane_of() == 0)
        bests[warp_of()] = best;
    if (threadIdx.x < SAMPLE_BUCKETS / SAMPLE_PARTS)
        survey->buckets[blockIdx.x * (SAMPLE_BUCKETS / SAMPLE_PARTS) + threadIdx.x] = 0;
    if (blockIdx.x == 0 && threadIdx.x == 0)
        survey->n_list = 0;
    __syncthreads();
    if (threadIdx.x < SURVEY_PAIRS) {
        uint64_t one = bests[2 * threadIdx.x], other = bests[2 * threadIdx.x + 1];
        survey->bests[blockIdx.x * SURVEY_PAIRS + threadIdx.x] = one > other ? one : other;
    }
}

/* Returns whether the weights of row y are surveyed, and sets up block x's part of it as weights. The same for all
 * threads of a block. */
static __device__ __forceinline__ bool part_to_weigh(struct block_state *s, const struct sample_launch *a,
                                                     struct view *v)
{
    if (blockIdx.y >= a->plan_dev->n_rows)
        return false;
    const struct sample_row_dev *row = row_of(a, blockIdx.y);
    if (!is_of_top_p(row))
        return false;
    *v = view_of(a, blockIdx.y, blockIdx.x, SAMPLE_PARTS);
    struct best best = find_best(s, v, a->surveys_dev + blockIdx.y);
    return !best.is_bad && view_weights(v, row, best) && is_of_values(range_of_weights(v));
}

static __global__ void __launch_bounds__(MAX_THREADS) survey_weights_kernel(struct sample_launch a)
{
    static __shared__ struct block_state state;
    struct view v;
    if (!part_to_weigh(&state, &a, &v))
        return;
    clear_histogram(&state, BUCKETS);
    fill_values(&state, &v, range_of_weights(&v));
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < BUCKETS; i += blockDim.x) {
        uint64_t sum = bucket_sum(&state, i);
        if (sum != 0)
            atomicAdd((unsigned long long *)&a.surveys_dev[blockIdx.y].buckets[i], (unsigned long long)sum);
    }
}

/* Every block searches the histogram and gathers its part's keys of the bucket that it finds. */
static __global__ void __launch_bounds__(MAX_THREADS) survey_bucket_kernel(struct sample_launch a)
{
    static __shared__ struct block_state state;
    struct block_state *s = &state;
    struct view v;
    if (!part_to_weigh(s, &a, &v))
        return;
    struct sample_survey *survey = a.surveys_dev + blockIdx.y;
    load_histogram(s, survey);
    uint64_t all = sum_histogram(s), need = share_of(row_of(&a, blockIdx.y)->top_p, all);
    if (all < need) /* by rounding: every token is kept */
        return;
    uint32_t bucket = walk_histogram(s, &need);
    gather(s, &v, bucket_range(range_of_weights(&v), bucket));
    uint32_t n = s->n_list;
    uint64_t above = warp_sum(lane_of() < MAX_WARPS ? s->segment[lane_of()] : 0);
    if (threadIdx.x == 0) {
        survey->above[blockIdx.x] = above;
        s->found = atomicAdd((unsigned long long *)&survey->n_list, (unsigned long long)n);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n && s->found + i < LIST; i += blockDim.x)
        survey->list[s->found + i] = list()[i];
}

/* ---- the kernel that samples ------------------------------------------------------------------- */

static __global__ void __launch_bounds__(MAX_THREADS, 1) sample_kernel(struct sample_launch a)
{
    static __shared__ struct block_state state;
    struct block_state *s = &state;
    if (blockIdx.x >= a.plan_dev->n_rows) /* for a recorded step, which may be larger than this one */
        return;
    const struct sample_row_dev *row = row_of(&a, blockIdx.x);
    const uint32_t *words = (const uint32_t *)a.plan_dev;
    float *z = a.logits_dev + (uint64_t)blockIdx.x * a.n_vocab, *saved = a.saved_dev + row->saved;
    struct view v = view_of(&a, blockIdx.x, 0, 1);
    if (threadIdx.x == 0)
        s->bad = 0;
    uint32_t token = 0, rank = 0;
    const struct sample_survey *survey = a.surveys_dev ? a.surveys_dev + blockIdx.x : NULL;
    bool is_bad = !choose(s, row, &v, z, words, saved, survey, &token);
    if (!is_bad && row->n_logprobs >= 0) {
        if (row->is_saved)
            restore(row, z, words, saved);
        v.mask = NULL;
        rank = rank_of(s, &v, z[token]);
    }
    report(s, row, &v, is_bad, token, rank, a.results_dev + blockIdx.x);
    if (threadIdx.x == 0)
        a.sampled_dev[blockIdx.x] = is_bad ? 0 : token;
}

static cudaError_t survey(cudaStream_t stream, const struct sample_launch *a)
{
    dim3 grid(SAMPLE_PARTS, a->n_rows), block(MAX_THREADS);
    cudaError_t error = cudaFuncSetAttribute(survey_bucket_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             LIST * 8);
    if (error == cudaSuccess)
        error = K_LAUNCH(survey_kernel, grid, block, 0, stream, *a);
    if (error == cudaSuccess)
        error = K_LAUNCH(survey_weights_kernel, grid, block, 0, stream, *a);
    return error == cudaSuccess ? K_LAUNCH(survey_bucket_kernel, grid, block, LIST * 8, stream, *a) : error;
}

extern "C" cudaError_t launch_sample(cudaStream_t stream, const struct sample_launch *a)
{
    uint32_t n_threads = a->n_vocab <= FEW ? 32 : a->n_vocab <= LIST ? 256 : MAX_THREADS;
    uint32_t list_bytes = (a->n_vocab < LIST ? a->n_vocab : LIST) * 8;
    cudaError_t error = cudaFuncSetAttribute(sample_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, LIST * 8);
    if (error != cudaSuccess)
        return error;
    struct sample_launch sampled = *a;
    if (a->n_rows > SAMPLE_SURVEY_ROWS || n_threads < MAX_THREADS)
        sampled.surveys_dev = NULL;
    else
        error = survey(stream, a);
    return error == cudaSuccess ? K_LAUNCH(sample_kernel, a->n_rows, n_threads, list_bytes, stream, sampled) : error;
}
