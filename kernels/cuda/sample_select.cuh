/* Selects the kept tokens: finds the least key of a goal by gathering candidates and by histograms (sample.cu). */
#ifndef QUIRE_KERNELS_CUDA_SAMPLE_SELECT_CUH
#define QUIRE_KERNELS_CUDA_SAMPLE_SELECT_CUH

#include "kernels/cuda/sample_block.cuh"

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
    uint32_t bits = 64 - (uint32_t)__clzll((long long)(r.high - r.low));
    return bits > BUCKET_BITS ? bits - BUCKET_BITS : 0;
}

/* Returns whether the range and its buckets consist of whole values, independent of the id. */
static __device__ __forceinline__ bool is_of_values(struct range r)
{
    return (uint32_t)r.low == 0 && (uint32_t)r.high == ~0u && shift_of(r) >= 32;
}

/* Adds the weights of a range of values: the first histogram of top_p, by far the most common one. */
static __device__ __forceinline__ void fill_values(struct block_state *s, const struct view *v, struct range r)
{
    uint32_t shift = shift_of(r), low = (uint32_t)(r.low >> 32), span = (uint32_t)(r.high >> 32) - low;
    each_own_token<true>(v, [=](uint32_t id, float z, bool is_there) {
        float w = weight(v, z);
        uint32_t above = k_f32_bits(w) - low;
        (void)id;
        (void)is_there; /* a missing token has no weight, so it is not in the range */
        if (above <= span)
            add_to(s, above >> (shift - 32), fixed_point(w));
    });
}

/* Adds the row's keys in the range. */
static __device__ __forceinline__ void fill_from_row(struct block_state *s, const struct view *v, struct range r,
                                                     bool by_weight)
{
    uint32_t shift = shift_of(r);
    if (!v->raw && by_weight && is_of_values(r)) {
        fill_values(s, v, r);
        return;
    }
    each_own_token<true>(v, [=](uint32_t id, float z, bool is_there) {
        float w = weight(v, z);
        uint64_t key = key_of(k_select_u32(v->raw, order(z), k_f32_bits(w)), id);
        if (is_there && is_in(r, key))
            add_to(s, (uint32_t)((key - r.low) >> shift), by_weight ? fixed_point(w) : 1);
    });
}

static __device__ __forceinline__ void load_histogram(struct block_state *s, const struct sample_survey *survey)
{
    for (uint32_t i = threadIdx.x; i < BUCKETS; i += blockDim.x) {
        uint64_t sum = survey->buckets[i];
        s->low[i] = (uint32_t)sum;
        s->high[i] = (uint32_t)(sum >> 32);
    }
}

/* Sums groups of buckets and returns the total. */
static __device__ __forceinline__ uint64_t sum_histogram(struct block_state *s)
{
    __syncthreads();
    for (uint32_t g = warp_of(); g < GROUPS; g += n_warps()) {
        uint64_t sum = warp_sum(bucket_sum(s, 32 * g + lane_of()));
        if (lane_of() == 0)
            s->group[g] = sum;
    }
    __syncthreads();
    return warp_sum(s->group[lane_of()] + s->group[lane_of() + 32]);
}

/* Counts the keys in the range, or sums their weights, and returns the total. */
static __device__ __forceinline__ uint64_t fill_histogram(struct block_state *s, const struct view *v, bool from_list,
                                                          struct range r, bool by_weight)
{
    uint32_t shift = shift_of(r);
    if (v->survey && !from_list && by_weight) {
        load_histogram(s, v->survey);
        return sum_histogram(s);
    }
    clear_histogram(s, BUCKETS);
    if (from_list) {
        for (uint32_t i = threadIdx.x; i < s->n_list; i += blockDim.x) {
            uint64_t key = list()[i];
            if (is_in(r, key))
                add_to(s, (uint32_t)((key - r.low) >> shift), amount(key, by_weight));
        }
    } else {
        fill_from_row(s, v, r, by_weight);
    }
    return sum_histogram(s);
}

/* Returns the bucket in which the sum from the top reaches *need, and sets *need to the rest needed from that bucket.
 * The total must reach *need. */
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

/* Adds the calling thread's keys in r to the list, and their sum. Only the value decides, except for values equal to
 * r's limits. */
template <bool raw>
static __device__ __forceinline__ uint64_t gather_own(struct block_state *s, const struct view *v, struct range r,
                                                      uint32_t capacity)
{
    uint32_t low = (uint32_t)(r.low >> 32);
    uint64_t sum = 0;
    each_own_token<true>(v, [&](uint32_t id, float z, bool is_there) {
        float w = weight(v, z);
        uint32_t value = raw ? order(z) : k_f32_bits(w);
        uint64_t key = key_of(value, id);
        sum += fixed_point(raw || key > r.high ? w : 0.0f);
        if (value >= low && is_there && is_in(r, key)) {
            uint32_t at = atomicAdd(&s->n_list, 1u);
            if (at < capacity)
                list()[at] = key;
        }
    });
    return sum;
}

