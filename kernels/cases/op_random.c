#include "kernels/cases/op_data.h"

#include <math.h>

uint64_t op_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

float op_random_value(uint64_t *state, enum op_values values)
{
    uint64_t bits = op_random(state);
    float unit = (float)((int64_t)(bits >> 40) - (1 << 23)) * 0x1p-23f; /* [-1, 1) */
    int exponent = (int)(bits & 0xffff);
    if (values == VALUES_WIDE)
        return ldexpf(unit, exponent % 41 - 20);
    if (values == VALUES_TINY)
        return ldexpf(unit, exponent % 32 - 140);
    return unit;
}
