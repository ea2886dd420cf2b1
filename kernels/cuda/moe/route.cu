/* The router (docs/internals/numerics.md §20): the logits, then each token's choice. The bits are a CPU's in every form.
 *
 * Logits: a warp has 8 experts and 4 tokens. Four threads share an expert, as in gemm_lane.cu: thread q has the lanes 4 q
 * to 4 q + 3. A decoded token of 128 experts and 2,048 columns reads 1 MB in 16 blocks with 8 loads of each thread in
 * flight. The gate of the shared expert is one more row.
 *
 * Choice: a warp a token. Lane l has the experts l, l + 32, ..., and a bit of each says that it is taken. A token's C
 * choices are C searches for the largest of all.
 */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/moe/list.h"
#include "kernels/math/exp.h"
#include "kernels/math/lane_sum.h"

#define ROUTE_FN static __device__ __forceinline__
#define QUARTERS 4u
#define WARP_EXPERTS (32 / QUARTERS)
#define TOKENS 4u
#define NOBODY 0xffffffffu

ROUTE_FN float sigmoid(float x)
{
    return 1.0f / (1.0f + k_exp(-x));
}

/* ---- the logits ------------------------------------------------------------------------------ */

/* Loads columns [k, k + 4), with +0 past the last. */
template <bool is_vector> ROUTE_FN float4 load4(const float *row, uint32_t k, uint32_t n)
{
    if (is_vector)
        return k < n ? *(const float4 *)(row + k) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    return make_float4(k < n ? row[k] : 0.0f, k + 1 < n ? row[k + 1] : 0.0f, k + 2 < n ? row[k + 2] : 0.0f,
                       k + 3 < n ? row[k + 3] : 0.0f);
}

ROUTE_FN float4 fma4(float4 w, float4 x, float4 s)
{
    return make_float4(fmaf(w.x, x.x, s.x), fmaf(w.y, x.y, s.y), fmaf(w.z, x.z, s.z), fmaf(w.w, x.w, s.w));
}

/* Row n_experts is the gate of the shared expert. */
ROUTE_FN void put_logit(const struct k_moe_route_args &a, uint32_t token, uint32_t expert, float sum)
{
    if (expert < a.n_experts)
        ((float *)a.workspace_dev)[(uint64_t)token * a.n_experts + expert] = a.bias_dev ? sum + a.bias_dev[expert]
                                                                                        : sum;
    else if (expert == a.n_experts && a.shared_gate_dev)
        a.shared_weights_dev[token] = sigmoid(sum);
}

