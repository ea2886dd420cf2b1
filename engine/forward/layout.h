/* The offset of each buffer of a step in the activation arena. The memory plan and the forward pass share this
 * arithmetic, so that the planned size equals the allocated size. Pure functions; any thread.
 */
#ifndef QUIRE_ENGINE_LAYOUT_H
#define QUIRE_ENGINE_LAYOUT_H

#include "base/status.h"
#include "engine/model/model.h"
#include "engine/plan.h"
#include "kernels/kv.h"

#include <stdint.h>

#define LAYOUT_ALIGN 64u

static inline uint64_t layout_align(uint64_t n)
{
    return (n + (LAYOUT_ALIGN - 1)) & ~(uint64_t)(LAYOUT_ALIGN - 1);
}

/* Byte offsets from the arena's start. T tokens, H hidden size, Q and KV heads of dimension D, I inner size: the largest
 * of any layer. R logit rows. */
struct step_layout {
    uint64_t input; /* a step's: forward_place() says what, packed per step and moved by one copy */
    uint64_t residual; /* [T, H] */
    uint64_t normed; /* [T, H] */
    uint64_t
        wide; /* [T, (Q + 2 KV) D] for attention, then [T, 2 I] for the MLP where has_gate_up; [T, C, 2 I] for experts */
    uint64_t narrow; /* [T, Q D] for attention, then [T, I] for the MLP; [T, C, I] for experts */
    uint64_t delta; /* [T, H]: what a half layer adds to the residual */
    uint64_t experts, expert_weights; /* mixtures of experts: [T, C] of the router */
    uint64_t shared_weights; /* [T] of the shared expert */
    uint64_t choices; /* [T, C, H]: what a token's experts give */
    uint64_t angles[MODEL_MAX_ROPES]; /* [T, dim / 2, 2] of each of the model's ropes */
    /* With attention sinks: angles of positions up to the window's end behind the sinks, and q rotated by them. */
    uint64_t sink_angles[MODEL_MAX_ROPES], sink_q; /* [T, dim / 2, 2], [T, Q D] */
    uint64_t gathered; /* [R, H]: the residual of the tokens whose logits are wanted */
    uint64_t results; /* [R] of sampling */
    uint64_t inputs; /* several ranks: [T, Q D], [T, I] or [T, C, I] of the whole model, if a matrix could not be
                      * divided */
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

/* The dimensions from which the backend plans its workspace for the layers of a KV group of the plan. */
struct k_plan_dims step_plan_dims(const struct model_desc *desc, const struct engine_plan *plan, uint32_t group);
/* The workspace of a step with layers of n groups: of each piece the most that any of them needs. dims: [n]. */
void step_workspace(const struct k_planner *planner, const struct k_plan_dims *dims, uint32_t n,
                    struct k_plan_bytes *out);
/* That of the plan's largest step. */
void step_plan_workspace(const struct model_desc *desc, const struct engine_plan *plan, struct k_plan_bytes *out);

/* Host memory of the stage buffer; 0 if the stage computes in host memory. The size is equal on all ranks. */
uint64_t layout_stage_buffer_bytes(const struct model_desc *desc, const struct engine_plan *plan);

/* K and V of one layer; the rank's heads. */
struct k_kv_shape layout_kv_shape(const struct model_desc *desc, uint32_t layer, const struct engine_plan *plan);
/* Bytes of a block of K and V of one layer. */
uint64_t layout_kv_block_bytes(const struct model_desc *desc, uint32_t layer, const struct engine_plan *plan);

#endif
