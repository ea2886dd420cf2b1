/* The ref backend without its kernels: memory, weights and copies are real, every operation returns at once, and a
 * sampled token is a function of its position. The linker gives the engine this k_backend_open() instead of the real
 * one (--wrap), so the engine itself is unchanged. */
#include "kernels/args/sample.h"
#include "kernels/backend.h"
#include "kernels/open.h"
#include "tests/bench/host_bench.h"

#include <errno.h>

int __real_k_backend_open(const struct k_backend_options *options, struct k_backend **out, const char **why,
                          struct quire_error *err);
int __wrap_k_backend_open(const struct k_backend_options *options, struct k_backend **out, const char **why,
                          struct quire_error *err);

static double seconds_per_token;
static double due; /* when the next step's tokens may be there */
static double waited; /* CPU time of waiting for that */

void null_backend_pace(double tokens_per_second)
{
    seconds_per_token = tokens_per_second > 0 ? 1 / tokens_per_second : 0;
    due = 0;
}

#define NOTHING(NAME, name, text) \
    static int no_##name(struct k_backend *b, const struct k_##name##_args *a, struct quire_error *err) \
    { \
        (void)b; \
        (void)a; \
        (void)err; \
        return QUIRE_OK; \
    }
K_OPERATIONS(NOTHING)

/* Ids that are plain text in any byte-level vocabulary of at least a thousand tokens. */
static int sample(struct k_backend *b, const struct k_sample_args *a, struct quire_error *err)
{
    (void)b;
    (void)err;
    for (uint32_t i = 0; i < a->n_rows; i++) {
        a->results_dev[i].token = 300 + a->rows[i].position % 512;
        a->results_dev[i].bad_logits = false;
    }
    due += seconds_per_token * a->n_rows;
    return QUIRE_OK;
}

static int sample_plan(struct k_backend *b, const struct k_sample_plan_args *a, struct quire_error *err)
{
    (void)b;
    (void)err;
    *a->n_planned = a->n_rows;
    *a->parts_bytes = 0;
    return QUIRE_OK;
}

static int wait_until_due(struct k_backend *b, uint64_t ticket, struct quire_error *err)
{
    (void)b;
    (void)ticket;
    (void)err;
    double now = bench_seconds(CLOCK_MONOTONIC), before = bench_seconds(CLOCK_THREAD_CPUTIME_ID);
    if (due <= now) {
        due = now;
        return QUIRE_OK;
    }
    struct timespec at = {.tv_sec = (time_t)due};
    at.tv_nsec = (long)((due - (double)at.tv_sec) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {
    }
    waited += bench_seconds(CLOCK_THREAD_CPUTIME_ID) - before;
    return QUIRE_OK;
}

double null_backend_waited(void)
{
    return waited;
}

int __wrap_k_backend_open(const struct k_backend_options *options, struct k_backend **out, const char **why,
                          struct quire_error *err)
{
    static struct k_backend_ops ops;
    int status = __real_k_backend_open(options, out, why, err);
    if (status)
        return status;
    ops = *(*out)->ops;
#define ENTRY(NAME, name, text) ops.name = no_##name;
    K_OPERATIONS(ENTRY)
    ops.sample = sample;
    ops.sample_plan = sample_plan;
    if (seconds_per_token > 0)
        ops.wait = wait_until_due;
    (*out)->ops = &ops;
    return QUIRE_OK;
}
