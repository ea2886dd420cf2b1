/* The memory plan of an engine: host arithmetic, also without weights or device (`quire plan`). Pure; any thread. */
#ifndef QUIRE_ENGINE_PLAN_H
#define QUIRE_ENGINE_PLAN_H

#include "base/status.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/model/model.h"
#include "engine/options.h"
#include "kernels/devices.h"
#include "kernels/format.h"
#include "kernels/gemm_form.h"
#include "kernels/planner.h"

#include <stdbool.h>
#include <stdint.h>

/* What a rank's memory is for: one row each. The second column says whether total bytes count it, and whose memory it
 * takes where a device computes. Without a device all of it lies in host memory. */
#define PLAN_MEMORY(X) \
    X(WEIGHTS, APART)         /* mapped, in place; on a GPU its copy there */ \
    X(DRAFT_WEIGHTS, APART)   /* a draft model's, as above */ \
    X(REPACKED_ROWS, ON_HOST) /* rows that are repacked when they are loaded, and copies of misaligned tensors */ \
    X(REPACKED, ON_DEVICE)    /* matrices that the cpu backend repacks for the form int8 */ \
    X(PARAMS, ON_DEVICE)      /* norms and biases widened to f32, inverse frequencies */ \
    X(ACTIVATIONS, ON_DEVICE) /* step buffers */ \
    X(WORKSPACE, ON_DEVICE)   /* the backend's */ \
    X(LOGITS, ON_DEVICE) \
    X(KV, ON_DEVICE)          /* all groups */ \
    X(SWAP, ON_HOST)          /* the host tier of all groups */ \
    X(MESSAGES, ON_HOST)      /* several ranks: message buffers */ \
    X(STAGE_BUFFER, ON_HOST)  /* of a stage on a GPU */ \
    X(DRAFTS, ON_HOST)        /* drafters and their state */ \
    X(DRAFT_MODEL, ON_DEVICE) /* its parameters, step buffers, logits and workspace, and its n_draft_blocks */ \
    X(MASKS, ON_HOST)         /* of grammars */

#define PLAN_MEMORY_NAME(name, place) PLAN_##name,
enum plan_memory { PLAN_MEMORY(PLAN_MEMORY_NAME) PLAN_N_MEMORY };

struct engine_plan {
    const struct k_planner *planner; /* of the backend: static */
    const struct k_device *gpu; /* NULL, or the GPU that was named to plan for */
    uint64_t bytes[PLAN_N_MEMORY];
    uint64_t kv_block_bytes; /* one block of every group */
    uint32_t n_kv_groups; /* the model's */
    struct {
        uint32_t layer; /* the first of the model with this window, sinks and heads; not set of a draft model's */
        uint32_t window, n_sinks, n_layers, n_blocks, n_host_blocks; /* n_sinks: positions */
        uint64_t block_bytes;
        uint64_t most_bytes; /* the same of the stage that has most: so that all ranks have as many blocks */
    } groups[4];
    uint32_t n_draft_blocks; /* in a draft model's arena behind its group's: for positions that are only guessed. 0: no
                              * draft model */
    uint32_t block_tokens, max_model_len, max_num_seqs, max_num_batched_tokens, max_logit_rows;
    uint32_t n_ranks, n_stages; /* ranks in all, of which this is the plan of one; all have as many blocks */
    uint32_t n_threads; /* of each */
    bool not_invariant; /* k_plan_dims' */
    struct k_format weight_format, kv_format;
    enum k_gemm_form gemm_form; /* asked for, K_FORM_AUTO where the backend chooses; of an open engine: taken */
    /* A GPU's; all 0 for host memory. */
    uint64_t device_memory; /* what it has */
    uint64_t device_budget; /* device memory that the engine may use, including the weights and the driver's share */
    uint64_t driver_bytes; /* context, modules, graphs: measured at start, assumed by a plan without a GPU */
};

/* The name of its backend; "" before the plan is made. Static. */
static inline const char *engine_plan_device(const struct engine_plan *p)
{
    return p->planner ? p->planner->name : "";
}

/* Everything but the weights, both models'; UINT64_MAX where it does not fit. */
uint64_t engine_plan_total_bytes(const struct engine_plan *plan);
/* The part of the total that lies in host memory when a device computes. */
uint64_t engine_plan_host_bytes(const struct engine_plan *plan);
/* The part of the total that lies on the device. Without a device this is all of it. */
uint64_t engine_plan_device_bytes(const struct engine_plan *plan);