template <uint32_t tokens, bool is_vector>
static __global__ void __launch_bounds__(32) moe_logits_kernel(const struct k_moe_route_args a, uint32_t n_warps)
{
    const uint32_t token = blockIdx.x / n_warps * tokens;
    const uint32_t expert = blockIdx.x % n_warps * WARP_EXPERTS + threadIdx.x / QUARTERS;
    const bool is_gate = expert >= a.n_experts && a.shared_gate_dev;
    const float *row = is_gate ? a.shared_gate_dev : a.router_dev + (uint64_t)min(expert, a.n_experts - 1) * a.n_cols;
    const float *x[tokens];
    float4 sums[tokens];
#pragma unroll
    for (uint32_t t = 0; t < tokens; t++) {
        x[t] = a.x_dev + (uint64_t)min(token + t, a.n_tokens - 1) * a.n_cols;
        sums[t] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
#pragma unroll(tokens == 1 ? 8 : 2)
    for (uint32_t from = 0; from < a.n_cols; from += K_LANES) {
        const uint32_t k = from + threadIdx.x % QUARTERS * 4;
        const float4 w = load4<is_vector>(row, k, a.n_cols);
#pragma unroll
        for (uint32_t t = 0; t < tokens; t++)
            sums[t] = fma4(w, load4<is_vector>(x[t], k, a.n_cols), sums[t]);
    }
#pragma unroll
    for (uint32_t t = 0; t < tokens; t++) {
        const float sum = fold_lanes(sums[t]);
        if (t % QUARTERS == threadIdx.x % QUARTERS && token + t < a.n_tokens)
            put_logit(a, token + t, expert, sum);
    }
}

/* ---- the choice ------------------------------------------------------------------------------ */

/* A token's numbers, one for each expert or group. */
struct route_shared {
    float scores[K_MOE_MAX_EXPERTS];
    float by[K_MOE_MAX_EXPERTS]; /* scores with corrections, by which experts are chosen */
    float groups[K_MOE_MAX_EXPERTS];
    float weights[K_MOE_MAX_USED];
};

/* Plain lane sum, to all lanes of the warp. */
ROUTE_FN float sum_of(const float *p, uint32_t n)
{
    float sum = 0.0f;
    for (uint32_t i = threadIdx.x % K_LANES; i < n; i += K_LANES)
        sum += p[i];
#pragma unroll
    for (uint32_t step = K_LANES / 2; step > 0; step /= 2)
        sum += __shfl_xor_sync(~0u, sum, step);
    return sum;
}

ROUTE_FN float largest_of_warp(float v)
{
#pragma unroll
    for (uint32_t step = 16; step > 0; step /= 2)
        v = fmaxf(v, __shfl_xor_sync(~0u, v, step));
    return v;
}

/* Sets the scores. Returns false if a logit is NaN. */
ROUTE_FN bool make_scores(struct route_shared &s, const struct k_moe_route_args &a, const float *logits)
{
    float most = -INFINITY;
    bool is_nan = false;
    for (uint32_t e = threadIdx.x; e < a.n_experts; e += 32) {
        const float l = logits[e];
        is_nan |= l != l;
        most = l > most ? l : most;
    }
    if (__any_sync(~0u, is_nan))
        return false;
    most = largest_of_warp(most);
    for (uint32_t e = threadIdx.x; e < a.n_experts; e += 32)
        s.scores[e] = a.score == K_ROUTE_SOFTMAX   ? k_exp(logits[e] - most)
                      : a.score == K_ROUTE_SIGMOID ? sigmoid(logits[e])
                                                   : logits[e];
    __syncwarp();
    const float sum = a.score == K_ROUTE_SOFTMAX ? sum_of(s.scores, a.n_experts) : 1.0f;
    __syncwarp();
    for (uint32_t e = threadIdx.x; e < a.n_experts; e += 32) {
        const float score = a.score == K_ROUTE_SOFTMAX ? s.scores[e] / sum : s.scores[e];
        s.scores[e] = score;
        s.by[e] = a.correction_dev ? score + a.correction_dev[e] : score;
    }
    __syncwarp();
    return true;
}

/* Returns the largest of n_all that are not taken, the lower number first among equals; bit i of a lane's `taken` is that
 * of number 32 i + lane. As a scan in rising order finds it: a NaN wins only where it is the first. */
ROUTE_FN uint32_t find_largest(const float *c, uint32_t n_all, uint32_t taken)
{
    uint32_t first = NOBODY, best = NOBODY;
    float value = 0.0f;
    for (uint32_t e = threadIdx.x, bits = taken; e < n_all; e += 32, bits >>= 1) {
        if (bits & 1)
            continue;
        first = min(first, e);
        if (c[e] == c[e] && (best == NOBODY || c[e] > value)) {
            best = e;
            value = c[e];
        }
    }
#pragma unroll
    for (uint32_t step = 16; step > 0; step /= 2) {
        const uint32_t other = __shfl_xor_sync(~0u, best, step);
        const float of_other = __shfl_xor_sync(~0u, value, step);
        if (other != NOBODY && (best == NOBODY || of_other > value || (of_other == value && other < best))) {
            best = other;
            value = of_other;
        }
    }
    first = __reduce_min_sync(~0u, first);
    return first < n_all && c[first] != c[first] ? first : best;
}

/* Returns `taken` with the n largest numbers that were free. */
ROUTE_FN uint32_t take_largest(const float *c, uint32_t n_all, uint32_t n, uint32_t taken)
{
#pragma unroll 1
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t best = find_largest(c, n_all, taken);
        if (best % 32 == threadIdx.x)
            taken |= 1u << best / 32;
    }
    return taken;
}

ROUTE_FN float group_score(const struct route_shared &s, uint32_t begin, uint32_t end, bool by_best)
{
    float best = -INFINITY, second = -INFINITY;
    for (uint32_t e = begin; e < end; e++) {
        const float c = s.by[e];
        second = c > best ? best : c > second ? c : second;
        best = c > best ? c : best;
    }
    return by_best ? best : best + second;
}

/* Returns the lane's experts outside the groups that are kept, as bits. */
ROUTE_FN uint32_t bar_groups(struct route_shared &s, const struct k_moe_route_args &a)
{
    const uint32_t size = a.n_experts / a.n_groups;
    uint32_t barred = 0;
    for (uint32_t g = threadIdx.x; g < a.n_groups; g += 32)
        s.groups[g] = group_score(s, g * size, (g + 1) * size, a.group_by_best);
    __syncwarp();
    uint32_t kept = take_largest(s.groups, a.n_groups, a.n_groups_used, 0);
    __syncwarp();
    for (uint32_t g = threadIdx.x; g < a.n_groups; g += 32, kept >>= 1)
        s.groups[g] = kept & 1 ? 1.0f : 0.0f;
    __syncwarp();
    for (uint32_t e = threadIdx.x, i = 0; e < a.n_experts; e += 32, i++)
        barred |= s.groups[e / size] == 0.0f ? 1u << i : 0;
    return barred;
}

