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
    const struct engine_plan *plan; /* with several ranks, rank 0's */
    const struct engine_plan_rank *ranks; /* [plan->n_ranks] if there are several */
};

/* Each prints to standard output. second: NULL for a single model. */
void plan_print_json(const struct planned *first, const struct planned *second);
void plan_print_table(const struct planned *first, const struct planned *second);

#endif
