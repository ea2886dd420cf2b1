/* The subcommands. Each takes the arguments after its name and returns the exit status: 0: done; 1: failed, with a
 * message on standard error; 2: the command line was wrong. Main thread. */
#ifndef QUIRE_APP_COMMAND_COMMANDS_H
#define QUIRE_APP_COMMAND_COMMANDS_H

#include <stdbool.h>

struct engine_options;

int command_serve(int argc, char **argv);
int command_serve_models(int argc, char **argv); /* quire serve --models */
int command_engine(int argc, char **argv);
int command_generate(int argc, char **argv);
int command_plan(int argc, char **argv);
int command_inspect(int argc, char **argv);
int command_quantize(int argc, char **argv);
int command_doctor(int argc, char **argv);
int command_sim(int argc, char **argv);
int command_replay(int argc, char **argv);
int command_eval(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_run(int argc, char **argv); /* a chat, with the download of a missing model */
int command_pull(int argc, char **argv);
int command_list(int argc, char **argv);
int command_show(int argc, char **argv);
int command_rm(int argc, char **argv);
int command_ps(int argc, char **argv);
int command_cache(int argc, char **argv);
int command_check(int argc, char **argv);
int command_route(int argc, char **argv);
int command_ab(int argc, char **argv);
int command_keys(int argc, char **argv);
int command_batch(int argc, char **argv);
int command_map_reduce(int argc, char **argv);
int command_rank(void); /* rank 0 of an engine with several ranks starts it */
/* For a command with an engine: returns whether a launcher started this process as another rank. It then runs as a rank
 * until its end, and *code is its status. Also returns true if the environment is invalid. */
bool command_as_rank(const char *model, const struct engine_options *options, int *code);
int command_version(int argc, char **argv);

#endif
