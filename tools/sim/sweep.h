/* Many simulations that differ in a few options: the cartesian product of "policy=fcfs,sjf budget=512,2048", on all cores,
 * and a table with the best of each column marked. Keys are the command's long options; policy, budget, blocks and seqs are
 * short for scheduling-policy, max-num-batched-tokens, num-kv-blocks and max-num-seqs. */
#ifndef QUIRE_TOOLS_SIM_SWEEP_H
#define QUIRE_TOOLS_SIM_SWEEP_H

#include "tools/cli/cli.h"

#include <jansson.h>

#define SIM_SWEEP_MAX_KEYS 8
#define SIM_SWEEP_MAX_RUNS 4096

struct sim_sweep_run {
    char *label; /* "policy=fcfs budget=512"; owned, as all here */
    char *arguments[SIM_SWEEP_MAX_KEYS]; /* "--scheduling-policy=fcfs" */
    size_t n_arguments;
    json_t *result; /* with "sweep": {key: value}; NULL until it ran, or it failed */
    struct quire_error err; /* why it did */
};

struct sim_sweep {
    struct sim_sweep_run *runs;
    size_t n;
};

/* QUIRE_INVALID names the piece of --sweep that is wrong. Freed by sim_sweep_free(), also after a failure. */
int sim_sweep_create(const struct cli_list *texts, struct sim_sweep *out, struct quire_error *err);
void sim_sweep_free(struct sim_sweep *sweep);

/* Calls one(context, run) for every run, from as many threads as there are cores; it returns the JSON, or NULL and says why
 * in run->err. Draws a progress bar. */
int sim_sweep_execute(struct sim_sweep *sweep, json_t *(*one)(void *context, struct sim_sweep_run *run), void *context,
                      struct quire_error *err);
/* The table, on standard output. */
void sim_sweep_print(const struct sim_sweep *sweep);

#endif
