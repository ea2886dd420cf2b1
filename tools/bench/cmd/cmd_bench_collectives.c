/* quire bench collectives: the time of all-reduce and plan broadcast, between processes of this host or of several. */
#include "base/clock.h"
#include "parallel/group.h"
#include "parallel/hosts/hosts.h"
#include "parallel/plan_frame.h"
#include "tools/bench/cmd/cmd_bench.h"
#include "tools/bench/lib/metrics.h"
#include "app/command/command.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WARM_UP 10 /* one warm-up call per this many counted calls */
#define PLAN_BYTES (20u << 10) /* a step of 256 rows */
#define MAX_BYTES (4u << 20)

enum kind { BARRIER, ALL_REDUCE, PLAN, COPY };

static const struct row {
    const char *name;
    enum kind kind;
    size_t n_bytes;
    uint32_t fewer; /* this many times fewer calls, because each takes longer */
} rows[] = {
    {"barrier", BARRIER, 0, 1},
    {"all-reduce 4 KiB", ALL_REDUCE, 4u << 10, 1},
    {"all-reduce 64 KiB", ALL_REDUCE, 64u << 10, 2},
    {"all-reduce 4 MiB", ALL_REDUCE, MAX_BYTES, 50},
    {"plan broadcast 20 KiB", PLAN, PLAN_BYTES, 1},
    {"memory copy 4 MiB", COPY, MAX_BYTES, 50}, /* by all ranks at once: the limit of the link */
};
#define N_ROWS (sizeof rows / sizeof rows[0])
#define COPY_ROW (N_ROWS - 1)

/* The slowest rank's times of a row. */
struct times {
    double median_us, p95_us;
};

struct bench {
    uint32_t n_ranks, n_calls;
    bool json;
    enum rank_transport transport;
    struct collective *c;
    float *x, *y; /* [MAX_BYTES] each */
    double *us; /* [n_calls + n_calls / WARM_UP + 1] */
    uint64_t step;
    struct times times[N_ROWS];
};

/* A frame that contains its send time; all processes use the same clock. Receivers measure the transfer including
 * checks; rank 0 measures its own time. The barrier separates the calls. */
static int call_plan(struct bench *b, double *us, struct quire_error *err)
{
    struct plan_frame frame = {.step = b->step++, .n_bytes = PLAN_BYTES};
    uint64_t sent = quire_now_ns();
    int status;
    if (collective_rank(b->c) == 0) {
        memcpy(b->x, &sent, sizeof sent);
        status = plan_frame_send(b->c, &frame, b->x, err);
    } else {
        status = plan_frame_receive(b->c, frame.step, PLAN_BYTES, &frame, b->x, err);
        memcpy(&sent, b->x, sizeof sent);
    }
    *us = (double)(quire_now_ns() - sent) * 1e-3;
    return status == QUIRE_OK ? collective_barrier(b->c, err) : status;
}

static int call_copy(struct bench *b, double *us, struct quire_error *err)
{
    const int status = collective_barrier(b->c, err);
    const uint64_t began = quire_now_ns();
    memcpy(b->y, b->x, MAX_BYTES);
    *us = (double)(quire_now_ns() - began) * 1e-3;
    return status;
}

static int call(struct bench *b, const struct row *row, double *us, struct quire_error *err)
{
    if (row->kind == PLAN)
        return call_plan(b, us, err);
    if (row->kind == COPY)
        return call_copy(b, us, err);
    uint64_t began = quire_now_ns();
    int status = row->kind == BARRIER ? collective_barrier(b->c, err)
                                      : collective_all_reduce_tree(b->c, b->x, row->n_bytes / sizeof *b->x, err);
    *us = (double)(quire_now_ns() - began) * 1e-3;
    return status;
}

static int measure_row(struct bench *b, const struct row *row, struct times *out, struct quire_error *err)
{
    struct times all[COLLECTIVE_MAX_RANKS], mine;
    uint32_t n = b->n_calls / row->fewer + 1, n_warm = n / WARM_UP;
    int status = QUIRE_OK;
    memset(b->x, 0, MAX_BYTES);
    for (uint32_t i = 0; i < n_warm + n && status == QUIRE_OK; i++)
        status = call(b, row, &b->us[i < n_warm ? 0 : i - n_warm], err);
    if (status != QUIRE_OK)
        return status;
    bench_sort(b->us, n);
    mine = (struct times){bench_percentile(b->us, n, 50), bench_percentile(b->us, n, 95)};
    status = collective_all_gather(b->c, &mine, sizeof mine, all, err);
    *out = (struct times){0, 0};
    for (uint32_t r = 0; r < collective_size(b->c) && status == QUIRE_OK; r++)
        if (all[r].median_us > out->median_us)
            *out = all[r];
    return status;
}

static int measure(struct bench *b, struct quire_error *err)
{
    b->x = malloc(MAX_BYTES);
    b->y = malloc(MAX_BYTES);
    b->us = malloc((b->n_calls + b->n_calls / WARM_UP + 2) * sizeof *b->us);
    int status = b->x && b->y && b->us ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < N_ROWS && status == QUIRE_OK; i++)
        status = measure_row(b, &rows[i], &b->times[i], err);
    free(b->x);
    free(b->y);
    free(b->us);
    return status;
}

/* Bytes that each rank must send and receive, divided by the time: an all-reduce moves (N - 1) / N of its bytes twice.
 * 0: not applicable. */
static double bus_gb_s(const struct bench *b, size_t i)
{
    if (rows[i].kind != ALL_REDUCE)
        return 0;
    return 2.0 * (b->n_ranks - 1) / b->n_ranks * (double)rows[i].n_bytes / b->times[i].median_us * 1e-3;
}

