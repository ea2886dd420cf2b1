/* The parts of quire eval: each takes the arguments after its name and returns the exit status. Main thread. */
#ifndef QUIRE_TOOLS_EVAL_CMD_EVAL_H
#define QUIRE_TOOLS_EVAL_CMD_EVAL_H

int eval_command_ppl(int argc, char **argv);
int eval_command_kl(int argc, char **argv);
int eval_command_needle(int argc, char **argv);
int eval_command_compare(int argc, char **argv);

#endif
