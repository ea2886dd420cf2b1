/* The benchmarks of `quire bench`. Each takes the arguments after its name and returns the exit status, as in
 * app/command/commands.h. Main thread. */
#ifndef QUIRE_TOOLS_CMD_BENCH_H
#define QUIRE_TOOLS_CMD_BENCH_H

int bench_throughput(int argc, char **argv);
int bench_latency(int argc, char **argv);
int bench_serve(int argc, char **argv);
int bench_kernels(int argc, char **argv);
int bench_steps(int argc, char **argv);
int bench_compare(int argc, char **argv);
int bench_collectives(int argc, char **argv);

#endif
