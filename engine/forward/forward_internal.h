/* Shared by the source files of the forward pass. */
#ifndef QUIRE_ENGINE_FORWARD_INTERNAL_H
#define QUIRE_ENGINE_FORWARD_INTERNAL_H

#include "engine/forward/forward.h"
#include "engine/forward/forward_kv.h"
#include "engine/forward/layout.h"

/* A recorded step of so many tokens, one for each row, all with logits. */
struct forward_graph {
    uint32_t n_tokens;
    struct k_graph *graph;
};
#define FORWARD_MAX_GRAPHS 24u
struct forward_graphs {
    struct forward_graph items[FORWARD_MAX_GRAPHS]; /* [n] by rising size */
    uint32_t n;
    uint64_t bytes; /* device memory that recording used; allocations of other processes can distort it */
};

/* Host memory through which a stage passes data to the next. */
struct forward_stage_buffer {
    uint8_t *bytes; /* [n_bytes] */
    uint64_t n_bytes;
    uint64_t taken; /* ticket of the last copy from there, 0 before the first */
};

/* The first failure ends the pass. */
#define TRY(call) \
    do { \
        int status_ = (call); \
        if (status_ != QUIRE_OK) \
            return status_; \
    } while (0)

struct forward_expert_tokens;

struct forward {
    struct k_backend *backend;
    const struct model_desc *desc;
    const struct weights *weights;
    struct forward_group *group; /* owned; NULL without several ranks */
    /* Several ranks only, in host memory: receives the content of layout->digest at the end of a step, a running number
     * that must be equal on all ranks of a stage. */
    uint64_t *digest;
    struct step_layout *layout; /* owned; constant */
    struct forward_kv *kv; /* owned */
    uint32_t max_decoding; /* tokens of the largest step that is worth recording */
    uint8_t *staging[2]; /* host images of a step's input, layout->input_bytes: steps take turns, so that one
                                * can be filled while the copy of the other waits for the device */
    float *vectors[2]; /* [max_num_seqs, vector_size] of a model that gives them, likewise */
    struct k_sample_result *results[2]; /* [max_logit_rows] where a step's results come, likewise */
    struct forward_logits_watch *watch; /* owned; NULL: nobody looks on */
    bool is_in_place; /* the backend computes in host memory, a step at a time: both are used where they are */
    struct forward_stage_buffer *stage_buffer; /* owned; NULL without stages, or if they compute in host memory */
    uint64_t n_begun;
    struct forward_expert_tokens *experts; /* owned, private to forward_experts.c; NULL: not counted */
    struct forward_graphs *graphs; /* owned; NULL while no step is recorded */
    uint8_t *arena_dev; /* layout->total */
    float *logits_dev;
    uint32_t *sampled_dev;
    uint8_t *workspace_dev; /* a GEMM's first */
    void *attention_workspace_dev, *sample_workspace_dev, *moe_workspace_dev;
};

static inline const struct forward_kv_group *forward_group_of(const struct forward *f, uint32_t layer)
{
    return &f->kv->groups[f->kv->layer_group[layer]];
}

/* ---- forward_graph.c: steps that are recorded once and launched as one ---- */

/* Sizes worth a graph up to max_tokens, rising: at most FORWARD_MAX_GRAPHS. A step is filled up to the next one, which
 * costs little where a step is bound by the weights it reads. */
uint32_t forward_graph_sizes(uint32_t max_tokens, uint32_t *sizes);
/* Records them all; before that runs one step as it is, which loads what the backend loads at first use. */
int forward_graphs_create(struct forward *f, uint32_t max_tokens, struct quire_error *err);
void forward_graphs_destroy(struct forward *f);

/* ---- forward_input.c: where a step's input lies ---- */

/* Lays out a step's arrays in a staging image. */
void forward_place(struct forward *f, uint8_t *staging, uint32_t n_tokens, uint32_t n_rows, uint32_t n_outputs,
                   uint32_t n_entries, struct forward_batch *out);
/* Sets tokens [first, end) to padding, which reads and writes nothing. */
void forward_pad(const struct forward *f, struct forward_batch *batch, uint32_t first, uint32_t end);
/* Where a piece of the staged input lies for the backend. */
void *forward_on_device(const struct forward *f, const void *staged);
/* Queues the copy of a piece there, where it is not used in place. */
int forward_copy_to_device(struct forward *f, const uint8_t *begin, const uint8_t *end, struct quire_error *err);

