/* Draws from distributions, the same on every machine. They use only + - * / and square roots, because the logarithms
 * of two C libraries may differ in their last bit. No global state; any thread on its own state
 * (tools/bench/lib/random.h). */
#ifndef QUIRE_TOOLS_BENCH_DRAW_H
#define QUIRE_TOOLS_BENCH_DRAW_H

#include <stdint.h>

double bench_draw_normal(uint64_t *state);
/* Scale 1, mean `shape` > 0. */
double bench_draw_gamma(uint64_t *state, double shape);
/* Median 1: e to the power of sigma times a normal draw. */
double bench_draw_lognormal(uint64_t *state, double sigma);

#endif
