/* The part of a model that one of several ranks holds (numerics.md §5, collectives.md): a stage's layers, and of
 * each layer its attention heads and the KV heads that they read, its part of an MLP's inner columns in whole units,
 * and its rows of the head. Every rank of a stage holds the norms and embeddings. A rank owns whole segments of the
 * sums that ranks share, so that the sums have the same bits for any number of ranks. Stages pass the unchanged
 * residual stream on. Pure functions; any thread.
 */
#ifndef QUIRE_ENGINE_SHARE_H
#define QUIRE_ENGINE_SHARE_H

#include "engine/model/sizes.h"
#include "engine/model/tensor_table.h"
#include "kernels/weight.h"

/* desc->shard.whole_experts says what ranks divide. QUIRE_UNSUPPORTED: the message names the numbers of ranks that are possible. QUIRE_INVALID: no number that any
 * model allows. */
int model_share_check(const struct model_desc *desc, uint32_t n_ranks, struct quire_error *err);

/* The description that a rank computes by. sizes.h has the sizes that follow from it. */
struct model_desc model_share_describe(const struct model_desc *whole, uint32_t rank, uint32_t n_ranks);

/* The layers of a stage. They cost the same; where they do not divide, stages that have neither the embedding nor the head have
 * one more, and if that is not all, the last, or the first. n_stages: 1 .. n_layers. */
struct model_range model_stage_layers(uint32_t n_layers, uint32_t index, uint32_t n_stages, bool last_has_more);

/* The number of micro-batches in which a step passes through the stages. Token i * n_tokens / n begins micro-batch
 * i. A micro-batch has at least `least` tokens, the device's k_planner.micro_batch_tokens. With fewer tokens a stage
 * would read its weights again for each micro-batch and gain nothing. The number is also limited to the useful
 * range: n micro-batches on s stages take n + s - 1 turns for the work of n. */
static inline uint32_t model_stage_micros(uint32_t n_stages, uint32_t least, uint32_t n_tokens)
{
    const uint32_t most = 4 * n_stages, n = n_tokens / least;
    return n < 1 ? 1 : n < most ? n : most;
}
/* The most tokens of a step that is one micro-batch. */
static inline uint32_t model_stage_most_whole(uint32_t least)
{
    return 2 * least - 1;
}
/* The most tokens of a micro-batch, of steps of up to max_tokens. */
static inline uint32_t model_stage_micro_most(uint32_t n_stages, uint32_t least, uint32_t max_tokens)
{
    const uint32_t n = (max_tokens - 1) / model_stage_micros(n_stages, least, max_tokens) + 1;
    const uint32_t most_whole = model_stage_most_whole(least),
                   whole = max_tokens < most_whole ? max_tokens : most_whole;
    return n > whole ? n : whole;
}

/* Makes it one stage's of n_stages. */
void model_stage_describe(struct model_desc *desc, uint32_t index, uint32_t n_stages, bool last_has_more);

/* How a matrix is cut for a rank. */
enum model_cut {
    CUT_NONE, /* the rank has all of it */
    CUT_ROWS, /* its rows: y is its part of the outputs */
    CUT_COLS, /* its columns: y is a partial sum */
    CUT_GATHERED /* all of it, though its input lies with the ranks by columns: what no boundary of formats allows to cut */
};

/* Cuts the view of a whole matrix down to the part of desc's rank. Returns QUIRE_UNSUPPORTED if rows that
 * share scales belong to two ranks. The view's data may be NULL. A cut by columns records the whole matrix's columns
 * in the view. name: for the message. */
int model_share_cut(const struct model_desc *desc, uint32_t layer, const struct model_tensor *tensor, const char *name,
                    struct k_weight_view *view, enum model_cut *cut, struct quire_error *err);

/* The same of the head's matrix, by rows. */
int model_share_cut_head(const struct model_desc *desc, const char *name, struct k_weight_view *view,
                         struct quire_error *err);

#endif
