/* The subcommands. Each takes the arguments after its name and returns the exit status: 0 done, 1 failed (one line on
 * standard error says why), 2 the command line was wrong. */
#ifndef QUIRE_TOOLS_COMMANDS_H
#define QUIRE_TOOLS_COMMANDS_H

#include <stdbool.h>

struct engine_options;

int command_serve(int argc, char **argv);
int command_engine(int argc, char **argv);
int command_generate(int argc, char **argv);
int command_plan(int argc, char **argv);
int command_inspect(int argc, char **argv);
int command_doctor(int argc, char **argv);
int command_sim(int argc, char **argv);
int command_replay(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_pull(int argc, char **argv);
int command_cache(int argc, char **argv);
int command_rank(void); /* what rank 0 of a tensor-parallel engine starts; main() knows it without a name */
/* Of a command with an engine: is this process one of its other ranks, which somebody else has started? Then it is one until it ends,
 * and *code is its status; also where that cannot be told. */
bool command_as_rank(const char *model, const struct engine_options *options, int *code);
int command_version(int argc, char **argv);

#endif
