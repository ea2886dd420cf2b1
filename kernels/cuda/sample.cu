/* Sampling and logprobs (docs/numerics.md §13, §14): one block does one row, from raw logits to its result.
 *
 * Sums are integers, so no order of threads can change a bit. What ranks is a key of 64 bits: order(value) << 32 | ~id,
 * where order() is a float's bits turned so that they compare as the float does. Larger is better, of equals the lower
 * id, no two are the same: what top_k and top_p keep is every token whose key is at least `keep`.
 *
 * Cost: a pass reads the row once. 128 rows of 131,072 logits are 64 MiB a pass, 20 us at 3.35 TB/s; one row is 0.5 MiB
 * on one SM. A pass with weights does 30 to 40 instructions for each token (division, exp, fixed point), 131,072 / 128
 * lanes of an SM x 40 = 41,000 cycles, 24 us at 1.7 GHz: about as long as its bytes take.
 *   greedy           1: largest (and where it is)
 *   temperature      2: + sums of weights; then a 32nd of the row again, to find the token
 *   top_k            2: + candidates; what follows is done on their list, in shared memory
 *   top_p            3: + histogram, candidates of one bucket; then a 32nd
 *   logprobs        +2: log-sum with candidates of the best n; rank
 *   bias, penalties, mask: +1
 * so 128 rows with top_p should take 70 to 100 us. A lone row is the work of one SM, 5 to 10 us a pass of 152k logits.
 * Not measured.
 *
 * Candidates: 32 warps each own a 32nd of the row. The n-th best of 32 warps' (or 1,024 threads') bests is a bound that
 * at least n tokens reach, and few more than n: about 31 of 131,072 for n = 20. For top_p the bound is a bucket of a
 * histogram, 1/32 of a power of two wide: 1,140 tokens where 131,072 logits are normal with a deviation of 1. Where more
 * than the list holds are candidates, histograms of the row go on to the last bit: two to four passes more. */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/sample.h"

#define MAX_THREADS 512u
#define MAX_WARPS 16u
#define BUCKETS 2048u
#define GROUPS (BUCKETS / 32u)
#define LIST 8192u       /* 64 KiB: with the histogram below the 99 KiB of every GPU */
#define FEW 256u         /* a list that is ranked by comparing each with each */
#define SPAN 128u        /* tokens among which one warp finds the drawn one */
#define UNROLL 8u
#define GREEDY_BELOW 1e-5f
#define ONE_BITS 0x3f800000u
#define LEAST_BITS 0x2b000000u /* 2^-41: weights up to it are 0 in units of 2^-40 */

K_DYNAMIC_SHARED; /* the list */

/* ---- a block's shared memory ------------------------------------------------------------------- */

struct block_state {
    uint32_t low[BUCKETS], high[BUCKETS]; /* 64-bit sums in halves: there are 32-bit atomics in hardware alone */
    uint64_t group[GROUPS];               /* sums of 32 buckets */
    uint64_t partial[MAX_WARPS];
    uint64_t segment[MAX_WARPS];          /* of each warp's part of the row: the weights that are kept */
    uint64_t found, need;                 /* what one thread found, for all */
    double lse;
    float max;            /* of the raw logits */
    uint32_t n_list;
    uint32_t bad;
    uint32_t top_ids[K_MAX_LOGPROBS];
    float top_logprobs[K_MAX_LOGPROBS];
};

/* The row as a pass sees it. */
struct view {
    const float *z;
    const uint32_t *mask; /* or NULL */
    uint32_t n;
    uint32_t segment;     /* tokens of each warp: a multiple of 32 */
    bool raw;             /* keys are those of the logits, not of the weights */
    float temperature, max;
    uint64_t keep;        /* keys below it are out */
};

static __device__ __forceinline__ uint32_t lane_of()
{
    return threadIdx.x % 32;
}

static __device__ __forceinline__ uint32_t warp_of()
{
    return threadIdx.x / 32;
}

static __device__ __forceinline__ uint32_t n_warps()
{
    return blockDim.x / 32;
}

static __device__ __forceinline__ uint64_t *list()
{
    return (uint64_t *)k_shared;
}

/* ---- keys and weights -------------------------------------------------------------------------- */

static __device__ __forceinline__ float minus_inf()
{
    return k_f32_from_bits(0xff800000u);
}

