/* How a tensor core sums products of f16 into an f32, one output at a time and as plainly as it can be said. NVIDIA does not
 * say; two groups have found out by experiment, each with a model whose bits are the hardware's, and they agree:
 *   [1] Khattak and Mikaitis, Accurate Models of NVIDIA Tensor Cores, arXiv 2512.07004, and the models that go with it
 *       (north-numerical-computing/MATLAB-tensor-core: V100, A100, A2, A30, Ada, L40S, H100, H200, B200, RTX PRO 6000);
 *   [2] Xie, Wang, Yang, Yang, MMA-Sim, arXiv 2511.10909 (microsoft/MMA-Sim: Volta to Blackwell, mma.sync and wgmma).
 *
 * A group of products and c are summed at once. A product is exact and keeps the exponent e = e_a + e_b of its factors, though
 * it may be 2 or more times 2^e; a denormal factor has the exponent of the smallest normal one. Products with a zero factor and
 * a c of zero are left out. All that is left is cut, towards zero, to multiples of 2^(E - bits), with E the largest of their
 * exponents, and these are summed exactly; the sum is cut, towards zero, to an f32, denormals included. A sum of zero is +0,
 * one past f32 infinite. What is not a number is the NaN 0x7fffffff.
 *   Hopper (sm_90), Blackwell (sm_100, sm_120):  one group of 16, 25 bits
 *   Ampere (sm_80, sm_86), Ada (sm_89):          two groups of 8, the first one's sum being the second one's c; 24 bits
 * [1] says that it has held its models against 10^5 and more random cases of each GPU, [2] against 10^6. That hardware cuts towards zero,
 * that the order within a group is none and that A100 sums eight at once is also in Fasi, Higham, Mikaitis and Pranesh (PeerJ
 * Computer Science 7, e330, 2021), from experiments that know nothing of these two. The 5,000 cases with f16 factors that [1] has
 * published of each of H100, H200, B200, A100, A2, L40S and an Ada RTX were put to this file: no bit differs, where fma in
 * sequence differs in 53 to 63 of 100 and one bit more or less in 15 to 24.
 *
 * Where they differ: the program of [2] gives a zero factor the exponent -126, so that a c below 2^-86 would be cut
 * beside 0 x 65504; [1] leaves zeros out, and so do we. NaN's bits are [2]'s; [1] has only that it is one. Both say +0 for
 * a sum of nothing but -0. */
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

/* The exponent of a number that is not zero, in a format whose normal numbers begin at 2^least. */
static inline int tensor_core_exponent(float x, int least)
{
    uint32_t word;
    memcpy(&word, &x, sizeof word);
    int exponent = (int)(word >> 23 & 255) - 127;
    return exponent > least ? exponent : least;
}

/* A group's sum, c + Σ a b. Factors are what f16 can hold. */
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
    double units = ldexp(1, core.bits - top); /* of a number: exact, and a cast cuts towards zero */
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

/* d = c + Σ a b of sixteen products, as one mma.sync.m16n8k16 has it. */
static inline float tensor_core_sum(struct tensor_core core, float c, const float a[16], const float b[16])
{
    for (int k = 0; k < 16; k += core.group)
        c = tensor_core_group(core, c, a + k, b + k);
    return c;
}

#endif
