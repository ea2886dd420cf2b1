/* The memory plan of an engine: host arithmetic, also without weights or device (`quire plan`). Pure; any thread. */
#ifndef QUIRE_ENGINE_PLAN_H
#define QUIRE_ENGINE_PLAN_H

#include "base/status.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/model/model.h"
#include "engine/options.h"
#include "kernels/kernels.h"

#include <stdbool.h>
#include <stdint.h>

struct engine_plan {
    char device[16]; /* the backend */
    const struct k_planner *planner; /* of it: static */
    const struct k_device *gpu; /* NULL, or the GPU that was named to plan for */
    uint64_t weight_bytes; /* mapped, in place; on a GPU its copy there */
    uint64_t regrouped_bytes; /* rows that are made anew when they are loaded, in host memory */
    uint64_t panel_bytes; /* of matrices that the cpu backend lays out anew for the form int8 */
    uint64_t param_bytes; /* norms and biases widened to f32, inverse frequencies */
    uint64_t activation_bytes; /* step buffers */
    uint64_t workspace_bytes; /* the backend's */
    uint64_t logits_bytes;
    uint64_t kv_bytes; /* all groups */
    uint64_t kv_block_bytes; /* one block of every group */
    uint64_t swap_bytes; /* the host tier of all groups */
    uint64_t message_bytes; /* of several ranks, in host memory: what they tell each other */
    uint64_t handover_bytes; /* what a stage on a GPU gets and hands on, in host memory */
    uint64_t draft_bytes; /* drafters and what is kept for them, in host memory */
    uint32_t n_kv_groups; /* the model's */
    uint32_t n_draft_groups; /* 1: a draft model's group comes behind them; else 0 */
    struct {
        uint32_t window, n_layers, n_blocks, n_host_blocks;
        uint64_t block_bytes;
        uint64_t most_bytes; /* the same of the stage that has most: so that all ranks have as many blocks */
    } groups[4];
    /* A draft model's; all 0 without one. Its KV cache and host tier are in those above. */
    uint64_t draft_weight_bytes; /* as weight_bytes */
    uint64_t draft_model_bytes; /* its parameters, step buffers, logits and workspace, and the blocks below */
    uint32_t n_draft_blocks; /* in its arena behind the group's: for positions that are only guessed */
    uint32_t block_tokens, max_model_len, max_num_seqs, max_num_batched_tokens, max_logit_rows;
    uint32_t n_ranks, n_stages; /* ranks in all, of which this is the plan of one; all have as many blocks */
    uint32_t n_threads; /* of each */
    uint32_t overlap_depth; /* a windowed sequence holds its reach in blocks once more for each step in flight */
    bool not_invariant; /* k_plan_dims' */
    struct k_format weight_format, kv_format;
    enum k_gemm_form gemm_form; /* asked for, K_FORM_AUTO where the backend chooses; of an open engine: taken */
    uint64_t total_bytes; /* everything above but the weights, both models' */
    /* A GPU's; all 0 for host memory. */
    uint64_t device_memory; /* what it has */
    uint64_t device_budget; /* what the engine may take of it, the weights and the driver's share included */
    uint64_t driver_bytes; /* context, modules, graphs: measured at start, assumed by a plan without a GPU */
    uint64_t graph_room_bytes; /* of those, what is kept for recorded steps before there are any */
};

/* Of total_bytes, what lies in host memory beside a device. */
static inline uint64_t engine_plan_host_bytes(const struct engine_plan *p)
{
    return p->swap_bytes + p->draft_bytes + p->regrouped_bytes + p->handover_bytes + p->message_bytes;
}

/* Of total_bytes, what lies on the device; without one, all of it does. */
static inline uint64_t engine_plan_device_bytes(const struct engine_plan *p)
{
    return p->device_memory ? p->total_bytes - engine_plan_host_bytes(p) : p->total_bytes;
}

/* The device at hand when the engine begins to plan. */
struct engine_device {
    uint64_t memory, available; /* of its own memory; 0 where it computes in the host's */
    const struct k_planner *planner;
};
/* A draft model as far as a plan needs to know it. */
struct engine_draft {
    const struct model_desc *desc; /* with the stored dtype */
    uint64_t weight_bytes;
    uint32_t n_tokens; /* guesses of one sequence at most */
};
/* What the model is opened for (options->task): may make one that generates one that gives vectors, by its directory's
 * files. QUIRE_INVALID for options that then do not go with it. Before engine_plan_make_on(). */
int engine_plan_task(const struct engine_options *options, struct model_desc *desc, struct quire_error *err);
/* Of ranks that others start (parallel/hosts/place.h: options and environment), what follows for each: local_ranks, message_bytes.
 * QUIRE_INVALID: they do not fit together. Before the others. */
int engine_plan_place(struct engine_options *options, struct quire_error *err);
/* The description that one of the options' ranks computes by (rank = stage * tensor_parallel_size + its place there), and the
 * bytes of weights that it has: of one rank desc itself, once weights_stored_dtype() was there. Refuses by name what several
 * ranks cannot do, and divides threads that nobody asked for. */
int engine_plan_share(struct engine_options *o, const struct checkpoint *checkpoint, const struct model_desc *desc,
                      uint32_t rank, struct model_desc *own, uint64_t *weight_bytes, struct quire_error *err);
/* The options by which the other ranks plan, of those that rank 0's plan was made by: what it decided in place of defaults. */
void engine_plan_for_others(const struct engine_plan *plan, struct engine_options *options);
/* Rank 0's plan, on a GPU, once more where another rank has less room beside its weights: all have as many KV blocks. Takes each
 * rank's GPU for one like its own. device: NULL, the options name one. */
int engine_plan_fit_all(const struct engine_options *options, const struct checkpoint *checkpoint,
                        const struct model_desc *desc, const struct engine_draft *draft,
                        const struct engine_device *device, struct engine_plan *plan, struct quire_error *err);
/* draft: NULL, there is none. */
int engine_plan_make_on(const struct engine_options *options, const struct model_desc *desc, uint64_t weight_bytes,
                        const struct engine_draft *draft, const struct engine_device *device, struct engine_plan *out,
                        struct quire_error *err);
/* Of a GPU by its name, or for host memory: needs no device. No draft model. */
int engine_plan_make(const struct engine_options *options, const struct model_desc *desc, uint64_t weight_bytes,
                     struct engine_plan *out, struct quire_error *err);
/* What the draft model's forward pass is made with, once the KV cache has its size: groups by its layers' windows that
 * all have the blocks of its one group and those behind them. */
int engine_plan_of_draft(const struct engine_plan *plan, const struct engine_draft *draft, struct engine_plan *out,
                         struct quire_error *err);
/* Groups of the KV cache. */
static inline uint32_t engine_plan_n_groups(const struct engine_plan *plan)
{
    return plan->n_kv_groups + plan->n_draft_groups;
}

/* The form that the options ask for with the model's weights; K_FORM_AUTO where the backend chooses: never for quantized
 * ones. */
int engine_plan_form(const struct engine_options *options, const struct model_desc *desc, enum k_gemm_form *out,
                     struct quire_error *err);
int engine_plan_invariance(const struct engine_options *options, bool *off, struct quire_error *err);

#endif
