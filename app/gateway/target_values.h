/* The values of one model's options where a program has a front end of its own for it: those of quire serve without
 * listener, keys and signals. Main thread.
 */
#ifndef QUIRE_APP_GATEWAY_TARGET_VALUES_H
#define QUIRE_APP_GATEWAY_TARGET_VALUES_H

#include "app/flags/engine_flags.h"
#include "app/serve/serve_flags.h"

/* Owns each part, and flags.engine_argv. */
struct target_values {
    struct http_settings *http;
    struct serve_settings *says;
    struct engine_options *options; /* refers to steps and placement */
    struct step_options *steps;
    struct engine_placement *placement;
    struct watching *watching;
    struct cache_flags *cache;
    struct companion_flags *companion;
    struct serve_flags flags; /* refers to those above */
};

/* The rows that a target may have. Those of its engine's process come last. */
#define TARGET_ROWS_MAX (SERVE_FLAGS_MAX + ENGINE_FLAGS_MAX + WATCHING_FLAGS_MAX)
struct target_rows {
    struct cli_option all[TARGET_ROWS_MAX + 1]; /* [n], ended by an empty row */
    bool given[ENGINE_FLAGS_MAX + WATCHING_FLAGS_MAX];
    size_t n_own, n;
};

/* The defaults. dir: a checkpoint; borrowed. NULL: out of memory. */
struct target_values *target_values_create(const char *dir);
void target_values_destroy(struct target_values *v); /* NULL is allowed */
/* The rows' targets are in v. */
void target_values_rows(struct target_values *v, struct target_rows *r);

#endif
