/* quire bench: selects the benchmark. */
#include "tools/bench/cmd/cmd_bench.h"

#include "app/command/commands.h"
#include "app/command/unknown.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *about;
} benches[] = {
    {"throughput", bench_throughput, "tokens per second of many requests at once, engine in this process"},
    {"latency", bench_latency, "time of one repeated batch: seconds, prefill and decode tokens per second"},
    {"serve", bench_serve, "load on any OpenAI-compatible server: TTFT, TPOT, ITL, E2EL, goodput"},
    {"compare", bench_compare, "two configurations in turns, with a test of the difference"},
    {"steps", bench_steps, "time of a step by its shape, and a cost model that predicts it"},
    {"kernels", bench_kernels, "the kernels alone, compared with the limits of the machine"},
    {"collectives", bench_collectives, "all-reduce of vectors and broadcast of plans between processes"},
};
#define N_BENCHES (sizeof benches / sizeof benches[0])

static void print_help(void)
{
    puts("usage: quire bench BENCHMARK [arguments]\n");
    for (size_t i = 0; i < N_BENCHES; i++)
        printf("  %-11s %s\n", benches[i].name, benches[i].about);
    puts("\nexamples:\n"
         "  quire bench throughput ./model --num-prompts 16 --input-len 128 --output-len 64\n"
         "  quire bench latency ./model --batch-size 1 --input-len 512 --output-len 128\n"
         "  quire bench serve --url http://127.0.0.1:8000 --request-rate 2 --num-prompts 50\n"
         "  quire bench compare ./model --a \"--max-num-seqs 4\" --b \"--max-num-seqs 8\"\n"
         "  quire bench steps ./model --output cost.json\n"
         "  quire bench kernels --case gemm\n"
         "  quire bench collectives --ranks 2\n\n"
         "Results have the same names as in vllm bench (docs/guides/benchmarking.md). --json prints them as JSON.\n"
         "quire bench BENCHMARK --help lists the options.");
}

int command_bench(int argc, char **argv)
{
    const char *name = argc > 0 ? argv[0] : "--help";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help();
        return argc > 0 ? 0 : 2;
    }
    for (size_t i = 0; i < N_BENCHES; i++)
        if (strcmp(name, benches[i].name) == 0)
            return benches[i].run(argc - 1, argv + 1);
    struct unknown_name typed = unknown_begin(argc, argv);
    for (size_t i = 0; i < N_BENCHES; i++)
        unknown_try(&typed, benches[i].name);
    return unknown_end(&typed, "benchmark", "quire bench ");
}
