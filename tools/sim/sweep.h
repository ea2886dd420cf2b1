/* Many simulations that differ in a few options: the cartesian product of "policy=fcfs,sjf budget=512,2048", on all
 * cores, and a table that marks the best value of each column. Keys are the command's long options; policy, budget,
 * blocks and seqs abbreviate scheduling-policy, max-num-batched-tokens, num-kv-blocks and max-num-seqs. One thread
 * calls. */
#ifndef QUIRE_TOOLS_SIM_SWEEP_H
#define QUIRE_TOOLS_SIM_SWEEP_H

#include "app/command/cli.h"

#include <jansson.h>

#define SIM_SWEEP_MAX_KEYS 8
#define SIM_SWEEP_MAX_RUNS 4096

struct sim_sweep_run {
    char *label; /* "policy=fcfs budget=512"; owned, like all members */
    char *arguments[SIM_SWEEP_MAX_KEYS]; /* "--scheduling-policy=fcfs" */
    size_t n_arguments;
    json_t *result; /* with "sweep": {key: value}; NULL before the run, or if it failed */
    struct quire_error err; /* the reason of a failure */
};

struct sim_sweep {
    struct sim_sweep_run *runs;
    size_t n;
};

/* QUIRE_INVALID names the wrong part of --sweep. Call sim_sweep_free(), also after an error. */
int sim_sweep_create(const struct cli_list *texts, struct sim_sweep *out, struct quire_error *err);
void sim_sweep_free(struct sim_sweep *sweep);

/* Calls one(context, run) for every run, from as many threads as there are cores. It returns the JSON, or NULL with the
 * reason in run->err. Draws a progress bar. */
int sim_sweep_execute(struct sim_sweep *sweep, json_t *(*one)(void *context, struct sim_sweep_run *run), void *context,
                      struct quire_error *err);
/* Prints the table on standard output. */
void sim_sweep_print(const struct sim_sweep *sweep);

#endif