/* Writes the chosen experts in rising order, and their scores to s.weights. */
ROUTE_FN void put_experts(struct route_shared &s, const struct k_moe_route_args &a, uint32_t chosen, uint32_t *experts)
{
    uint32_t n = 0;
    for (uint32_t from = 0; from < a.n_experts; from += 32, chosen >>= 1) {
        const uint32_t votes = __ballot_sync(~0u, chosen & 1);
        const uint32_t at = n + (uint32_t)__popc(votes & ((1u << threadIdx.x) - 1));
        if ((chosen & 1) && at < a.n_used) {
            experts[at] = from + threadIdx.x;
            s.weights[at] = s.scores[from + threadIdx.x];
        }
        n += (uint32_t)__popc(votes);
    }
    __syncwarp();
}

/* The sum begins with the first weight; lane i has weight i. */
ROUTE_FN float divided_by_sum(float w, uint32_t n, float add)
{
    float sum = __shfl_sync(~0u, w, 0);
    for (uint32_t i = 1; i < n; i++)
        sum += __shfl_sync(~0u, w, i);
    return w / (add != 0.0f ? sum + add : sum);
}

ROUTE_FN void put_weights(const struct route_shared &s, const struct k_moe_route_args &a, float *weights)
{
    const bool is_used = threadIdx.x < a.n_used;
    float w = is_used ? s.weights[threadIdx.x] : -INFINITY;
    if (a.score == K_ROUTE_TOP_SOFTMAX) {
        w = k_exp(w - largest_of_warp(w));
        w = divided_by_sum(w, a.n_used, 0.0f);
    }
    if (a.normalize)
        w = divided_by_sum(w, a.n_used, a.score == K_ROUTE_SIGMOID ? 1e-20f : 0.0f);
    if (is_used)
        weights[threadIdx.x] = a.scale != 1.0f ? w * a.scale : w;
}

static __global__ void __launch_bounds__(32) moe_route_kernel(const struct k_moe_route_args a)
{
    __shared__ struct route_shared s;
    const uint64_t token = blockIdx.x;
    uint32_t *experts = a.experts_dev + token * a.n_used, barred = 0;
    float *weights = a.weights_dev + token * a.n_used;
    if (!make_scores(s, a, (const float *)a.workspace_dev + token * a.n_experts)) {
        if (threadIdx.x < a.n_used) {
            experts[threadIdx.x] = threadIdx.x;
            weights[threadIdx.x] = k_f32_from_bits(0x7fc00000u);
        }
        return;
    }
    if (a.n_groups > 1)
        barred = bar_groups(s, a);
    put_experts(s, a, take_largest(s.by, a.n_experts, a.n_used, barred) & ~barred, experts);
    put_weights(s, a, weights);
}

/* ---- the launches ---------------------------------------------------------------------------- */

template <bool is_vector> static cudaError_t launch_logits(cudaStream_t stream, const struct k_moe_route_args *a)
{
    const uint32_t n_rows = a->n_experts + (a->shared_gate_dev ? 1 : 0);
    const uint32_t n_warps = (n_rows + WARP_EXPERTS - 1) / WARP_EXPERTS;
    if (a->n_tokens == 1)
        return K_LAUNCH((moe_logits_kernel<1, is_vector>), dim3(n_warps), dim3(32), 0, stream, *a, n_warps);
    return K_LAUNCH((moe_logits_kernel<TOKENS, is_vector>), dim3((a->n_tokens + TOKENS - 1) / TOKENS * n_warps),
                    dim3(32), 0, stream, *a, n_warps);
}

cudaError_t launch_moe_route(cudaStream_t stream, const struct k_moe_route_args *a)
{
    const uintptr_t all = (uintptr_t)a->x_dev | (uintptr_t)a->router_dev | (uintptr_t)a->shared_gate_dev;
    const bool is_vector = a->n_cols % 4 == 0 && all % 16 == 0;
    const cudaError_t error = is_vector ? launch_logits<true>(stream, a) : launch_logits<false>(stream, a);
    return error == cudaSuccess ? K_LAUNCH(moe_route_kernel, dim3(a->n_tokens), dim3(32), 0, stream, *a) : error;
}