/* The attention rows of the tokens whose logits are wanted, as the last layer has them: runs of neighbours in one row. */
void forward_fill_output_rows(const struct forward *f, struct forward_batch *batch);

/* ---- forward_blocks.c: the layers' blocks ---- */

/* How attention is divided, in the staged input: once for each KV group that has a layer before the last, and for the last layer. */
int forward_plan_attention(struct forward *f, const struct forward_batch *batch, struct quire_error *err);
/* Whether the last layer goes on with the tokens alone whose results are wanted. */
static inline bool forward_narrows(const struct forward *f)
{
    return !model_reads_whole(f->desc->config);
}
/* Computes everything between the embedding and the logits, or the vectors in their place. A stage computes its
 * layers, from the residual stream of the previous stage to its own. logits: those of the batch's first. */
int forward_compute(struct forward *f, const struct forward_batch *batch, float *logits, struct quire_error *err);

/* ---- forward_experts.c: how much each expert computes ---- */

int forward_alloc_expert_load(struct forward *f, struct quire_error *err);
void forward_free_expert_load(struct forward *f);
/* Of a layer's router, which has run. */
void forward_count_experts(struct forward *f, uint32_t layer, const uint32_t *experts, uint32_t n_choices);

/* ---- forward_share.c: what ranks bring together ---- */

/* Whether other ranks have a part of the same layers. */
static inline bool forward_is_shared(const struct forward *f)
{
    return f->desc->shard.n_ranks > 1;
}
static inline bool forward_is_stage(const struct forward *f)
{
    return f->desc->shard.n_stages > 0;
}
/* y = the sum of all ranks' y, [n, n_cols], plus the bias of its columns, added once. bias: NULL for no bias. */
int forward_reduce(struct forward *f, float *y, uint32_t n, uint32_t n_cols, const float *bias,
                   struct quire_error *err);
/* all: [n, the whole size], of each token what the ranks have side by side; own: [n, this rank's part of it]. */
int forward_gather(struct forward *f, uint32_t n, uint32_t layer, enum model_size size, const float *own, float *all,
                   struct quire_error *err);

/* Where this rank's rows of the head leave theirs: [n, its part of the vocabulary]. */
float *forward_own_logits(struct forward *f);
/* Then the first rank of the stage has all of them in `logits`. */
int forward_gather_logits(struct forward *f, uint32_t n, float *logits, struct quire_error *err);

/* Before the first step: nothing is in the digest. */
int forward_clear_digest(struct forward *f, struct quire_error *err);
/* The residual stream of n tokens at the end of a pass, which every rank of the stage has: into the digest. */
int forward_note(struct forward *f, const float *x, uint32_t n, struct quire_error *err);
/* At the end of a step: the digest comes, and when it has, whether the others have the same one. */
int forward_fetch_digest(struct forward *f, struct quire_error *err);
int forward_agree(struct forward *f, struct quire_error *err);

/* ---- forward_stage.c: a stage's step ---- */

/* Before the first step. No stage receives the padding rows of a recorded step. They keep the previous content,
 * which must be equal on all ranks of a stage, because the digest covers it. */
int forward_clear_stage(struct forward *f, struct quire_error *err);
/* forward_compute() of the whole step, or its graph, in micro-batches if that pays off. It receives from the
 * previous stage and sends to the next. Afterwards rank 0 holds the logits. On a device only the last micro-batch's
 * input remains. */
int forward_compute_staged(struct forward *f, const struct forward_batch *batch, struct quire_error *err);

/* ---- forward.c ---- */

/* forward_follow(), of a stage its own layers alone: nothing comes from others, nor goes to them. */
int forward_warm(struct forward *f, struct forward_batch *batch, struct quire_error *err);

/* A step from the copy of its input to its results: the part that a graph records. Samples the first n_sampled
 * logits. A stage computes its layers only. */
int forward_queue(struct forward *f, const struct forward_batch *batch, const struct k_sample_row *rows,
                  uint32_t n_sampled, struct quire_error *err);

#endif