/* Share of the rate at which a rank copies while all ranks do, which is the link of shared memory. */
static double link_share(const struct bench *b, size_t i)
{
    return bus_gb_s(b, i) * b->times[COPY_ROW].median_us * 1e3 / MAX_BYTES;
}

static int report(const struct bench *b)
{
    if (b->json) {
        json_t *list = json_array();
        for (size_t i = 0; i < N_ROWS; i++)
            json_array_append_new(list, json_pack("{s:s, s:I, s:f, s:f, s:f, s:f}", "name", rows[i].name, "bytes",
                                                  (json_int_t)rows[i].n_bytes, "median_us", b->times[i].median_us,
                                                  "p95_us", b->times[i].p95_us, "bus_gb_s", bus_gb_s(b, i),
                                                  "link_share", link_share(b, i)));
        return command_print_json(
            json_pack("{s:i, s:i, s:o}", "ranks", (int)b->n_ranks, "calls", (int)b->n_calls, "collectives", list));
    }
    printf("%u ranks\n%-24s %12s %12s %14s %14s\n", b->n_ranks, "", "median (us)", "p95 (us)", "bus (GB/s)",
           "of the link");
    for (size_t i = 0; i < N_ROWS; i++) {
        printf("%-24s %12.1f %12.1f", rows[i].name, b->times[i].median_us, b->times[i].p95_us);
        if (rows[i].kind == ALL_REDUCE)
            printf(" %14.2f %12.0f %%", bus_gb_s(b, i), 100 * link_share(b, i));
        if (rows[i].kind == COPY)
            printf(" %14.2f", MAX_BYTES / b->times[i].median_us * 1e-3);
        putchar('\n');
    }
    return 0;
}

static int run_worker(struct bench *b)
{
    struct quire_error err;
    int status = group_join(&b->c, &err);
    if (status == QUIRE_OK)
        status = measure(b, &err);
    collective_leave(b->c);
    return status == QUIRE_OK ? 0 : command_fail(1, err.text);
}

/* A rank that mpirun or another launcher started; rank 0 reports. */
static int run_placed(struct bench *b, const struct position *position)
{
    struct quire_error err;
    const struct hosts_options options = {.position = position, .transport = b->transport};
    int status = hosts_join(&options, &b->c, &err);
    if (status == QUIRE_OK)
        status = measure(b, &err);
    if (status == QUIRE_OK)
        status = collective_barrier(b->c, &err);
    collective_leave(b->c);
    if (status != QUIRE_OK)
        return command_fail(1, err.text);
    return position->rank == 0 ? report(b) : 0;
}

static int parse_transport(const char *text, void *target, struct quire_error *err)
{
    return rank_transport_parse(text, target, err);
}

static int run_first(struct bench *b)
{
    struct quire_error err;
    struct group *g = NULL;
    char calls[16];
    snprintf(calls, sizeof calls, "%u", b->n_calls);
    char *argv[] = {(char[]){"quire"}, (char[]){"bench"}, (char[]){"collectives"}, (char[]){"--calls"}, calls, NULL};
    int status = group_start(&(struct group_options){.n_ranks = b->n_ranks, .argv = argv}, &g, &err);
    if (status == QUIRE_OK) {
        b->c = group_collective(g);
        status = measure(b, &err);
    }
    group_stop(g);
    return status == QUIRE_OK ? report(b) : command_fail(1, err.text);
}

int bench_collectives(int argc, char **argv)
{
    struct bench b = {.n_ranks = 2, .n_calls = 5000};
    const struct cli_option options[] = {
        {.names = "ranks",
         .kind = CLI_U32,
         .target = &b.n_ranks,
         .min = 1,
         .max = COLLECTIVE_MAX_RANKS,
         .value = "N",
         .help = "Number of processes: 1, 2, 4 or 8. Default 2."},
        {.names = "calls",
         .kind = CLI_U32,
         .target = &b.n_calls,
         .min = 1,
         .max = 10000000,
         .value = "N",
         .help = "Number of calls of each collective; fewer for large ones. Default 5000."},
        {.names = "rank-transport",
         .kind = CLI_PARSED,
         .parse = parse_transport,
         .target = &b.transport,
         .value = "NAME",
         .help = "As in quire serve. shm starts the processes; with tcp and mpi, mpirun or another launcher has "
                 "started them. Default auto."},
        {.names = "json", .kind = CLI_FLAG, .target = &b.json, .help = "Print JSON."},
        {0},
    };
    const struct cli_command command = {
        .name = "bench collectives",
        .usage = "quire bench collectives [options]",
        .about =
            "Starts processes of this program that reduce vectors and broadcast plans over shared memory, or over MPI or\n"
            "TCP if mpirun or another launcher starts them. Reports the median and the 95th percentile of the slowest\n"
            "rank for each call. A plan's time runs from before it is sent until it is received and checked. Bus: the\n"
            "bytes that a rank must send and receive, divided by the time. Link: the rate at which a rank copies memory\n"
            "while all ranks do.",
        .examples = "examples:\n"
                    "  quire bench collectives\n"
                    "  quire bench collectives --ranks 4 --calls 20000 --json\n"
                    "  mpirun -n 2 quire bench collectives",
        .options = options,
    };
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (b.n_ranks & (b.n_ranks - 1))
        return command_fail(2, "--ranks: must be 1, 2, 4 or 8");
    if (group_is_worker())
        return run_worker(&b);
    struct position position;
    struct quire_error err;
    if (rank_position_find(&(struct rank_position_flags){.transport = b.transport}, b.n_ranks, &position, &err) !=
        QUIRE_OK)
        return command_fail(2, err.text);
    return position.launcher ? run_placed(&b, &position) : run_first(&b);
}
