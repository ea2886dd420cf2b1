/* A model and its memory, as `quire plan` prints them: what the two printers share. Main thread. */
#ifndef QUIRE_APP_PLAN_PLANNED_H
#define QUIRE_APP_PLAN_PLANNED_H

#include "app/models/cache.h"
#include "engine/plan_model.h"

struct planned {
    const char *name; /* as typed */
    struct hub_model model;
    char architecture[64];
    char multimodal[64];
    struct engine_token_cost cost;
    bool has_vectors; /* the model computes vectors only */
    uint32_t vocab_size;
    const struct engine_plan *plan; /* with several ranks, rank 0's */
    const struct engine_plan_rank *ranks; /* [plan->n_ranks] if there are several */
};

/* Memory of a process that no plan counts, as measured (docs/benchmarks/plan-memory.md): code and libraries; and 225 to
 * 325 bytes for each token of a vocabulary, for the tokenizer. */
#define PLANNED_PROGRAM_BYTES ((uint64_t)26 << 20)
#define PLANNED_TOKEN_BYTES 300u

static inline uint64_t planned_tokenizer_bytes(const struct planned *p)
{
    return (uint64_t)p->vocab_size * PLANNED_TOKEN_BYTES;
}

/* Resident memory of `quire serve` once all KV blocks and buffers were used, without the limits of a front end. 0 where
 * not all memory is this process's: on a GPU, and of several ranks. second: NULL for a single model. */
uint64_t planned_resident_bytes(const struct planned *first, const struct planned *second);

/* Each prints to standard output. second: NULL for a single model. JSON: returns the exit status. */
int plan_print_json(const struct planned *first, const struct planned *second);
void plan_print_table(const struct planned *first, const struct planned *second);

#endif
