/* The options of every command with an engine, under vLLM's names if the meaning is the same. Main thread. */
#ifndef QUIRE_APP_FLAGS_ENGINE_FLAGS_H
#define QUIRE_APP_FLAGS_ENGINE_FLAGS_H

#include "app/flags/schedule_flags.h"

#define ENGINE_FLAGS_MAX 79

/* Writes the option rows for `options` to out[0..return value), without a terminating row. options->steps and
 * options->placement are not NULL. --seed sets has_seed. All stay borrowed until cli_parse() has returned. */
size_t engine_flags(struct engine_options *options, struct cli_option out[ENGINE_FLAGS_MAX]);

#endif
