/* The options of every command with an engine, under vLLM's names if the meaning is the same. Main thread. */
#ifndef QUIRE_TOOLS_ENGINE_FLAGS_H
#define QUIRE_TOOLS_ENGINE_FLAGS_H

#include "engine/options.h"
#include "tools/cli/cli.h"

#define SCHEDULE_FLAGS_MAX 24
#define ENGINE_FLAGS_MAX 73

/* Writes the option rows for `options` to out[0..return value), without a terminating row. --seed sets has_seed. Both
 * stay borrowed until cli_parse() has returned. */
size_t engine_flags(struct engine_options *options, struct cli_option out[ENGINE_FLAGS_MAX]);

/* The scheduling options among them, which `quire sim` shares. engine_flags() includes them. */
size_t schedule_flags(struct engine_options *options, struct cli_option out[SCHEDULE_FLAGS_MAX]);

/* Parses --speculative-config into a struct speculative_config. The name of a draft model in the Hugging Face cache
 * becomes its directory. */
int speculative_flag_parse(const char *text, void *target, struct quire_error *err);

#endif
