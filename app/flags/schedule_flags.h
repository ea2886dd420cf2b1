/* The scheduling options, which engine_flags() includes and `quire sim` shares. Main thread. */
#ifndef QUIRE_APP_FLAGS_SCHEDULE_FLAGS_H
#define QUIRE_APP_FLAGS_SCHEDULE_FLAGS_H

#include "app/command/cli.h"
#include "engine/options.h"

#define SCHEDULE_FLAGS_MAX 28

/* Writes the option rows for `options` to out[0..return value), without a terminating row.
 * options->steps is not NULL. All stay borrowed until
 * cli_parse() has returned. */
size_t schedule_flags(struct engine_options *options, struct cli_option out[SCHEDULE_FLAGS_MAX]);

/* Parses --speculative-config into a struct speculative_config. The name of a draft model in the Hugging Face cache
 * becomes its directory. */
int speculative_flag_parse(const char *text, void *target, struct quire_error *err);

#endif