static __device__ __forceinline__ bool is_usual(float z) /* neither NaN nor +inf */
{
    return z < k_f32_from_bits(0x7f800000u);
}

/* -0 counts as +0. */
static __device__ __forceinline__ uint32_t order(float z)
{
    uint32_t bits = k_f32_bits(z + 0.0f);
    return bits ^ ((0u - (bits >> 31)) | 0x80000000u);
}

static __device__ __forceinline__ uint64_t key_of(uint32_t order, uint32_t id)
{
    return (uint64_t)order << 32 | ~id;
}

static __device__ __forceinline__ uint32_t id_of(uint64_t key)
{
    return ~(uint32_t)key;
}

/* w in [0, 1], 0 or normal, in units of 2^-40, rounded to nearest even: below 2^23 units by a float addition, and above
 * that w's 24 bits are integers already. */
static __device__ __forceinline__ uint64_t fixed_point(float w)
{
    float units = w * 0x1p40f;
    if (units < 0x1p23f)
        return k_f32_bits(units + 0x1p23f) - 0x4b000000u;
    uint32_t bits = k_f32_bits(w);
    return (uint64_t)((bits & 0x7fffffu) | 0x800000u) << ((bits >> 23) - 110);
}

static __device__ __forceinline__ float weight(const struct view *v, float z)
{
    return k_exp((v->temperature == 1.0f ? z : z / v->temperature) - v->max);
}

/* What a key of a weight adds to a sum. */
static __device__ __forceinline__ uint64_t amount(uint64_t key, bool by_weight)
{
    return by_weight ? fixed_point(k_f32_from_bits((uint32_t)(key >> 32))) : 1;
}

/* ---- passes ------------------------------------------------------------------------------------ */

/* f(id, z) for the tokens of [begin, end), begin a multiple of 32: lane l's are begin + l, + 32 and so on. */
template <class F>
static __device__ __forceinline__ void each_token(const struct view *v, uint32_t begin, uint32_t end, F f)
{
    for (uint32_t first = begin; first < end; first += 32 * UNROLL) {
        float z[UNROLL];
#pragma unroll
        for (uint32_t u = 0; u < UNROLL; u++) {
            uint32_t id = first + 32 * u + lane_of();
            z[u] = id < end ? v->z[id] : 0.0f;
        }
#pragma unroll
        for (uint32_t u = 0; u < UNROLL; u++) {
            uint32_t id = first + 32 * u + lane_of();
            if (id >= end)
                break;
            if (v->mask && !(v->mask[id / 32] >> (id % 32) & 1u))
                z[u] = minus_inf();
            f(id, z[u]);
        }
    }
}

/* f for the tokens of the calling warp. */
template <class F> static __device__ __forceinline__ void each_own_token(const struct view *v, F f)
{
    uint32_t begin = warp_of() * v->segment, end = begin + v->segment;
    each_token(v, begin, end < v->n ? end : v->n, f);
}

/* ---- what threads do together ------------------------------------------------------------------ */

static __device__ __forceinline__ uint64_t warp_sum(uint64_t x)
{
    for (int d = 16; d > 0; d /= 2)
        x += __shfl_xor_sync(~0u, x, d);
    return x;
}

static __device__ __forceinline__ uint64_t warp_max(uint64_t x)
{
    for (int d = 16; d > 0; d /= 2) {
        uint64_t other = __shfl_xor_sync(~0u, x, d);
        x = other > x ? other : x;
    }
    return x;
}

static __device__ __forceinline__ uint64_t block_sum(struct block_state *s, uint64_t x)
{
    x = warp_sum(x);
    __syncthreads();
    if (lane_of() == 0)
        s->partial[warp_of()] = x;
    __syncthreads();
    return warp_sum(lane_of() < n_warps() ? s->partial[lane_of()] : 0);
}

static __device__ __forceinline__ uint64_t block_max(struct block_state *s, uint64_t x)
{
    x = warp_max(x);
    __syncthreads();
    if (lane_of() == 0)
        s->partial[warp_of()] = x;
    __syncthreads();
    return warp_max(lane_of() < n_warps() ? s->partial[lane_of()] : 0);
}

/* Lanes hold the terms of a sum, in order. The first lane at which it reaches *need, from which what stood before is then
 * taken; 32 where it does not. */
