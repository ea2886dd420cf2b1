#include "tools/bench/lib/draw.h"

#include "tools/bench/lib/random.h"

#include <math.h>

#define LN2 0.69314718055994530942
#define PI 3.14159265358979323846

/* x > 0. 2 atanh((m - 1) / (m + 1)) of the mantissa within [1/2, 1): its series is below 1e-17 after 18 terms. */
static double exact_log(double x)
{
    int exponent;
    double m = frexp(x, &exponent);
    double z = (m - 0.75) / (m + 0.75), power = z, sum = 0; /* log(m / 0.75) */
    for (int k = 1; k < 36; k += 2) {
        sum += power / k;
        power *= z * z;
    }
    return 2 * sum + (exponent - 2) * LN2 + 1.09861228866810969140; /* + log(3) */
}

static double exact_exp(double x)
{
    double whole = floor(x / LN2 + 0.5), r = x - whole * LN2, term = 1, sum = 1;
    if (whole > 1000 || whole < -1000)
        return whole > 0 ? INFINITY : 0;
    for (int k = 1; k < 18; k++) {
        term *= r / k;
        sum += term;
    }
    return ldexp(sum, (int)whole);
}

/* cos(2 pi v) of v in [0, 1), by its series within a quarter turn. */
static double exact_cos_turns(double v)
{
    double folded = v < 0.5 ? v : 1 - v, sign = folded < 0.25 ? 1 : -1;
    double x = 2 * PI * (folded < 0.25 ? folded : 0.5 - folded), term = 1, sum = 1;
    for (int k = 2; k < 26; k += 2) {
        term *= -x * x / (k * (k - 1));
        sum += term;
    }
    return sign * sum;
}

double bench_draw_normal(uint64_t *state)
{
    double u = 1 - bench_random_unit(state), v = bench_random_unit(state); /* u > 0 */
    return sqrt(fmax(0, -2 * exact_log(u))) * exact_cos_turns(v);
}

/* By Marsaglia and Tsang (2000); a shape below 1 uses shape + 1. */
double bench_draw_gamma(uint64_t *state, double shape)
{
    if (shape < 1)
        return bench_draw_gamma(state, shape + 1) * exact_exp(exact_log(1 - bench_random_unit(state)) / shape);
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = bench_draw_normal(state), v = 1 + c * x;
        if (v <= 0)
            continue;
        v = v * v * v;
        if (exact_log(1 - bench_random_unit(state)) < 0.5 * x * x + d - d * v + d * exact_log(v))
            return d * v;
    }
}

double bench_draw_lognormal(uint64_t *state, double sigma)
{
    return exact_exp(sigma * bench_draw_normal(state));
}
