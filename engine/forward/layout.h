/* Where each buffer of a step lies in the activation arena: plain arithmetic that the memory plan
 * and the forward pass share, so that what is planned is what is allocated. Pure; any thread.
 */
#ifndef QUIRE_ENGINE_LAYOUT_H
#define QUIRE_ENGINE_LAYOUT_H

#include "base/status.h"
#include "engine/engine.h"
#include "engine/plan.h"
#include "engine/model/model.h"

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
    uint64_t inputs;   /* of a rank: [T, Q D] or [T, I] of the whole model, where a matrix could not be cut */
    uint64_t
        shared; /* of a rank: what all ranks bring, [T, columns] each; or its own logits, and room for a row of all ranks' */
    uint64_t digest; /* of a rank: struct forward's */
    uint64_t input_bytes;
    uint64_t total;
    bool has_gate_up; /* the planner's needs_gate_up: else gate and up lie nowhere */
};

/* Reads the plan's limits and KV groups. QUIRE_INVALID when a size overflows. */
int step_layout_make(const struct model_desc *desc, const struct engine_plan *plan, struct step_layout *out,
                     struct quire_error *err);

/* What the backend's workspace is planned from. */
struct k_plan_dims step_plan_dims(const struct model_desc *desc, const struct engine_plan *plan);

/* What a stage keeps in host memory for what it gets and hands on: 0 where it computes there. All ranks' have the same size. */
uint64_t layout_handover_bytes(const struct model_desc *desc, const struct engine_plan *plan);

/* Bytes of K, or of V, of one layer. */
uint64_t layout_kv_bytes(const struct model_desc *desc, struct k_format format, uint32_t block_tokens,
                         uint32_t n_blocks);

#endif