static __device__ __forceinline__ uint32_t first_to_reach(uint64_t x, uint64_t *need)
{
    uint64_t sum = x;
    for (int d = 1; d < 32; d *= 2) {
        uint64_t before = __shfl_up_sync(~0u, sum, d);
        sum += lane_of() >= (uint32_t)d ? before : 0;
    }
    uint32_t reached = __ballot_sync(~0u, sum >= *need);
    int last = reached ? __ffs((int)reached) - 1 : 31;
    *need -= __shfl_sync(~0u, reached ? sum - x : sum, last);
    return reached ? (uint32_t)last : 32;
}

/* ---- histograms -------------------------------------------------------------------------------- */

static __device__ __forceinline__ void clear_histogram(struct block_state *s, uint32_t n)
{
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        s->low[i] = s->high[i] = 0;
    __syncthreads();
}

static __device__ __forceinline__ void add_to(struct block_state *s, uint32_t bucket, uint64_t x)
{
    uint32_t low = (uint32_t)x, before = atomicAdd(&s->low[bucket], low);
    uint32_t high = (uint32_t)(x >> 32) + (before + low < before);
    if (high != 0)
        atomicAdd(&s->high[bucket], high);
}

static __device__ __forceinline__ uint64_t bucket_sum(const struct block_state *s, uint32_t bucket)
{
    return (uint64_t)s->high[bucket] << 32 | s->low[bucket];
}

/* Keys of [low, high] go into the buckets (key - low) >> shift. */
struct range {
    uint64_t low, high;
};

static __device__ __forceinline__ bool is_in(struct range r, uint64_t key)
{
    return key >= r.low && key <= r.high;
}

static __device__ __forceinline__ uint32_t shift_of(struct range r)
{
    uint32_t shift = 0;
    while ((r.high - r.low) >> shift >= BUCKETS)
        shift++;
    return shift;
}

/* Counts (or sums the weights of) what is in the range, and yields all of it. */
static __device__ __forceinline__ uint64_t fill_histogram(struct block_state *s, const struct view *v, bool from_list,
                                                          struct range r, bool by_weight)
{
    uint32_t shift = shift_of(r);
    clear_histogram(s, BUCKETS);
    if (from_list) {
        for (uint32_t i = threadIdx.x; i < s->n_list; i += blockDim.x) {
            uint64_t key = list()[i];
            if (is_in(r, key))
                add_to(s, (uint32_t)((key - r.low) >> shift), amount(key, by_weight));
        }
    } else {
        each_own_token(v, [=](uint32_t id, float z) {
            float w = weight(v, z);
            uint64_t key = key_of(v->raw ? order(z) : k_f32_bits(w), id);
            if (is_in(r, key))
                add_to(s, (uint32_t)((key - r.low) >> shift), by_weight ? fixed_point(w) : 1);
        });
    }
    __syncthreads();
    for (uint32_t g = warp_of(); g < GROUPS; g += n_warps()) {
        uint64_t sum = warp_sum(bucket_sum(s, 32 * g + lane_of()));
        if (lane_of() == 0)
            s->group[g] = sum;
    }
    __syncthreads();
    return warp_sum(s->group[lane_of()] + s->group[lane_of() + 32]);
}

/* The bucket in which the sum from the top reaches *need; *need becomes what is needed of that bucket. The sum of all
 * does reach it. */
static __device__ __forceinline__ uint32_t walk_histogram(struct block_state *s, uint64_t *need)
{
    if (warp_of() == 0) {
        uint64_t left = *need;
        uint32_t top = GROUPS - 1, lane = first_to_reach(s->group[top - lane_of()], &left);
        if (lane == 32) {
            top = GROUPS - 1 - 32;
            lane = first_to_reach(s->group[top - lane_of()], &left);
        }
        top = 32 * (top - lane) + 31;
        uint32_t bucket = top - first_to_reach(bucket_sum(s, top - lane_of()), &left);
        if (lane_of() == 0) {
            s->found = bucket;
            s->need = left;
        }
    }
    __syncthreads();
    *need = s->need;
    return (uint32_t)s->found;
}

