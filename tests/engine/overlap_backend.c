/* A host backend that behaves like a device, as far as the engine can observe: a step's results appear only after a
 * wait, one step late (overlap depth 1), and steps are recorded and launched as one. The linker hands the engine
 * this k_backend_open() instead of the real one (--wrap), so that the engine itself is as shipped.
 */
#include "kernels/args/attention.h"
#include "kernels/args/gemm.h"
#include "kernels/args/group.h"
#include "kernels/args/kv_copy.h"
#include "kernels/args/moe.h"
#include "kernels/args/norm.h"
#include "kernels/args/rope.h"
#include "kernels/args/rows.h"
#include "kernels/args/sample.h"
#include "kernels/backend.h"
#include "kernels/open.h"
#include "kernels/planner.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

int __real_k_backend_open(const struct k_backend_options *options, struct k_backend **out, const char **why,
                          struct quire_error *err);
int __wrap_k_backend_open(const struct k_backend_options *options, struct k_backend **out, const char **why,
                          struct quire_error *err);

/* Of the whole process; all backends are alike. */
static const struct k_backend_ops *real;

/* ---- results that come late ------------------------------------------------------------------- */

#define N_COPIES 8u
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER; /* an engine may end its last step while another is opened */
static struct copy {
    struct k_backend *of;
    void *copied, *there; /* as it was, and where the caller wants it */
    uint64_t bytes;
    uint64_t ticket; /* 0 until a fence came after it */
} copies[N_COPIES];

static int copy_out(struct k_backend *b, void *dst, const void *src_dev, uint64_t bytes, struct quire_error *err)
{
    struct copy *c = copies;
    void *copied = malloc(bytes + 1);
    if (!copied)
        return quire_fail(err, QUIRE_NO_MEMORY, "copy_out: out of memory");
    pthread_mutex_lock(&guard);
    while (c->copied) {
        c++;
        assert(c < copies + N_COPIES); /* more steps in flight than the depth allows */
    }
    *c = (struct copy){.of = b, .copied = copied, .there = dst, .bytes = bytes};
    pthread_mutex_unlock(&guard);
    memset(dst, 0xa5, bytes);
    return real->copy_out(b, copied, src_dev, bytes, err);
}

static int fence(struct k_backend *b, uint64_t *ticket, struct quire_error *err)
{
    int status = real->fence(b, ticket, err);
    pthread_mutex_lock(&guard);
    for (uint32_t i = 0; i < N_COPIES; i++)
        if (copies[i].copied && copies[i].of == b && !copies[i].ticket)
            copies[i].ticket = *ticket;
    pthread_mutex_unlock(&guard);
    return status;
}

static int wait(struct k_backend *b, uint64_t ticket, struct quire_error *err)
{
    pthread_mutex_lock(&guard);
    for (uint32_t i = 0; i < N_COPIES; i++) {
        struct copy *c = &copies[i];
        if (!c->copied || c->of != b || !c->ticket || c->ticket > ticket)
            continue;
        memcpy(c->there, c->copied, c->bytes);
        free(c->copied);
        c->copied = NULL;
    }
    pthread_mutex_unlock(&guard);
    return real->wait(b, ticket, err);
}

/* ---- recorded steps ---------------------------------------------------------------------------- */

struct k_graph {
    struct recorded_op {
        int (*run)(struct k_backend *b, const struct recorded_op *op, struct quire_error *err);
        union {
#define ARGUMENTS(NAME, name, text) struct k_##name##_args name;
            K_RECORDED_OPERATIONS(ARGUMENTS) K_LINKING_OPERATIONS(ARGUMENTS) K_GROUP_OPERATIONS(ARGUMENTS)
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
K_LINKING_OPERATIONS(OPERATION)
K_GROUP_OPERATIONS(OPERATION)

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
    op->attention.rows = NULL; /* the memory no longer belongs to the step */
    return QUIRE_OK;
}

/* Nor has it a plan of sampling's rows: it is given those that were planned last. There is room for few with a mask or
 * biases. */
#define MOST_LARGE 2u
static struct k_sample_plan_args planned;

static int sample_plan(struct k_backend *b, const struct k_sample_plan_args *a, struct quire_error *err)
{
    uint32_t n_large = 0;
    int status = real->sample_plan(b, a, err);
    for (uint32_t i = 0; i < *a->n_planned; i++) {
        n_large += a->rows[i].mask || a->rows[i].n_biases > 0;
        if (n_large > MOST_LARGE)
            *a->n_planned = i;
    }
    planned = *a;
    return status;
}

static int run_sample_of_planned(struct k_backend *b, const struct recorded_op *op, struct quire_error *err)
{
    struct k_sample_args a = op->sample;
    assert(planned.n_rows <= a.n_rows);
    a.rows = planned.rows;
    a.n_rows = planned.n_rows;
    return real->sample(b, &a, err);
}

static int sample(struct k_backend *b, const struct k_sample_args *a, struct quire_error *err)
{
    if (!recording)
        return real->sample(b, a, err);
    *record() = (struct recorded_op){.run = run_sample_of_planned, .sample = *a};
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
    pthread_mutex_lock(&guard);
    for (uint32_t i = 0; i < N_COPIES; i++) {
        if (copies[i].of != b)
            continue;
        free(copies[i].copied);
        copies[i].copied = NULL;
    }
    pthread_mutex_unlock(&guard);
    real->close(b);
}

/* Copies a backend's table and replaces the late and recorded operations by those in this file. */
static void make_table(const struct k_backend_ops *of, struct k_planner *planner, struct k_backend_ops *ops)
{
    *ops = *of;
    *planner = *of->planner;
    planner->overlap_depth = 1;
    ops->planner = planner;
    ops->close = close_backend;
    ops->copy_out = copy_out;
    ops->fence = fence;
    ops->wait = wait;
#define ENTRY(NAME, name, text) ops->name = record_##name;
    K_RECORDED_OPERATIONS(ENTRY)
    K_LINKING_OPERATIONS(ENTRY)
    K_GROUP_OPERATIONS(ENTRY)
    ops->attention = attention;
    ops->sample = sample;
    ops->sample_plan = sample_plan;
    ops->graph_begin = graph_begin;
    ops->graph_end = graph_end;
    ops->graph_launch = graph_launch;
    ops->graph_destroy = graph_destroy;
}

int __wrap_k_backend_open(const struct k_backend_options *options, struct k_backend **out, const char **why,
                          struct quire_error *err)
{
    static struct k_backend_ops tables[2]; /* for ref and for cpu */
    static struct k_backend_ops reals[2];
    static struct k_planner planners[2];
    int status = __real_k_backend_open(options, out, why, err);
    if (status)
        return status;
    size_t i = (*out)->ops->planner != k_planner_find("ref");
    if (!reals[i].planner) { /* made once: another engine's thread may be reading it */
        reals[i] = *(*out)->ops;
        make_table(&reals[i], &planners[i], &tables[i]);
    }
    if (real != &reals[i])
        real = &reals[i];
    (*out)->ops = &tables[i];
    return QUIRE_OK;
}
