/* The command line of quire sim, and the simulation that it describes.
 *
 * Parsing fills the options. Checking compares them with each other and makes the rest from them. Strings are those of
 * argv. No global state; any thread on its own settings.
 */
#ifndef QUIRE_TOOLS_SIM_SETTINGS_H
#define QUIRE_TOOLS_SIM_SETTINGS_H

#include "app/command/cli.h"
#include "app/flags/engine_flags.h"
#include "engine/options.h"
#include "tools/bench/lib/cost_links.h"
#include "tools/sim/metrics.h"

#define SIM_OWN_FLAGS_MAX 54

struct sim_settings {
    /* The options. These two are owned. */
    struct engine_options *engine;
    struct step_options *steps; /* engine->steps */
    struct sim_workload_options *workload;
    struct cli_list goodput, sweep;
    const char *time_unit, *html, *save, *acceptance_text;
    double service_time;
    uint32_t num_host_blocks, overlap_depth, max_tokens;
    uint32_t n_ranks, n_stages; /* ranks per stage, and stages */
    bool has_service_time, oracle_lengths, predict, json;
    const char *given[SIM_OWN_FLAGS_MAX + SCHEDULE_FLAGS_MAX]; /* names of the options that the user gave */
    size_t n_given;
    struct cost_shape shape; /* of the model of the cost model */
    char machine[320]; /* what the cost model is of, for people */
    struct cost_link own_link;
    const struct cost_link *link; /* between ranks; NULL: not set */

    /* Made by sim_settings_check(). These two are owned. */
    struct sched_config *sched;
    struct sim_setup *setup; /* without progress */
    struct sim_bounds bounds;
};

/* *help: the help was printed, and nothing is to be run. QUIRE_INVALID names the option. Call sim_settings_free(), also
 * after an error. */
int sim_settings_parse(int argc, char **argv, struct sim_settings *s, bool *help, struct quire_error *err);
/* QUIRE_INVALID names the options that do not fit together. */
int sim_settings_check(struct sim_settings *s, struct quire_error *err);
void sim_settings_free(struct sim_settings *s); /* zeroed settings are allowed */

/* Maximum per row; 0: no drafts. */
uint32_t sim_drafts_asked(const struct sim_settings *s);

#endif
