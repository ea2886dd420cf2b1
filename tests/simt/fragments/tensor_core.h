/* How a tensor core sums products of f16 into an f32, one output at a time and as plainly as possible. NVIDIA does not
 * document it. Two groups have determined it by experiment, each with a model whose bits equal the hardware's, and the
 * models agree:
 *   [1] Khattak and Mikaitis, Accurate Models of NVIDIA Tensor Cores, arXiv 2512.07004, and its models
 *       (north-numerical-computing/MATLAB-tensor-core: V100, A100, A2, A30, Ada, L40S, H100, H200, B200, RTX PRO 6000);
 *   [2] Xie, Wang, Yang, Yang, MMA-Sim, arXiv 2511.10909 (microsoft/MMA-Sim: Volta to Blackwell, mma.sync and wgmma).
 *
 * A group of products and c are summed at once. A product is exact and keeps the exponent e = e_a + e_b of its factors,
 * even if it is 2 or more times 2^e; a denormal factor has the exponent of the smallest normal one. Products with a
 * zero factor and a c of zero are omitted. The rest is truncated, towards zero, to multiples of 2^(E - bits), where E
 * is the largest of their exponents, and summed exactly. The sum is truncated, towards zero, to an f32, denormals
 * included. A sum of zero is +0, a sum past f32 is infinite. A NaN result is 0x7fffffff.
 *   Hopper (sm_90), Blackwell (sm_100, sm_120):  one group of 16, 25 bits
 *   Ampere (sm_80, sm_86), Ada (sm_89):          two groups of 8; the first one's sum is the second one's c; 24 bits
 * [1] reports a comparison of its models with 10^5 and more random cases of each GPU, [2] with 10^6. Fasi, Higham,
 * Mikaitis and Pranesh (PeerJ Computer Science 7, e330, 2021) also report, from independent experiments, that hardware
 * truncates towards zero, that there is no order within a group, and that A100 sums eight at once. This file was tested
 * with the 5,000 cases with f16 factors that [1] has published for each of H100, H200, B200, A100, A2, L40S and an Ada
 * RTX: no bit differs. Fma in sequence differs in 53 to 63 of 100 cases, and one bit more or less in 15 to 24.
 *
 * Differences between the models: the program of [2] gives a zero factor the exponent -126, so a c below 2^-86 would be
 * truncated next to 0 x 65504. [1] omits zeros, and so does this file. NaN's bits come from [2]; [1] only says that it
 * is a NaN. Both specify +0 for a sum of only -0.
 */
#ifndef QUIRE_TESTS_SIMT_FRAGMENTS_TENSOR_CORE_H
#define QUIRE_TESTS_SIMT_FRAGMENTS_TENSOR_CORE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct tensor_core {
    int group, bits;
};

#define TENSOR_CORE_HOPPER {16, 25}
#define TENSOR_CORE_AMPERE {8, 24}

/* Returns the exponent of a nonzero number, in a format whose normal numbers begin at 2^least. */
static inline int tensor_core_exponent(float x, int least)
{
    uint32_t word;
    memcpy(&word, &x, sizeof word);
    int exponent = (int)(word >> 23 & 255) - 127;
    return exponent > least ? exponent : least;
}

/* Returns a group's sum, c + Σ a b. Factors must be f16 numbers. */
static inline float tensor_core_group(struct tensor_core core, float c, const float *a, const float *b)
{
    const uint32_t nan_bits = 0x7fffffff;
    const int none = -1000;
    double ideal = c;
    int top = c != 0 ? tensor_core_exponent(c, -126) : none;
    for (int k = 0; k < core.group; k++) {
        ideal += (double)a[k] * b[k];
        int e = a[k] != 0 && b[k] != 0 ? tensor_core_exponent(a[k], -14) + tensor_core_exponent(b[k], -14) : none;
        top = e > top ? e : top;
    }
    if (isnan(ideal)) {
        float nan;
        memcpy(&nan, &nan_bits, sizeof nan);
        return nan;
    }
    if (isinf(ideal) || top == none)
        return (float)ideal + 0.0f;
    double units = ldexp(1, core.bits - top); /* the scaling is exact, and a cast truncates towards zero */
    int64_t sum = (int64_t)(c * units);
    for (int k = 0; k < core.group; k++)
        sum += (int64_t)((double)a[k] * b[k] * units);
    int exponent = top - core.bits;
    while (sum >= 1 << 24 || sum <= -(1 << 24) || exponent < -149) {
        sum /= 2;
        exponent++;
    }
    return ldexpf((float)sum, exponent); /* past f32: infinite */
}

/* Returns d = c + Σ a b of sixteen products, as one mma.sync.m16n8k16 computes it. */
static inline float tensor_core_sum(struct tensor_core core, float c, const float a[16], const float b[16])
{
    for (int k = 0; k < 16; k += core.group)
        c = tensor_core_group(core, c, a + k, b + k);
    return c;
}

#endif
