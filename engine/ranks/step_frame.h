/* The step input that rank 0 sends to the other ranks: the payload of a plan frame (parallel/plan_frame.h). All
 * numbers have 32 bits, in the byte order of ranks that read each other's floats.
 *
 *     n_tokens, n_rows, n_outputs, n_entries
 *     ids, positions                       [n_tokens] each
 *     slots of each KV group               [n_tokens]
 *     rows: token, n_tokens, position, table   [n_rows]
 *     tables of each KV group              [n_entries]
 *     output_tokens                        [n_outputs]
 *
 * The arrays are those of the table in forward/batch.h that are sent, in its order.
 * Received values are checked against the rank's own limits, because a wrong number would make it write anywhere.
 * Pure functions; any thread.
 */
#ifndef QUIRE_ENGINE_RANKS_STEP_FRAME_H
#define QUIRE_ENGINE_RANKS_STEP_FRAME_H

#include "engine/forward/forward.h"

struct step_limits {
    uint32_t n_groups, block_tokens;
    uint32_t n_blocks[KV_MAX_GROUPS], n_host_blocks[KV_MAX_GROUPS], windows[KV_MAX_GROUPS], sinks[KV_MAX_GROUPS];
    uint32_t n_tokens, n_rows, n_outputs, n_entries; /* at most */
    uint32_t vocab_size, n_positions;
    uint32_t present; /* optional arrays of the model: enum batch_present */
};
struct step_limits step_limits_of(const struct model_desc *desc, const struct engine_plan *plan);

/* The size of the largest frame within the limits, for steps and for moves. */
size_t step_frame_max_bytes(const struct step_limits *limits);

/* `to` has room for the largest; returns the bytes. The batch is as forward_run() takes it, without sources. */
size_t step_frame_write(const struct step_limits *limits, const struct forward_batch *batch, void *to);

/* The four sizes, of which the frame has all that follows: what forward_begin() is to be called with. */
struct step_sizes {
    uint32_t n_tokens, n_rows, n_outputs, n_entries;
};
int step_frame_sizes(const struct step_limits *limits, const void *from, size_t n_bytes, struct step_sizes *out,
                     struct quire_error *err);
/* Fills the arrays of a batch of these sizes. QUIRE_INVALID names what is out of its bounds. */
int step_frame_read(const struct step_limits *limits, const void *from, struct forward_batch *batch,
                    struct quire_error *err);

/* Moves between the KV cache and its host tier: to_host, group, device block, host block of each. As many as fit one frame. */
uint32_t step_frame_max_moves(const struct step_limits *limits);
size_t moves_frame_write(const struct kv_move *moves, uint32_t n_moves, void *to);
/* moves: [n_bytes / 16], of which *n_moves are filled. */
int moves_frame_read(const struct step_limits *limits, const void *from, size_t n_bytes, struct kv_move *moves,
                     uint32_t *n_moves, struct quire_error *err);

#endif
