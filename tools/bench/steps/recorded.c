#include "tools/bench/steps/recorded.h"

#include "engine/record/drive.h"

#include <stdbool.h>
#include <stdlib.h>

struct gathered {
    struct cost_sample *items;
    size_t n, capacity;
    struct cost_sample last, older; /* the steps planned last */
    uint64_t planned_us;            /* when `last` was planned */
    bool has_last, has_older;
    bool overlaps; /* the time between two plans is that of the step before them */
    bool failed;
};

static void keep(struct gathered *g, const struct cost_sample *ran, double us)
{
    if (g->n == g->capacity) {
        size_t capacity = g->capacity ? 2 * g->capacity : 1024;
        void *grown = realloc(g->items, capacity * sizeof *g->items);
        if (!grown) {
            g->failed = true;
            return;
        }
        g->items = grown;
        g->capacity = capacity;
    }
    g->items[g->n] = *ran;
    g->items[g->n++].us = us;
}

static struct cost_sample sample_of(const struct sched_plan *plan)
{
    struct cost_sample s = {.shape = sched_plan_shape(plan)};
    uint32_t n_longer = 0, n_verifying = 0;
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        n_longer += plan->rows[i].count - plan->rows[i].n_draft > 1;
        n_verifying += plan->rows[i].n_draft > 0;
    }
    s.kind = n_longer == 0              ? n_verifying > 0 ? COST_VERIFY : COST_DECODE
             : n_longer == plan->n_rows ? COST_PREFILL
                                        : COST_MIXED;
    return s;
}

static void on_plan(void *context, uint64_t now_us, const struct sched_plan *plan, const struct sched *sched)
{
    struct gathered *g = context;
    (void)sched;
    /* No sequence ran before this plan: the engine may have slept since the last step. */
    bool woke = plan->n_admitted == plan->n_rows;
    bool is_known = g->overlaps ? g->has_older : g->has_last;
    if (is_known && !woke && !g->failed && now_us > g->planned_us)
        keep(g, g->overlaps ? &g->older : &g->last, (double)(now_us - g->planned_us));
    g->older = g->last;
    g->has_older = g->has_last && !woke;
    g->has_last = plan->n_rows > 0 && plan->n_moves == 0;
    g->planned_us = now_us;
    g->last = sample_of(plan);
}

int bench_recorded_steps(const char *path, struct cost_sample **samples, size_t *n, struct quire_error *err)
{
    struct gathered g = {.items = NULL};
    struct recording *file = NULL;
    struct recording_run run = {.requests = NULL};
    *samples = NULL;
    *n = 0;
    int status = recording_open(path, &file, err);
    if (status == QUIRE_OK) {
        g.overlaps = recording_header(file)->config->overlap_depth > 0;
        status = recording_drive(file, on_plan, &g, &run, err);
    }
    if (status == QUIRE_OK && g.failed)
        status = quire_fail(err, QUIRE_NO_MEMORY, "%s: out of memory for its steps", path);
    if (status == QUIRE_OK && !run.agrees)
        status = quire_fail(err, QUIRE_INVALID, "%s: its decisions are inconsistent after byte %llu", path,
                            (unsigned long long)run.wrong_offset);
    if (status == QUIRE_OK && g.n == 0)
        status = quire_fail(err, QUIRE_INVALID, "%s: it has no consecutive steps: record a server under load", path);
    recording_run_free(&run);
    recording_close(file);
    if (status != QUIRE_OK) {
        free(g.items);
        return status;
    }
    *samples = g.items;
    *n = g.n;
    return QUIRE_OK;
}
