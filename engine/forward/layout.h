/* The offset of each buffer of a step in the activation arena. The memory plan and the forward pass share this
 * arithmetic, so that the planned size equals the allocated size. Pure functions; any thread.
 */
#ifndef QUIRE_ENGINE_LAYOUT_H
#define QUIRE_ENGINE_LAYOUT_H

#include "base/status.h"
#include "engine/model/model.h"
#include "engine/plan.h"

#include <stdint.h>

#define LAYOUT_ALIGN 64u

static inline uint64_t layout_align(uint64_t n)
{
    return (n + (LAYOUT_ALIGN - 1)) & ~(uint64_t)(LAYOUT_ALIGN - 1);
}

/* Byte offsets from the arena's start. T tokens, H hidden size, D head_dim, R logit rows. */
struct step_layout {
    uint64_t input;    /* a step's: forward_place() says what, packed per step and moved by one copy */
    uint64_t residual; /* [T, H] */
    uint64_t normed;   /* [T, H] */
    uint64_t wide;     /* [T, (Q + 2 KV) D] for attention, then [T, 2 I] for the MLP where has_gate_up */
    uint64_t narrow;   /* [T, Q D] for attention, then [T, I] for the MLP */
    uint64_t delta;    /* [T, H]: what a half layer adds to the residual */
    uint64_t angles;   /* [T, D / 2, 2] */
    uint64_t gathered; /* [R, H]: the residual of the tokens whose logits are wanted */
    uint64_t results;  /* [R] of sampling */
    uint64_t inputs;   /* several ranks: [T, Q D] or [T, I] of the whole model, if a matrix could not be divided */
    uint64_t
        shared; /* several ranks: the parts of all ranks, [T, columns] each; or this rank's logits, and space for one
                 * row of all ranks' logits */
    uint64_t digest; /* several ranks: see struct forward */
    uint64_t input_bytes;
    uint64_t total;
    bool has_gate_up; /* the planner's needs_gate_up: else gate and up lie nowhere */
};

/* Reads the plan's limits and KV groups. QUIRE_INVALID when a size overflows. */
int step_layout_make(const struct model_desc *desc, const struct engine_plan *plan, struct step_layout *out,
                     struct quire_error *err);

/* The dimensions from which the backend plans its workspace. */
struct k_plan_dims step_plan_dims(const struct model_desc *desc, const struct engine_plan *plan);

/* Host memory of the stage buffer; 0 if the stage computes in host memory. The size is equal on all ranks. */
uint64_t layout_stage_buffer_bytes(const struct model_desc *desc, const struct engine_plan *plan);

/* Bytes of K, or of V, of one layer. */
uint64_t layout_kv_bytes(const struct model_desc *desc, struct k_format format, uint32_t block_tokens,
                         uint32_t n_blocks);

#endif
