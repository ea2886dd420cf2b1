/* A host backend made to behave as a device does, as far as the engine can tell: a step's results come only when it is
 * waited for, one step late (overlap depth 1), and steps are recorded and launched as one. The linker hands the engine this
 * k_backend_open() instead of the real one (--wrap), so that the engine itself is as shipped.
 */
#include "kernels/kernels.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int __real_k_backend_open(const struct k_backend_options *options, struct k_backend **out, const char **why,
                          struct quire_error *err);
int __wrap_k_backend_open(const struct k_backend_options *options, struct k_backend **out, const char **why,
                          struct quire_error *err);

/* One backend of a process at a time is looked at: the engine's. */
static const struct k_backend_ops *real;

/* ---- results that come late ------------------------------------------------------------------- */

#define N_SAMPLED 4u
static struct sampled {
    struct k_sample_result *results, *there; /* computed, and where the caller wants them */
    uint32_t n;
    uint64_t ticket; /* 0 until a fence came after it */
} sampled[N_SAMPLED];

static int sample(struct k_backend *b, const struct k_sample_args *a, struct quire_error *err)
{
    struct sampled *s = sampled;
    while (s->results) {
        s++;
        assert(s < sampled + N_SAMPLED); /* more steps in flight than the depth allows */
    }
    *s = (struct sampled){.results = calloc(a->n_rows, sizeof *s->results), .there = a->results, .n = a->n_rows};
    memset(a->results, 0xa5, a->n_rows * sizeof *a->results);
    struct k_sample_args late = *a;
    late.results = s->results;
    return s->results ? real->sample(b, &late, err) : quire_fail(err, QUIRE_NO_MEMORY, "sample: out of memory");
}

static int fence(struct k_backend *b, uint64_t *ticket, struct quire_error *err)
{
    int status = real->fence(b, ticket, err);
    for (uint32_t i = 0; i < N_SAMPLED; i++)
        if (sampled[i].results && !sampled[i].ticket)
            sampled[i].ticket = *ticket;
    return status;
}

static int wait(struct k_backend *b, uint64_t ticket, struct quire_error *err)
{
    for (uint32_t i = 0; i < N_SAMPLED; i++) {
        struct sampled *s = &sampled[i];
        if (!s->results || !s->ticket || s->ticket > ticket)
            continue;
        memcpy(s->there, s->results, s->n * sizeof *s->results);
        free(s->results);
        s->results = NULL;
    }
    return real->wait(b, ticket, err);
}

/* ---- recorded steps ---------------------------------------------------------------------------- */

struct k_graph {
    struct recorded_op {
        int (*run)(struct k_backend *b, const struct recorded_op *op, struct quire_error *err);
        union {
#define ARGUMENTS(NAME, name, text) struct k_##name##_args name;
            K_RECORDED_OPERATIONS(ARGUMENTS)
        };
    } ops[512];
    uint32_t n;
};
static struct k_graph *recording;

static struct recorded_op *record(void)
{
    assert(recording->n < sizeof recording->ops / sizeof recording->ops[0]);
    return &recording->ops[recording->n++];
}

#define OPERATION(NAME, name, text) \
    static int run_##name(struct k_backend *b, const struct recorded_op *op, struct quire_error *err) \
    { \
        return real->name(b, &op->name, err); \
    } \
    static int record_##name(struct k_backend *b, const struct k_##name##_args *a, struct quire_error *err) \
    { \
        if (!recording) \
            return real->name(b, a, err); \
        *record() = (struct recorded_op){.run = run_##name, .name = *a}; \
        return QUIRE_OK; \
    }
K_RECORDED_OPERATIONS(OPERATION)

/* A host backend looks at the rows on the host: here they are the same memory. */
static int run_attention_of_rows(struct k_backend *b, const struct recorded_op *op, struct quire_error *err)
{
    struct k_attention_args a = op->attention;
    a.rows = a.rows_dev;
    return real->attention(b, &a, err);
}

static int attention(struct k_backend *b, const struct k_attention_args *a, struct quire_error *err)
{
    if (!recording)
        return real->attention(b, a, err);
    struct recorded_op *op = record();
    *op = (struct recorded_op){.run = run_attention_of_rows, .attention = *a};
    op->attention.rows = NULL; /* what lies there now is no step's */
    return QUIRE_OK;
}

static int graph_begin(struct k_backend *b, struct quire_error *err)
{
    (void)b;
    assert(!recording);
    recording = calloc(1, sizeof *recording);
    return recording ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "graph: out of memory");
}

static int graph_end(struct k_backend *b, struct k_graph **out, struct quire_error *err)
{
    (void)b;
    (void)err;
    *out = recording;
    recording = NULL;
    return QUIRE_OK;
}

static int graph_launch(struct k_backend *b, struct k_graph *graph, struct quire_error *err)
{
    int status = QUIRE_OK;
    for (uint32_t i = 0; i < graph->n && status == QUIRE_OK; i++)
        status = graph->ops[i].run(b, &graph->ops[i], err);
    return status;
}

static void graph_destroy(struct k_backend *b, struct k_graph *graph)
{
    (void)b;
    free(graph);
}

/* ---- the table --------------------------------------------------------------------------------- */

static void close_backend(struct k_backend *b)
{
    for (uint32_t i = 0; i < N_SAMPLED; i++) {
        free(sampled[i].results);
        sampled[i].results = NULL;
    }
    real->close(b);
}

int __wrap_k_backend_open(const struct k_backend_options *options, struct k_backend **out, const char **why,
                          struct quire_error *err)
{
    static struct k_backend_ops tables[2]; /* of ref and of cpu */
    static struct k_backend_ops reals[2];
    static struct k_planner planners[2];
    int status = __real_k_backend_open(options, out, why, err);
    if (status)
        return status;
    size_t i = (*out)->ops->planner != k_planner_find("ref");
    struct k_backend_ops *ops = &tables[i];
    reals[i] = *(*out)->ops;
    real = &reals[i];
    *ops = *real;
    planners[i] = *real->planner;
    planners[i].overlap_depth = 1;
    ops->planner = &planners[i];
    ops->close = close_backend;
    ops->sample = sample;
    ops->fence = fence;
    ops->wait = wait;
#define ENTRY(NAME, name, text) ops->name = record_##name;
    K_RECORDED_OPERATIONS(ENTRY)
    ops->attention = attention;
    ops->graph_begin = graph_begin;
    ops->graph_end = graph_end;
    ops->graph_launch = graph_launch;
    ops->graph_destroy = graph_destroy;
    (*out)->ops = ops;
    return QUIRE_OK;
}
