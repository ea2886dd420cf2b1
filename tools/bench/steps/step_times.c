#include "tools/bench/steps/step_times.h"

#include "scheduler/scheduler.h"
#include "tools/bench/lib/metrics.h"

#include <stdlib.h>
#include <string.h>

/* One timed step of one run of a scene. */
struct timed {
    uint32_t scene, step, run;
    struct cost_sample sample;
};

struct bench_step_times {
    bool overlaps; /* a step is planned while one runs */
    bool recording;
    uint32_t scene, run; /* run: a running number */
    uint32_t n_steps; /* of the run so far */
    struct step {
        bool goes_on, disturbed;
        uint64_t began_us;
        uint32_t step;
        uint32_t n_decoding, n_verifying; /* rows; rows with drafts count in both */
        struct sched_shape shape;
    } steps[2], *last; /* by the plan's number: those in flight; the newest, or NULL */
    uint64_t done_us; /* when the last step ended */
    struct timed *timed;
    size_t n_timed, capacity;
};

struct bench_step_times *bench_step_times_new(void)
{
    return calloc(1, sizeof(struct bench_step_times));
}

void bench_step_times_free(struct bench_step_times *t)
{
    if (!t)
        return;
    free(t->timed);
    free(t);
}

void bench_step_times_overlap(struct bench_step_times *t, bool overlaps)
{
    t->overlaps = overlaps;
}

void bench_step_times_forget(struct bench_step_times *t)
{
    memset(t->steps, 0, sizeof t->steps);
    t->last = NULL;
    t->n_steps = 0;
    t->recording = false;
}

void bench_step_times_record(struct bench_step_times *t, uint32_t scene)
{
    t->scene = scene;
    t->run++;
    t->recording = true;
}

void bench_step_times_stop(struct bench_step_times *t)
{
    t->recording = false;
}

/* ---- the engine's reports ---- */

static enum cost_kind kind_of(const struct step *s)
{
    if (s->n_decoding == s->shape.n_rows)
        return s->n_verifying > 0 ? COST_VERIFY : COST_DECODE;
    return s->n_decoding > 0 ? COST_MIXED : COST_PREFILL;
}

static int record(struct bench_step_times *t, const struct step *s, uint64_t began_us, uint64_t end_us,
                  struct quire_error *err)
{
    bool is_first_read = s->step == 1 && kind_of(s) == COST_DECODE;
    if (!s->goes_on || s->disturbed || is_first_read || end_us <= began_us)
        return QUIRE_OK;
    if (t->n_timed == t->capacity) {
        size_t capacity = t->capacity ? 2 * t->capacity : 1024;
        struct timed *grown = realloc(t->timed, capacity * sizeof *grown);
        if (!grown)
            return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
        t->timed = grown;
        t->capacity = capacity;
    }
    t->timed[t->n_timed++] = (struct timed){
        .scene = t->scene,
        .step = s->step,
        .run = t->run,
        .sample = {.kind = kind_of(s), .shape = s->shape, .us = (double)(end_us - began_us)}};
    return QUIRE_OK;
}

int bench_step_times_planned(struct bench_step_times *t, uint64_t now_us, const struct sched_plan *plan,
                             struct quire_error *err)
{
    int status = QUIRE_OK;
    if (!t->recording)
        return QUIRE_OK;
    if (t->last && !t->overlaps)
        status = record(t, t->last, t->last->began_us, now_us, err);
    t->last = NULL;
    if (plan->n_rows == 0)
        return status;
    struct step *s = t->last = &t->steps[plan->step % 2];
    *s = (struct step){.step = ++t->n_steps, .began_us = now_us, .shape = sched_plan_shape(plan)};
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        s->n_decoding += plan->rows[i].count - plan->rows[i].n_draft == 1;
        s->n_verifying += plan->rows[i].n_draft > 0;
    }
    return status;
}

int bench_step_times_committed(struct bench_step_times *t, const struct engine_watch_commit *commit,
                               struct quire_error *err)
{
    int status = QUIRE_OK;
    struct step *s = &t->steps[commit->plan->step % 2];
    s->goes_on = sched_stats(commit->sched).n_running > 0;
    if (t->recording && t->overlaps && s->step > 0)
        status = record(t, s, commit->launched_us > t->done_us ? commit->launched_us : t->done_us, commit->done_us,
                        err);
    t->done_us = commit->done_us;
    return status;
}

void bench_step_times_disturb(struct bench_step_times *t)
{
    if (t->last)
        t->last->disturbed = true;
}

/* ---- medians ---- */

static int by_step(const void *a, const void *b)
{
    const struct timed *x = a, *y = b;
    if (x->scene != y->scene)
        return x->scene < y->scene ? -1 : 1;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return (x->run > y->run) - (x->run < y->run);
}

static bool same_shape(const struct sched_shape *a, const struct sched_shape *b)
{
    return a->n_rows == b->n_rows && a->n_tokens == b->n_tokens && a->n_logits == b->n_logits &&
           a->n_context == b->n_context && a->n_pairs == b->n_pairs && a->n_block_copies == b->n_block_copies;
}

/* Of every stride-th of n steps; uses room as scratch. */
static double median_of(const struct timed *steps, size_t n, size_t first, size_t stride, double *room)
{
    size_t count = 0;
    for (size_t i = first; i < n; i += stride)
        room[count++] = steps[i].sample.us;
    bench_sort(room, count);
    return bench_percentile(room, count, 50);
}

int bench_step_times_medians(struct bench_step_times *t, struct bench_step **out, size_t *n, struct quire_error *err)
{
    double *room = malloc((t->n_timed + 1) * sizeof *room);
    struct bench_step *steps = malloc((t->n_timed + 1) * sizeof *steps);
    *n = 0;
    *out = steps;
    if (!room || !steps) {
        free(room);
        free(steps);
        *out = NULL;
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    qsort(t->timed, t->n_timed, sizeof *t->timed, by_step);
    for (size_t from = 0, to; from < t->n_timed; from = to) {
        const struct timed *first = &t->timed[from];
        bool same = first->sample.shape.n_block_copies == 0;
        for (to = from; to < t->n_timed && t->timed[to].scene == first->scene && t->timed[to].step == first->step; to++)
            same = same && same_shape(&t->timed[to].sample.shape, &first->sample.shape);
        if (!same)
            continue;
        struct bench_step *step = &steps[(*n)++];
        *step = (struct bench_step){.scene = first->scene, .n_runs = (uint32_t)(to - from), .median = first->sample};
        step->median.us = median_of(first, to - from, 0, 1, room);
        for (size_t half = 0; half < 2; half++)
            step->halves_us[half] = to - from > 1 ? median_of(first, to - from, half, 2, room) : step->median.us;
    }
    free(room);
    return QUIRE_OK;
}