/* The device at hand when the engine begins to plan. */
struct engine_device {
    uint64_t memory, available; /* the device's own memory; 0 if the backend computes in host memory */
    const struct k_planner *planner;
};
/* A draft model as far as a plan needs to know it. */
struct engine_draft {
    const struct model_desc *desc; /* with the stored dtype */
    uint64_t weight_bytes;
    uint32_t n_tokens; /* guesses of one sequence at most */
};
/* Applies options->task. It may turn a generating model into one that returns vectors, according to the files in its
 * directory. Returns QUIRE_INVALID for options that do not fit the task. Call it before engine_plan_make_on(). */
int engine_plan_task(const struct engine_options *options, struct model_config *config, struct quire_error *err);
/* For ranks started from outside (parallel/hosts/rank_position.h: options and environment): sets local_ranks and
 * message_bytes. Returns QUIRE_INVALID if the options contradict each other. Call it before the others. */
int engine_plan_place(struct engine_options *options, struct quire_error *err);
/* Makes the description of one of the options' ranks (rank = stage * tensor_parallel_size + its position in the
 * stage) and counts the bytes of its weights, without tensors that are not used. With one rank the result is desc
 * itself. weights_stored_dtype() must come first. Rejects features that several ranks do not support and names them.
 * Divides the threads if no option sets them. */
int engine_plan_share(struct engine_options *o, const struct checkpoint *checkpoint, const struct model_desc *desc,
                      uint32_t rank, struct model_desc *own, uint64_t *weight_bytes, struct quire_error *err);
/* The planner of the device that the options name; NULL of a name that engine_plan_make_on() rejects. */
const struct k_planner *engine_plan_planner(const struct engine_options *options);
/* Writes rank 0's decisions into the options in place of defaults, so that the other ranks make the same plan. */
void engine_plan_for_others(const struct engine_plan *plan, struct engine_options *options);
/* Rank 0's plan, on a GPU, once more where another rank has less room beside its weights: all have as many KV blocks. Takes each
 * rank's GPU for one like its own. device: NULL, the options name one. */
int engine_plan_fit_all(const struct engine_options *options, const struct checkpoint *checkpoint,
                        const struct model_desc *desc, const struct engine_draft *draft,
                        const struct engine_device *device, struct engine_plan *plan, struct quire_error *err);
/* draft: NULL if no draft model is used. */
int engine_plan_make_on(const struct engine_options *options, const struct model_desc *desc, uint64_t weight_bytes,
                        const struct engine_draft *draft, const struct engine_device *device, struct engine_plan *out,
                        struct quire_error *err);
/* The plan for a GPU given by name, or for host memory; needs no device. Without a draft model. */
int engine_plan_make(const struct engine_options *options, const struct model_desc *desc, uint64_t weight_bytes,
                     struct engine_plan *out, struct quire_error *err);
/* The plan of the draft model's forward pass, made once the size of the KV cache is known. Its groups follow the
 * windows of its layers. All of them share the blocks of its one group, and the blocks after those. */
int engine_plan_of_draft(const struct engine_plan *plan, const struct engine_draft *draft, struct engine_plan *out,
                         struct quire_error *err);
/* Blocks of a group that one sequence of n_tokens can hold at once: of a window no more than it and the steps in flight
 * reach. */
uint32_t engine_plan_request_blocks(const struct engine_plan *plan, uint32_t group, uint32_t n_tokens);
/* Groups of the KV cache: the model's, then a draft model's one. */
static inline uint32_t engine_plan_n_groups(const struct engine_plan *plan)
{
    return plan->n_kv_groups + (plan->n_draft_blocks > 0);
}
/* Steps in flight besides the current one. A windowed sequence holds its reach in blocks once more for each. 0 of several
 * ranks: they receive tokens, not the addresses where they will appear. */
static inline uint32_t engine_plan_overlap_depth(const struct engine_plan *plan)
{
    return plan->n_ranks > 1 ? 0 : plan->planner->overlap_depth;
}
/* The part of driver_bytes that is reserved for recorded steps before they exist. */
uint64_t engine_plan_graph_reserve_bytes(const struct engine_plan *plan);

/* The form that the options ask for with the model's weights; K_FORM_AUTO where the backend chooses: never for quantized
 * ones. */
int engine_plan_form(const struct engine_options *options, const struct model_desc *desc, enum k_gemm_form *out,
                     struct quire_error *err);
int engine_plan_invariance(const struct engine_options *options, bool *off, struct quire_error *err);

#endif