static __device__ __forceinline__ struct range bucket_range(struct range r, uint32_t bucket)
{
    uint32_t shift = shift_of(r);
    uint64_t low = r.low + ((uint64_t)bucket << shift), high = low + ((UINT64_C(1) << shift) - 1);
    return {low, high < r.high ? high : r.high};
}

/* ---- the list ---------------------------------------------------------------------------------- */

/* Keys of r into the list, up to what it holds; yields whether it holds them all. Sums of weights for each warp's part
 * of the row: of the keys above r; where keys are those of raw logits, of every token. */
static __device__ __forceinline__ bool gather(struct block_state *s, const struct view *v, struct range r)
{
    uint32_t capacity = v->n < LIST ? v->n : LIST;
    __syncthreads();
    if (threadIdx.x == 0)
        s->n_list = 0;
    __syncthreads();
    uint64_t sum = 0;
    each_own_token(v, [&sum, s, v, r, capacity](uint32_t id, float z) {
        float w = weight(v, z);
        uint64_t key = key_of(v->raw ? order(z) : k_f32_bits(w), id);
        if (v->raw || key > r.high)
            sum += fixed_point(w);
        if (is_in(r, key)) {
            uint32_t at = atomicAdd(&s->n_list, 1u);
            if (at < capacity)
                list()[at] = key;
        }
    });
    sum = warp_sum(sum);
    if (lane_of() == 0)
        s->segment[warp_of()] = sum;
    __syncthreads();
    return s->n_list <= capacity;
}

/* In a list of few keys, the least of the shortest prefix within r whose count (or weight) reaches need: everyone counts
 * what ranks before his own. r.low where all of them do not reach it. */
static __device__ __forceinline__ uint64_t cut_few(struct block_state *s, struct range r, bool by_weight, uint64_t need)
{
    uint32_t n = s->n_list;
    __syncthreads();
    if (threadIdx.x == 0)
        s->found = r.low;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
        uint64_t own = list()[i], before = 0;
        for (uint32_t k = 0; k < n; k++) {
            uint64_t key = list()[k];
            if (key > own && key <= r.high)
                before += amount(key, by_weight);
        }
        if (is_in(r, own) && before < need && before + amount(own, by_weight) >= need)
            s->found = own;
    }
    __syncthreads();
    return s->found;
}

/* A key that at least k tokens reach: the k-th best of what groups of four threads found best, or v->keep where there
 * are not so many groups that found one. 0 stands for a thread that found none. */
static __device__ __forceinline__ uint64_t bound_of_bests(struct block_state *s, const struct view *v, uint64_t best,
                                                          uint32_t k)
{
    uint32_t n_groups = blockDim.x / 4;
    if (k > n_groups || v->n <= FEW)
        return v->keep;
    for (int d = 1; d <= 2; d *= 2) {
        uint64_t other = __shfl_xor_sync(~0u, best, d);
        best = other > best ? other : best;
    }
    __syncthreads();
    if (threadIdx.x == 0)
        s->n_list = n_groups;
    if (threadIdx.x % 4 == 0)
        list()[threadIdx.x / 4] = best;
    __syncthreads();
    return cut_few(s, {v->keep, ~UINT64_C(0)}, false, k);
}

/* ---- which tokens are kept --------------------------------------------------------------------- */

/* What is to be kept of the ranking: its first k, or (k = 0) the shortest prefix with this share of the weight. */
struct goal {
    uint32_t k;
    float share;
};

/* Where the kept tokens are by now. */
struct place {
    bool in_list;   /* all of them, with others below v->keep perhaps */
    bool in_bucket; /* those of a range are in the list, the weights of those above it in s->segment */
};

/* p S as a count of units, rounded up. */
static __device__ __forceinline__ uint64_t share_of(float top_p, uint64_t sum)
{
    double share = (double)top_p * (double)sum;
    uint64_t need = (uint64_t)share;
    need += (double)need < share;
    return need > 0 ? need : 1;
}

/* The weights of a list's keys within r, all together. */
static __device__ __forceinline__ uint64_t weight_of_list(struct block_state *s, struct range r)
{
    uint64_t sum = 0;
    for (uint32_t i = threadIdx.x; i < s->n_list; i += blockDim.x)
        sum += is_in(r, list()[i]) ? amount(list()[i], true) : 0;
    return block_sum(s, sum);
}

