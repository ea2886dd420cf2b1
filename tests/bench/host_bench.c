/* The host's cost in addition to the kernels.
 *
 *     build/tests/bench/host_bench [--json] [--quick] [--only sched|drafts|engine|stream|one-stream|requests] MODEL
 *     build/tests/bench/host_bench [--json] [--quick] --other-server PORT
 *
 * MODEL: a checkpoint with its tokenizer, of 2,000 tokens or more; tools/demo_model/model is enough. CPU time, not wall
 * time: other programs on the machine show only as cold caches. Each row is a median, with the range of nine samples in
 * ten and the 99th percentile. --quick: a few samples of each, to check that it works. --other-server: the client of
 * `requests` against the server on that port.
 */
#include "tests/bench/host_bench.h"

#include "base/hash.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool as_json, had_row;

void bench_die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("host_bench: ", stderr);
    vfprintf(stderr, format, arguments);
    fputs("\n", stderr);
    va_end(arguments);
    exit(1);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void bench_row(const char *name, const char *unit, double *samples, uint32_t n)
{
    if (n == 0)
        bench_die("%s: nothing was measured", name);
    qsort(samples, n, sizeof *samples, by_value);
    double median = samples[n / 2], low = samples[n / 20], high = samples[n - 1 - n / 20];
    double p99 = samples[n - 1 - n / 100];
    if (as_json)
        printf("%s{\"name\": \"%s\", \"unit\": \"%s\", \"median\": %.4g, \"p5\": %.4g, \"p95\": %.4g,"
               " \"p99\": %.4g, \"samples\": %u}",
               had_row ? ",\n " : "[", name, unit, median, low, high, p99, n);
    else
        printf("%-60s %9.4g %-9s (%.4g to %.4g, p99 %.4g, %u samples)\n", name, median, unit, low, high, p99, n);
    fflush(stdout);
    had_row = true;
}

int main(int argc, char **argv)
{
    const char *model_dir = NULL, *only = NULL;
    bool quick = false;
    uint16_t port = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            as_json = true;
        else if (strcmp(argv[i], "--quick") == 0)
            quick = true;
        else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
            only = argv[++i];
        else if (strcmp(argv[i], "--other-server") == 0 && i + 1 < argc)
            port = (uint16_t)atoi(argv[++i]);
        else
            model_dir = argv[i];
    }
    if (port ? model_dir != NULL : !model_dir || model_dir[0] == '-') {
        fprintf(stderr,
                "usage: host_bench [--json] [--quick] [--only sched|drafts|engine|stream|one-stream|requests] MODEL\n"
                "       host_bench [--json] [--quick] --other-server PORT\n");
        return 2;
    }
    if (quire_hash_init())
        bench_die("this machine gives no random numbers");
    if (port) {
        only = "another server";
        bench_other_server(port, quick);
    }
    /* First, because it measures the memory of a process that has done nothing else. */
    if (!only || strcmp(only, "stream") == 0)
        bench_stream(model_dir, quick);
    if (!only || strcmp(only, "one-stream") == 0)
        bench_one_stream(model_dir, quick);
    if (!only || strcmp(only, "requests") == 0)
        bench_requests(model_dir, quick);
    if (!only || strcmp(only, "sched") == 0) {
        bench_sched(quick);
        bench_policies(quick);
        bench_blocks(quick);
    }
    if (!only || strcmp(only, "drafts") == 0)
        bench_drafts(quick);
    if (!only || strcmp(only, "engine") == 0)
        bench_engine(model_dir, quick);
    if (as_json)
        printf("]\n");
    return 0;
}
