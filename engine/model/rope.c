#include "engine/model/rope.h"
#include "kernels/math/wide.h"

#define TWO_PI 0x1.921fb54442d18p+2

/* Everything here is f64 and rounded to f32 once; floor and ceil are exact, and the rest is
 * kernels/math/, so that every machine makes the same table. */

/* The frequency index at which a position turns `rotations` times over the original context. */
static double yarn_correction_dim(const struct model_rope *rope, double rotations)
{
    return rope->dim * k_log64(rope->original_max / (rotations * TWO_PI)) / (2.0 * k_log64(rope->theta));
}

/* From `low` to `high` the frequencies go from kept to divided by the factor. */
static void yarn_range(const struct model_rope *rope, double *low, double *high)
{
    *low = yarn_correction_dim(rope, rope->beta_fast);
    *high = yarn_correction_dim(rope, rope->beta_slow);
    if (rope->truncate) {
        *low = __builtin_floor(*low);
        *high = __builtin_ceil(*high);
    }
    if (*low < 0.0)
        *low = 0.0;
    if (*high > rope->dim - 1.0)
        *high = rope->dim - 1.0;
    if (*low == *high)
        *high += 0.001;
}

static double yarn(double f, double i, double low, double high, double factor)
{
    double ramp = (i - low) / (high - low);
    if (ramp < 0.0)
        ramp = 0.0;
    if (ramp > 1.0)
        ramp = 1.0;
    return f / factor * ramp + f * (1.0 - ramp);
}

static double llama3(double f, const struct model_rope *rope)
{
    double rotations = rope->original_max * f / TWO_PI;
    if (rotations > rope->high_freq)
        return f;
    if (rotations < rope->low_freq)
        return f / rope->factor;
    double smooth = (rotations - rope->low_freq) / (rope->high_freq - rope->low_freq);
    return (1.0 - smooth) * f / rope->factor + smooth * f;
}

/* Returns the logarithm of theta. Dynamic NTK multiplies theta by a power of how much longer than its model a text is. */
static double log_of_theta(const struct model_rope *rope)
{
    const double log_theta = k_log64(rope->theta);
    if (rope->kind != MODEL_ROPE_DYNAMIC)
        return log_theta;
    const double longer = rope->factor * rope->longest / rope->original_max - (rope->factor - 1.0);
    return k_log64(rope->theta * k_exp64(rope->dim / (rope->dim - 2.0) * k_log64(longer)));
}

void model_inv_freq(const struct model_rope *rope, float *inv_freq)
{
    double log_theta = log_of_theta(rope), low = 0.0, high = 0.0;
    if (rope->kind == MODEL_ROPE_YARN)
        yarn_range(rope, &low, &high);
    for (uint32_t i = 0; i < rope->dim / 2; i++) {
        double f = k_exp64(-(2.0 * i / rope->dim) * log_theta);
        switch (rope->kind) {
        case MODEL_ROPE_NONE: f = 0.0; break; /* cosines of 1 and sines of 0 leave K unchanged */
        case MODEL_ROPE_DYNAMIC:
        case MODEL_ROPE_DEFAULT: break;
        case MODEL_ROPE_LINEAR: f = f / rope->factor; break;
        case MODEL_ROPE_LLAMA3: f = llama3(f, rope); break;
        case MODEL_ROPE_LONG: f = f / (double)(rope->is_long ? rope->long_factors : rope->short_factors)[i]; break;
        case MODEL_ROPE_YARN: f = yarn(f, i, low, high, rope->factor); break;
        }
        inv_freq[i] = (float)f;
    }
}

void model_rope_choose(struct model_rope *rope, uint32_t max_model_len)
{
    rope->is_long = rope->kind == MODEL_ROPE_LONG && max_model_len > rope->original_max;
    rope->longest = max_model_len > rope->original_max ? max_model_len : rope->original_max;
}
