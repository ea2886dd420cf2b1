/* The arrays of one step, one row each. Their storage in the staging image, the memory plan's room for them, the frame
 * that carries them to the other ranks, its checks, padding and micro-batches follow the rows. A new array, such as an
 * adapter's index per token, is one row here and the code that fills and reads it.
 *
 * Pure functions; any thread.
 */
#ifndef QUIRE_ENGINE_FORWARD_BATCH_H
#define QUIRE_ENGINE_FORWARD_BATCH_H

#include "kernels/args/attention.h"
#include "kernels/args/kv_copy.h"
#include "kernels/args/rows.h"
#include "kernels/args/sample.h"
#include "memory/kv_cache.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model_desc;

/* In the order of the staging image, where ENTRIES come last, and of a step frame.
 *
 * length   TOKENS, ROWS, OUTPUTS (of tokens: rows of logits; or vectors, or scores), ENTRIES (of block tables)
 * groups   ONE array, one for EACH KV group, or one for the OTHERS after the first
 * present  ALWAYS, or for an ENCODER, for models with POOLED vectors, for those with a DENSE layer after pooling
 * filled   by the CALLER of forward_begin(); PRESET to the padding by it, so that callers need not; by the PASS itself
 * sent     SENT to the other ranks, or OWN
 * padding  the value of tokens that fill up a recorded step; TOKENS of uint32_t only
 * values   the check of a received array: BELOW(n), or an enum batch_values
 * called   one value, in errors */
#define BATCH_ARRAYS(X) \
    X(ids, uint32_t, TOKENS, ONE, ALWAYS, CALLER, SENT, 0, IN(VOCABULARY), "token") \
    X(positions, uint32_t, TOKENS, ONE, ALWAYS, CALLER, SENT, 0, IN(POSITIONS), "position") \
    /* which text of a pair */ \
    X(segments, uint32_t, TOKENS, ONE, ENCODER, CALLER, OWN, 0, BELOW(2), "segment") \
    /* block id * block_tokens + offset */ \
    X(slots, uint32_t, TOKENS, EACH, ALWAYS, CALLER, SENT, K_NO_SLOT, IN(SLOTS), "slot") \
    X(rows, struct k_attn_row, ROWS, ONE, ALWAYS, CALLER, SENT, 0, IN(ROWS), "row") \
    /* the same for each group, whose tables are consecutive; the first is `rows` */ \
    X(group_rows, struct k_attn_row, ROWS, OTHERS, ALWAYS, PASS, OWN, 0, IN(ANY), "row") \
    /* block ids; all groups use the same offsets */ \
    X(tables, uint32_t, ENTRIES, EACH, ALWAYS, CALLER, SENT, 0, IN(BLOCKS), "block") \
    /* tokens whose outputs are needed, ascending, each once */ \
    X(output_tokens, uint32_t, OUTPUTS, ONE, ALWAYS, CALLER, SENT, 0, IN(ASCENDING_TOKENS), "the token of output") \
    /* the tokens of each vector, ascending */ \
    X(pool_rows, struct k_pool_row, OUTPUTS, ONE, POOLED, CALLER, OWN, 0, IN(ANY), "pool row") \
    /* each pooled vector alone */ \
    X(vector_rows, struct k_pool_row, OUTPUTS, ONE, DENSE, PASS, OWN, 0, IN(ANY), "vector row") \
    /* rows of the tokens with outputs; n_output_rows are used */ \
    X(output_rows, struct k_attn_row, OUTPUTS, ONE, ALWAYS, PASS, OWN, 0, IN(ANY), "output row") \
    /* tokens that the step launched last still samples: ids[token] is that step's results[row]; n_sources are used */ \
    X(sources, struct k_token_source, ROWS, ONE, ALWAYS, CALLER, OWN, 0, IN(ANY), "source")

enum batch_length { BATCH_TOKENS, BATCH_ROWS, BATCH_OUTPUTS, BATCH_ENTRIES, BATCH_N_LENGTHS };
enum batch_groups { BATCH_ONE, BATCH_EACH, BATCH_OTHERS };
enum batch_present { BATCH_ALWAYS = 0, BATCH_ENCODER = 1, BATCH_POOLED = 2, BATCH_DENSE = 4 };
enum batch_filled { BATCH_CALLER, BATCH_PRESET, BATCH_PASS };
enum batch_sent { BATCH_OWN, BATCH_SENT };
enum batch_values {
    BATCH_IN_ANY,
    BATCH_IN_BELOW, /* the row's own limit */
    BATCH_IN_VOCABULARY,
    BATCH_IN_POSITIONS,
    BATCH_IN_SLOTS,
    BATCH_IN_ROWS, /* consecutive, with all tokens and table entries */
    BATCH_IN_BLOCKS,
    BATCH_IN_ASCENDING_TOKENS,
};

struct forward_graph;

#define BATCH_MEMBER_ONE(name, type) type *name;
#define BATCH_MEMBER_EACH(name, type) type *name[KV_MAX_GROUPS];
#define BATCH_MEMBER_OTHERS(name, type) type *name[KV_MAX_GROUPS];
#define BATCH_MEMBER(name, type, length, groups, ...) BATCH_MEMBER_##groups(name, type)

/* Host arrays of one step, in its staging image. */
struct forward_batch {
    uint32_t n_tokens, n_rows, n_outputs, n_entries; /* n_outputs: rows of logits, vectors or scores */
    BATCH_ARRAYS(BATCH_MEMBER)
    uint32_t n_sources; /* 0 from forward_begin() */
    /* Set by forward_run(). */
    uint32_t n_output_rows;
    uint8_t *attention_plans; /* one for each group, and one for output_rows */
    uint64_t attention_plan_stride;
    uint8_t *sample_plan, *sample_parts;
    const struct forward_graph *graph; /* set by forward.c: how the step runs */
    /* NULL, or called once before the sampler's rows are read: in host memory after the layers are computed, for a device
     * before the step is queued. It may set mask and forced of the rows. */
    void (*rows_ready)(void *context);
    void *rows_context;
};

/* A row of the table. */
struct batch_array {
    const char *called;
    size_t at; /* of its pointers in struct forward_batch */
    size_t element_bytes;
    enum batch_length length;
    enum batch_groups groups;
    enum batch_present present;
    enum batch_filled filled;
    bool is_sent;
    uint32_t padding;
    struct {
        enum batch_values in;
        uint32_t below; /* of BATCH_IN_BELOW */
    } values;
};
#define BATCH_COUNT(...) +1
#define BATCH_N_ARRAYS (0 BATCH_ARRAYS(BATCH_COUNT))
extern const struct batch_array batch_arrays[BATCH_N_ARRAYS];

/* The optional arrays that a model's steps have: of enum batch_present. */
uint32_t batch_present(const struct model_desc *desc);
/* Whether the model with these optional arrays has this one. */
static inline bool batch_has(const struct batch_array *a, uint32_t present)
{
    return !(a->present & ~present);
}
/* The groups of an array: [*first, the result). */
uint32_t batch_groups(const struct batch_array *a, uint32_t n_groups, uint32_t *first);

uint32_t batch_length(const struct forward_batch *b, enum batch_length length);
void *batch_get(const struct forward_batch *b, const struct batch_array *a, uint32_t group);
void batch_set(struct forward_batch *b, const struct batch_array *a, uint32_t group, void *array);

/* Sets tokens [first, end) of an array of TOKENS to its padding, in all its groups. */
void batch_pad(struct forward_batch *b, const struct batch_array *a, uint32_t n_groups, uint32_t first, uint32_t end);

#endif
