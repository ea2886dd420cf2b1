/* The options that every command with an engine shares, by vLLM's names where the meaning is the same. */
#ifndef QUIRE_TOOLS_ENGINE_FLAGS_H
#define QUIRE_TOOLS_ENGINE_FLAGS_H

#include "engine/engine.h"
#include "engine/options.h"
#include "tools/cli/cli.h"

#define SCHEDULE_FLAGS_MAX 24
#define ENGINE_FLAGS_MAX 73

/* Writes the option rows for `options` to out[0..return value), without a terminating row. has_seed is set
 * when --seed is given. Both stay borrowed until cli_parse() has returned. */
size_t engine_flags(struct engine_options *options, struct cli_option out[ENGINE_FLAGS_MAX]);

/* Those of them that say how requests are scheduled: what `quire sim` shares with the engines. engine_flags() has them. */
size_t schedule_flags(struct engine_options *options, struct cli_option out[SCHEDULE_FLAGS_MAX]);

/* --speculative-config into a struct speculative_config; a draft model's name in the Hugging Face cache becomes its
 * directory. */
int speculative_flag_parse(const char *text, void *target, struct quire_error *err);

#endif
