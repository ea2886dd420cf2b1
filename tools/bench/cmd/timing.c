#include "tools/bench/cmd/timing.h"

#include "kernels/cases/op_run.h"
#include "kernels/host/host.h"
#include "base/clock.h"
#include "tools/bench/lib/metrics.h"
#include "tools/bench/cmd/work.h"

#include <string.h>

#define MAX_RUNS 31 /* samples of a case; fewer on the host after ENOUGH_US */
#define MIN_RUNS 5
#define ENOUGH_US 1e6
#define MAX_COPIES 64u
/* More than any GPU's last-level cache: 50 MB on an H100, 126 MB on a B200. */
#define DEVICE_CACHE_BYTES (256ull << 20)
/* Launching and waiting cost some 10 us: half a percent of this. */
#define BURST_US 2000.0
#define MAX_BURST 1000u

struct run {
    struct k_backend *b;
    const struct op_case *c;
    struct op_binding *copies[MAX_COPIES];
    uint32_t n_copies;
    bool quick;
};

struct samples {
    double us[MAX_RUNS], read4[MAX_RUNS], read8[MAX_RUNS], fma[MAX_RUNS];
    uint32_t n;
};

/* ---- copies ---- */

/* Runs alternate between copies that together exceed the last-level cache. On the host, at most as many as there are
 * calls. */
static uint32_t copies_of(const struct k_backend *b, const struct op_case *c)
{
    uint64_t bytes = bench_work_cold_bytes(c), all = bench_cache_bytes() + bench_cache_bytes() / 2;
    uint32_t most = MAX_RUNS + 1;
    if (bench_is_device(b)) {
        all = DEVICE_CACHE_BYTES;
        most = c->op == K_OP_SAMPLE ? 16 : MAX_COPIES;
    }
    uint64_t n = bytes ? (all + bytes - 1) / bytes : 1;
    return n < most ? (uint32_t)n : most;
}

/* A device's free memory is checked first, so that fewer copies are made where not all fit. */
static int check_memory(struct k_backend *b, const struct op_case *c, uint32_t *n_copies, struct quire_error *err)
{
    uint64_t total, available;
    double bytes, flops;
    if (!bench_is_device(b))
        return QUIRE_OK;
    int status = b->ops->memory(b, &total, &available, err);
    if (status != QUIRE_OK)
        return status;
    bench_work(c, &bytes, &flops);
    uint64_t cold = bench_work_cold_bytes(c), each = (uint64_t)bytes + cold + (64u << 20);
    if (each > available)
        return quire_fail(err, QUIRE_NO_MEMORY, "%s: takes about %.1f GiB, and %.1f GiB of the device are free",
                          op_name(c), (double)each / (1 << 30), (double)available / (1 << 30));
    if (*n_copies > available / each)
        *n_copies = (uint32_t)(available / each);
    return QUIRE_OK;
}

static double percentile_of(double *values, uint32_t n, double p)
{
    bench_sort(values, n);
    return bench_percentile(values, n, p);
}

/* ---- on host memory ---- */

static int sample_host(struct run *r, struct bench_limits *limits, struct samples *s, struct quire_error *err)
{
    struct k_pool *pool = host_of(r->b)->pool;
    uint32_t most = r->quick ? 1 : MAX_RUNS;
    double spent = 0;
    bool is_cold = bench_work_cold_bytes(r->c) > 0;
    bench_limits_sweep(limits, pool);
    /* The first call is not counted: it wakes the threads. */
    int status = op_call_in_step(r->copies[0], err);
    while (status == QUIRE_OK && s->n < most && (s->n < MIN_RUNS || spent < ENOUGH_US)) {
        if (is_cold) {
            s->read4[s->n] = bench_limits_read(limits, pool, 4);
            s->read8[s->n] = bench_limits_read(limits, pool, 8);
            s->fma[s->n] = bench_limits_fma(limits, pool);
        }
        double start = quire_now_s();
        status = op_call_in_step(r->copies[(s->n + 1) % r->n_copies], err);
        s->us[s->n] = (quire_now_s() - start) * 1e6;
        spent += s->us[s->n++];
    }
    return status;
}

static int time_host(struct run *r, bool wide, struct bench_limits **limits, struct samples *s,
                     struct bench_timing *out, struct quire_error *err)
{
    int status = *limits ? QUIRE_OK : bench_limits_open(host_of(r->b)->pool, wide, limits, err);
    if (status == QUIRE_OK)
        status = sample_host(r, *limits, s, err);
    if (status != QUIRE_OK || bench_work_cold_bytes(r->c) == 0)
        return status;
    double four = percentile_of(s->read4, s->n, 50), eight = percentile_of(s->read8, s->n, 50);
    out->read_gb_s = four > eight ? four : eight;
    out->fma_gflop_s = percentile_of(s->fma, s->n, 50);
    return QUIRE_OK;
}

/* ---- on a device ---- */

static int finish_queue(struct k_backend *b, struct quire_error *err)
{
    uint64_t ticket;
    int status = b->ops->fence(b, &ticket, err);
    return status == QUIRE_OK ? b->ops->wait(b, ticket, err) : status;
}

