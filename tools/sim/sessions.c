#include "tools/sim/sessions.h"

#include "tools/bench/lib/draw.h"
#include "tools/bench/lib/random.h"

#include <math.h>

/* Standard deviation of the logarithm of a tool's result. */
#define RESULT_SIGMA 1.0

static const struct {
    double share, from_s, to_s;
} gaps[] = {{0.865, 0, 1}, {0.951 - 0.865, 1, 10}, {1 - 0.951, 10, 300}};
#define N_GAPS (sizeof gaps / sizeof gaps[0])

double sim_session_gap(uint64_t *state)
{
    double at = bench_random_unit(state);
    size_t i = 0;
    while (i + 1 < N_GAPS && at >= gaps[i].share)
        at -= gaps[i++].share;
    double part = at / gaps[i].share;
    return gaps[i].from_s + (gaps[i].to_s - gaps[i].from_s) * (part < 1 ? part : 1);
}

/* Result k is in the prompts of turns k + 1 to n - 1. */
void sim_session_grow(struct sim_request *turns, uint32_t n, uint64_t *state)
{
    double left = 0, weights = 0;
    uint64_t again = *state;
    for (uint32_t k = 0; k < n; k++) {
        left += (double)SIM_SESSION_RATIO * turns[k].n_output - turns[0].n_prompt;
        left -= (double)(n - 1 - k) * turns[k].n_output;
        weights += (n - 1 - k) * bench_draw_lognormal(&again, RESULT_SIGMA);
    }
    double scale = left > 0 && weights > 0 ? left / weights : 0;
    for (uint32_t k = 0; k + 1 < n; k++) {
        double result = floor(scale * bench_draw_lognormal(state, RESULT_SIGMA) + 0.5);
        result = result < 1 ? 1 : result > BENCH_MAX_LENGTH ? BENCH_MAX_LENGTH : result;
        double n_prompt = (double)turns[k].n_prompt + turns[k].n_output + result;
        turns[k + 1].n_prompt = n_prompt > BENCH_MAX_LENGTH ? BENCH_MAX_LENGTH : (uint32_t)n_prompt;
    }
}