/* Raises v->keep to the least key of the goal. `bound`: a key that at least k tokens reach, or v->keep. Keys that may be
 * the one are gathered into the list where that can hold them, and histograms narrow their range, of the row or of the
 * list. In the view of raw logits the list holds the k best in the end, and at most FEW in all. */
static __device__ __forceinline__ void select(struct block_state *s, struct view *v, struct place *place,
                                              uint64_t bound, struct goal goal)
{
    const uint64_t top = v->raw ? ~UINT64_C(0) : key_of(ONE_BITS, 0), least = key_of(LEAST_BITS, ~0u);
    bool by_weight = goal.k == 0, has_need = !by_weight, is_last = false;
    bool gathers = !place->in_list && (!by_weight || v->n <= LIST), gathers_bucket = true;
    uint64_t need = goal.k;
    struct range r = {by_weight && bound < least ? least : bound, top};
    place->in_bucket = false;
    for (;;) {
        if (gathers) {
            bool fits = gather(s, v, r);
            place->in_list = fits && r.high == top;
            place->in_bucket = fits && r.high != top;
            gathers = false;
            if (is_last)
                return;
        }
        bool from_list = place->in_list || place->in_bucket, is_found = r.low == r.high;
        if (!is_found && from_list && s->n_list <= FEW) {
            need = has_need ? need : share_of(goal.share, weight_of_list(s, r));
            r.low = cut_few(s, r, by_weight, need);
            is_found = true;
        } else if (!is_found && by_weight && r.low >> 32 == r.high >> 32) { /* equal weights: so many of them, by id */
            uint64_t each = amount(r.low, true), last = key_of((uint32_t)(r.low >> 32), v->n - 1);
            need = (need + each - 1) / each;
            by_weight = false;
            r.low = r.low > last ? r.low : last;
        } else if (!is_found) {
            uint64_t all = fill_histogram(s, v, from_list, r, by_weight);
            need = has_need ? need : share_of(goal.share, all);
            has_need = true;
            if (all < need) { /* fewer than k are in: they stay */
                r.low = v->keep;
                is_found = true;
            } else {
                uint32_t bucket = walk_histogram(s, &need);
                is_found = !by_weight && bucket_sum(s, bucket) == need;
                r = bucket_range(r, bucket);
                gathers = gathers_bucket && !from_list && !is_found;
                gathers_bucket = false;
            }
        }
        if (is_found) {
            v->keep = r.low;
            if (!v->raw || (place->in_list && s->n_list <= FEW))
                return;
            r.high = top;
            gathers = is_last = true;
        }
    }
}

/* ---- the largest ------------------------------------------------------------------------------- */

struct best {
    uint64_t own, all; /* the thread's best key by logit (0: it has no token), the row's */
    bool is_bad;       /* a NaN or +inf, or nothing above -inf */
};

static __device__ __forceinline__ struct best find_best(struct block_state *s, const struct view *v)
{
    float best = minus_inf();
    uint32_t best_id = 0;
    bool any = false, bad = false;
    each_own_token(v, [&](uint32_t id, float z) {
        bad = bad || !is_usual(z);
        if (z > best || !any) {
            best = z;
            best_id = id;
        }
        any = true;
    });
    struct best b;
    b.own = any ? key_of(order(best), best_id) : 0;
    b.all = block_max(s, bad ? ~UINT64_C(0) : b.own);
    b.is_bad = b.all == ~UINT64_C(0) || b.all >> 32 <= order(minus_inf());
    return b;
}

/* ---- §14 --------------------------------------------------------------------------------------- */

static __device__ __forceinline__ float logprob(float z, float max, double lse)
{
    return (float)(((double)z - (double)max) - lse);
}

/* The best n, which the list holds, into s->top_ids. */
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

/* 1 + the number of tokens with a larger logit. */
static __device__ __forceinline__ uint32_t rank_of(struct block_state *s, const struct view *v, float z)
{
    uint32_t n_larger = 0;
    each_own_token(v, [&](uint32_t id, float other) {
        (void)id;
        n_larger += other > z;
    });
    return 1 + (uint32_t)block_sum(s, n_larger);
}

static __device__ __forceinline__ uint32_t n_top_of(const struct sample_row_dev *row, uint32_t n_vocab)
{
    uint32_t n = row->n_logprobs > 0 ? (uint32_t)row->n_logprobs : 0;
    return n < n_vocab ? n : n_vocab;
}