static int queue_calls(struct run *r, uint32_t n_calls, struct quire_error *err)
{
    int status = QUIRE_OK;
    for (uint32_t i = 0; i < n_calls && status == QUIRE_OK; i++)
        status = op_queue(r->copies[i % r->n_copies], err);
    return status;
}

/* A sampler overwrites its logits. */
static int restore_logits(struct run *r, struct quire_error *err)
{
    int status = QUIRE_OK;
    for (uint32_t i = 0; r->c->op == K_OP_SAMPLE && i < r->n_copies && status == QUIRE_OK; i++)
        status = op_rewind(r->copies[i], err);
    return status == QUIRE_OK ? finish_queue(r->b, err) : status;
}

static int time_burst(struct run *r, uint32_t n_calls, struct k_graph *graph, double *us, struct quire_error *err)
{
    int status = restore_logits(r, err);
    double start = quire_now_s();
    if (status == QUIRE_OK)
        status = graph ? r->b->ops->graph_launch(r->b, graph, err) : queue_calls(r, n_calls, err);
    if (status == QUIRE_OK)
        status = finish_queue(r->b, err);
    *us = (quire_now_s() - start) * 1e6 / n_calls;
    return status;
}

static int record(struct run *r, uint32_t n_calls, struct k_graph **graph, struct quire_error *err)
{
    const struct k_backend_ops *ops = r->b->ops;
    *graph = NULL;
    if (!ops->graph_begin || r->c->op == K_OP_KV_COPY) /* which cannot be recorded */
        return QUIRE_OK;
    int status = ops->graph_begin(r->b, err);
    if (status == QUIRE_OK)
        status = queue_calls(r, n_calls, err);
    return status == QUIRE_OK ? ops->graph_end(r->b, graph, err) : status;
}

/* Calls every copy once, which also makes attention's plans, and then chooses the number of calls per burst. */
static int choose_burst(struct run *r, uint32_t *n_calls, struct quire_error *err)
{
    int status = QUIRE_OK;
    double us;
    *n_calls = r->n_copies;
    for (uint32_t i = 0; i < r->n_copies && status == QUIRE_OK; i++)
        status = op_call_in_step(r->copies[i], err);
    if (status != QUIRE_OK || r->quick || r->c->op == K_OP_SAMPLE)
        return status;
    status = time_burst(r, r->n_copies, NULL, &us, err);
    double n = status == QUIRE_OK ? BURST_US / us : 0;
    *n_calls = n < r->n_copies ? r->n_copies : n > MAX_BURST ? MAX_BURST : (uint32_t)n;
    return status;
}

static int time_device(struct run *r, struct samples *s, struct bench_timing *out, struct quire_error *err)
{
    struct k_graph *graph = NULL;
    uint32_t most = r->quick ? 1 : MAX_RUNS;
    double us;
    int status = choose_burst(r, &out->n_calls, err);
    if (status == QUIRE_OK)
        status = record(r, out->n_calls, &graph, err);
    if (status == QUIRE_OK) /* not counted: a graph's first launch uploads it, and clocks rise */
        status = time_burst(r, out->n_calls, graph, &us, err);
    while (status == QUIRE_OK && s->n < most)
        status = time_burst(r, out->n_calls, graph, &s->us[s->n++], err);
    if (graph)
        r->b->ops->graph_destroy(r->b, graph);
    return status;
}

/* ---- a case ---- */

static int time_copies(struct run *r, bool wide, struct bench_limits **limits, struct bench_timing *out,
                       struct quire_error *err)
{
    struct samples s = {.n = 0};
    *out = (struct bench_timing){.n_calls = 1};
    int status = r->b->ops->step_begin(r->b, err);
    if (status == QUIRE_OK)
        status = bench_is_device(r->b) ? time_device(r, &s, out, err) : time_host(r, wide, limits, &s, out, err);
    if (status == QUIRE_OK)
        status = r->b->ops->step_end(r->b, err);
    if (status != QUIRE_OK)
        return status;
    out->median_us = percentile_of(s.us, s.n, 50);
    out->low_us = percentile_of(s.us, s.n, 10);
    out->high_us = percentile_of(s.us, s.n, 90);
    out->n_runs = s.n;
    return QUIRE_OK;
}

int bench_timing_run(struct k_backend *b, const struct op_case *c, uint32_t n_threads, bool quick, bool wide,
                     struct bench_limits **limits, struct bench_timing *out, struct quire_error *err)
{
    const struct op_variant variant = {.as_checkpoint = true, .n_threads = n_threads};
    struct op_data data = {.x = NULL}; /* of every copy */
    struct run r = {.b = b, .c = c, .n_copies = quick ? 1 : copies_of(b, c), .quick = quick};
    int status = check_memory(b, c, &r.n_copies, err);
    if (status != QUIRE_OK)
        return status;
    status = op_data_make(c, &data, err);
    for (uint32_t i = 0; status == QUIRE_OK && i < r.n_copies; i++)
        status = op_bind(b, c, &data, &variant, &r.copies[i], err);
    if (status == QUIRE_OK)
        status = time_copies(&r, wide, limits, out, err);
    for (uint32_t i = 0; i < r.n_copies; i++)
        op_release(r.copies[i]);
    op_data_free(&data);
    return status;
}