/* Gathers keys of r into the list, up to its capacity. Returns whether it holds them all. Also sums weights for each
 * warp's part of the row: of the keys above r; for keys of raw logits, of every token. */
static __device__ __forceinline__ bool gather(struct block_state *s, const struct view *v, struct range r)
{
    uint32_t capacity = v->n < LIST ? v->n : LIST;
    __syncthreads();
    if (threadIdx.x == 0)
        s->n_list = 0;
    __syncthreads();
    uint64_t sum = warp_sum(v->raw ? gather_own<true>(s, v, r, capacity) : gather_own<false>(s, v, r, capacity));
    if (lane_of() == 0)
        s->segment[warp_of()] = sum;
    __syncthreads();
    return s->n_list <= capacity;
}

/* The same from a survey's list. */
static __device__ __forceinline__ bool take_gathered(struct block_state *s, const struct sample_survey *survey)
{
    uint32_t n = (uint32_t)survey->n_list, n_there = n < LIST ? n : LIST;
    for (uint32_t i = threadIdx.x; i < n_there; i += blockDim.x)
        list()[i] = survey->list[i];
    if (threadIdx.x < MAX_WARPS)
        s->segment[threadIdx.x] = survey->above[threadIdx.x];
    if (threadIdx.x == 0)
        s->n_list = n;
    __syncthreads();
    return n <= LIST;
}

/* In a list of few keys, none above r, returns the least key of the shortest prefix within r whose count (or weight)
 * reaches need: each thread counts the keys that rank before its own. Returns r.low if the total does not reach need.
 */
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
            if (key > own)
                before += amount(key, by_weight);
        }
        if (own >= r.low && before < need && before + amount(own, by_weight) >= need)
            s->found = own;
    }
    __syncthreads();
    return s->found;
}

/* Returns a key that at least k tokens reach: the k-th best of the maxima of groups of four threads, or v->keep if
 * fewer groups have one. 0 means that a thread has no key. */
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

/* ---- the kept tokens --------------------------------------------------------------------------- */

/* The part of the ranking to keep: its first k, or (k = 0) the shortest prefix with this share of the weight. */
struct goal {
    uint32_t k;
    float share;
};

/* Where the kept tokens are at present. */
struct place {
    bool in_list;   /* all of them, perhaps with others below v->keep */
    bool in_bucket; /* those of a range are in the list; the weights of those above it are in s->segment */
};

/* Returns p S as a count of units, rounded up. */
static __device__ __forceinline__ uint64_t share_of(float top_p, uint64_t sum)
{
    double share = (double)top_p * (double)sum;
    uint64_t need = (uint64_t)share;
    need += (double)need < share;
    return need > 0 ? need : 1;
}

/* Returns the total weight of a list's keys within r. */
static __device__ __forceinline__ uint64_t weight_of_list(struct block_state *s, struct range r)
{
    uint64_t sum = 0;
    for (uint32_t i = threadIdx.x; i < s->n_list; i += blockDim.x)
        sum += is_in(r, list()[i]) ? amount(list()[i], true) : 0;
    return block_sum(s, sum);
}

/* Returns the range of the weights that top_p may keep. */
static __device__ __forceinline__ struct range range_of_weights(const struct view *v)
{
    const uint64_t least = key_of(LEAST_BITS, ~0u);
    return {v->keep < least ? least : v->keep, key_of(ONE_BITS, 0)};
}

/* Raises v->keep to the least key of the goal. `bound`: a key that at least k tokens reach, or v->keep. Possible keys
 * are gathered into the list if it can hold them, and histograms of the row or of the list narrow their range. In the
 * view of raw logits the list finally holds the k best, and at most FEW in total. */
static __device__ __forceinline__ void select(struct block_state *s, struct view *v, struct place *place,
                                              uint64_t bound, struct goal goal)
{
    const uint64_t top = v->raw ? ~UINT64_C(0) : key_of(ONE_BITS, 0);
    bool by_weight = goal.k == 0, has_need = !by_weight, is_last = false;
    bool gathers = !place->in_list && (!by_weight || v->n <= LIST), gathers_bucket = true;
    uint64_t need = goal.k;
    struct range r = {bound, top};
    if (by_weight)
        r = range_of_weights(v);
    place->in_bucket = false;
    for (;;) {
        if (gathers) {
            bool fits = v->survey ? take_gathered(s, v->survey) : gather(s, v, r);
            v->survey = NULL;
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
        } else if (!is_found && by_weight && r.low >> 32 == r.high >> 32) { /* equal weights: keep some, by id */
            uint64_t each = amount(r.low, true), last = key_of((uint32_t)(r.low >> 32), v->n - 1);
            need = (need + each - 1) / each;
            by_weight = false;
            r.low = r.low > last ? r.low : last;
        } else if (!is_found) {
            uint64_t all = fill_histogram(s, v, from_list, r, by_weight);
            need = has_need ? need : share_of(goal.share, all);
            has_need = true;
            if (all < need) { /* fewer than k are in the row: all are kept */
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

#endif