/* rank is 0 where no logprobs are wanted, or the row is bad. */
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

/* In place; what was there before goes to `saved`. A masked token stays masked, but where a penalty makes NaN or +inf
 * of its -inf the row cannot be sampled. */
static __device__ __forceinline__ void adjust(struct block_state *s, const struct sample_row_dev *row, float *z,
                                              uint32_t *words)
{
    const struct k_logit_bias *biases = (const struct k_logit_bias *)(words + row->biases);
    const struct k_token_count *counts = (const struct k_token_count *)(words + row->counts);
    const uint32_t *mask = row->mask ? words + row->mask : NULL;
    float *saved = row->saved ? (float *)(words + row->saved) : NULL;
    for (uint32_t i = threadIdx.x; i < row->n_biases; i += blockDim.x) {
        uint32_t id = biases[i].id;
        if (saved)
            saved[i] = z[id];
        z[id] += biases[i].bias;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < row->n_counts; i += blockDim.x) {
        struct k_token_count count = counts[i];
        float x = z[count.id];
        bool is_masked = mask && !(mask[count.id / 32] >> (count.id % 32) & 1u);
        if (saved)
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

static __device__ __forceinline__ void restore(const struct sample_row_dev *row, float *z, const uint32_t *words)
{
    const struct k_logit_bias *biases = (const struct k_logit_bias *)(words + row->biases);
    const struct k_token_count *counts = (const struct k_token_count *)(words + row->counts);
    const float *saved = (const float *)(words + row->saved);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < row->n_counts; i += blockDim.x)
        z[counts[i].id] = saved[row->n_biases + i];
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < row->n_biases; i += blockDim.x)
        z[biases[i].id] = saved[i];
    __syncthreads();
}

/* ---- §13 --------------------------------------------------------------------------------------- */

static __device__ __forceinline__ uint64_t kept_amount(const struct view *v, float z, uint32_t id)
{
    float w = weight(v, z);
    return key_of(k_f32_bits(w), id) >= v->keep ? fixed_point(w) : 0;
}

/* The kept weights of each warp's part of [begin, end), into s->segment. */
static __device__ __forceinline__ void sum_parts(struct block_state *s, const struct view *v, uint32_t begin,
                                                 uint32_t end, uint32_t part)
{
    uint64_t sum = 0;
    begin += warp_of() * part;
    each_token(v, begin, begin < end && end - begin > part ? begin + part : end,
               [&](uint32_t id, float z) { sum += kept_amount(v, z, id); });
    sum = warp_sum(sum);
    __syncthreads();
    if (lane_of() == 0)
        s->segment[warp_of()] = sum;
}

/* The same of the whole row, from the list. */
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

/* The first token at which the running sum of kept weights, from `begin`, reaches need; the calling warp's work. */
static __device__ __forceinline__ uint32_t scan_span(const struct view *v, uint32_t begin, uint32_t end, uint64_t need)
{
    for (; begin < end; begin += 32) {
        uint32_t id = begin + lane_of();
        uint64_t x = 0;
        if (id < end) {
            bool allowed = !v->mask || (v->mask[id / 32] >> (id % 32) & 1u);
            x = kept_amount(v, allowed ? v->z[id] : minus_inf(), id);
        }
        uint32_t lane = first_to_reach(x, &need);
        if (lane < 32)
            return begin + lane;
    }
    return v->n - 1; /* not reached: need is at most the sum */
}

/* floor(R S / 2^64). */
static __device__ __forceinline__ uint64_t draw_point(const struct sample_row_dev *row, uint64_t sum)
{
    uint32_t key[2] = {(uint32_t)row->seed, (uint32_t)(row->seed >> 32)};
    uint32_t counter[4] = {row->position, row->choice, 0, 0}, words[4];
    k_philox(counter, key, words);
    uint64_t random = words[0] | (uint64_t)words[1] << 32;
    return (uint64_t)(((unsigned __int128)random * sum) >> 64);
}

/* The token at which the running sum exceeds x, by rising id: in one warp's part, in a warp's part of that, and so on. */
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

enum phase { RAW, TOP_K, TOP_P, END };

