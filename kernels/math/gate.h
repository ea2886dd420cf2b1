/* The gates of an MLP (docs/internals/numerics.md §11). The rules of kernels/math/bits.h apply: the same bits everywhere,
 * pure, any thread. The kind of gate is the same for all numbers of a launch, so a branch on it does not diverge. */
#ifndef QUIRE_KERNELS_MATH_GATE_H
#define QUIRE_KERNELS_MATH_GATE_H

#include "kernels/args/gemm.h"
#include "kernels/math/activation.h"

/* min and max keep a NaN of x. */
K_MATH_FN float k_gate_clamped(float gate, float up, float limit)
{
    float g = k_select_f32(gate > limit, limit, gate), u = k_select_f32(up > limit, limit, up);
    u = k_select_f32(u < -limit, -limit, u);
    return (g / (1.0f + k_exp(-(g * 0x1.b3b646p+0f)))) * (u + 1.0f);
}

K_MATH_FN float k_gated(struct k_gate how, float gate, float up)
{
    if (how.kind == K_GATE_SILU)
        return k_silu(gate) * up;
    return how.kind == K_GATE_GELU_TANH ? k_gelu_tanh(gate) * up : k_gate_clamped(gate, up, how.limit);
}

#endif
