/* A cost model as a file, written by `quire bench steps` and read by --cost-model.
 *
 *   {"about": "demo, cpu, 2 threads: 2.1 % off",
 *    "points": [[1, 6368], [159, 6368], [160, 6400], [8192, 327680]],
 *    "row_us": 0, "logit_us": 0, "context_us": 0.0489, "pair_us": 0.00131,
 *    "block_copy_us": 42,
 *    "micro_batch_tokens": 64,
 *    "model": {"n_layers": 32, "hidden_size": 4096, "vocab_size": 128256}}
 *
 * points: [tokens of the step, microseconds], ascending. The members are those of scheduler/cost.h; missing ones are 0,
 * except for points, which is required; model, whose members are all known or none; and micro_batch_tokens, k_planner's
 * of the device that it was fitted on. `about` is for people. Any other member is an error, so that a misspelt price
 * does not become 0.
 *
 * No global state; any thread.
 */
#ifndef QUIRE_APP_FLAGS_COST_FILE_H
#define QUIRE_APP_FLAGS_COST_FILE_H

#include "scheduler/cost.h"

#include <jansson.h>
#include <stddef.h>

/* The model's sizes, for the communication between ranks that share it (cost_links.h), the device's, for its stages, and
 * what both are. */
struct cost_shape {
    uint32_t n_layers, hidden_size, vocab_size; /* all 0: unknown */
    uint32_t micro_batch_tokens; /* 0: not known */
    char about[200]; /* for people, printable, cut to this size; "": the file does not say */
};

/* The result has passed sched_cost_check(). shape: may be NULL. QUIRE_INVALID and QUIRE_NOT_FOUND name the file and the
 * member. */
int cost_file_read(const char *path, struct sched_cost *out, struct cost_shape *shape, struct quire_error *err);
/* The same for text[n_bytes]; `where` begins the error. */
int cost_file_parse(const char *text, size_t n_bytes, const char *where, struct sched_cost *out,
                    struct cost_shape *shape, struct quire_error *err);
/* about: for people, UTF-8, or NULL; shape: NULL if unknown. The caller owns the result; NULL: out of memory. */
json_t *cost_file_json(const struct sched_cost *cost, const char *about, const struct cost_shape *shape);
int cost_file_write(const char *path, const struct sched_cost *cost, const char *about, const struct cost_shape *shape,
                    struct quire_error *err);

#endif