/* The view of adjusted logits as weights. False where none can be drawn; `best` is of those logits. */
static __device__ __forceinline__ bool view_weights(struct view *v, const struct sample_row_dev *row, struct best best)
{
    v->raw = false;
    v->temperature = row->temperature;
    v->max = v->z[id_of(best.all)] / row->temperature; /* the largest, since rounding keeps order */
    v->keep = key_of(row->min_p > 0.0f ? k_f32_bits(row->min_p) : 1, ~0u);
    return is_usual(v->max) && v->max > minus_inf();
}

/* The key that the thread's best has in this view: a token's, whether it is the thread's largest weight or not. */
static __device__ __forceinline__ uint64_t own_key(const struct view *v, struct best best)
{
    if (v->raw || best.own >> 32 <= order(minus_inf()))
        return v->raw ? best.own : 0;
    return key_of(k_f32_bits(weight(v, v->z[id_of(best.own)])), id_of(best.own));
}

/* The row's token, or false where it has none; s->top_ids, s->top_logprobs, s->max and s->lse where they are wanted. In
 * phases, so that each pass is compiled once. */
static __device__ __forceinline__ bool choose(struct block_state *s, const struct sample_row_dev *row, struct view *v,
                                              float *z, uint32_t *words, uint32_t *token)
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
            adjust(s, row, z, words);
            finds = row->mask || row->n_biases > 0 || row->n_counts > 0;
        }
        if (finds) {
            best = find_best(s, v);
            if (best.is_bad || s->bad)
                return false;
        }
        struct goal goal = {0, 0.0f};
        if (phase == RAW) {
            v->max = z[id_of(best.all)];
            goal.k = row->n_logprobs > 0 ? n_top_of(row, v->n) : row->n_logprobs == 0;
        } else if (phase == TOP_K) {
            *token = id_of(best.all);
            if (row->temperature < GREEDY_BELOW)
                return true;
            if (!view_weights(v, row, best))
                return false;
            goal.k = row->top_k;
            place.in_list = place.in_bucket = false;
        } else if (row->top_p < 1.0f) {
            goal.share = row->top_p;
        }
        bool by_share = phase == TOP_P && row->top_p < 1.0f;
        if (goal.k == 0 && !by_share)
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
            __syncthreads(); /* the logits are about to change */
        }
    }
    *token = draw(s, row, v, place);
    return true;
}

static __global__ void __launch_bounds__(MAX_THREADS) sample_kernel(struct sample_round round)
{
    static __shared__ struct block_state state;
    struct block_state *s = &state;
    const struct sample_row_dev *row = round.rows_dev + blockIdx.x;
    float *z = round.logits_dev + (uint64_t)blockIdx.x * round.n_vocab;
    struct view v;
    v.z = z;
    v.mask = NULL;
    v.n = round.n_vocab;
    v.segment = ((v.n + 31) / 32 + n_warps() - 1) / n_warps() * 32;
    v.raw = true;
    v.temperature = 1.0f;
    v.max = 0.0f;
    v.keep = 1; /* below the key of any logit */
    if (threadIdx.x == 0)
        s->bad = 0;
    uint32_t token = 0, rank = 0;
    bool is_bad = !choose(s, row, &v, z, round.workspace_dev, &token);
    if (!is_bad && row->n_logprobs >= 0) {
        if (row->saved)
            restore(row, z, round.workspace_dev);
        v.mask = NULL;
        rank = rank_of(s, &v, z[token]);
    }
    report(s, row, &v, is_bad, token, rank, (struct k_sample_result *)round.workspace_dev + blockIdx.x);
    if (threadIdx.x == 0)
        round.sampled_dev[blockIdx.x] = is_bad ? 0 : token;
}

extern "C" cudaError_t launch_sample(cudaStream_t stream, const struct sample_round *round)
{
    uint32_t n_threads = round->n_vocab <= FEW ? 32 : round->n_vocab <= LIST ? 256 : MAX_THREADS;
    uint32_t list_bytes = (round->n_vocab < LIST ? round->n_vocab : LIST) * 8;
    cudaError_t error = cudaFuncSetAttribute(sample_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, LIST * 8);
    if (error != cudaSuccess)
        return error;
    return K_LAUNCH(sample_kernel, round->n_rows, n_threads, list_bytes, stream, *round);
}
