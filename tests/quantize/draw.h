/* Numbers that tests/quantize draws: the same as in the Python that made the expected hashes. */
#ifndef QUIRE_TESTS_QUANTIZE_DRAW_H
#define QUIRE_TESTS_QUANTIZE_DRAW_H

#include <stdint.h>

static inline float *draw(float *out, uint32_t n, uint32_t seed)
{
    for (uint32_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        out[i] = (float)((int32_t)(seed >> 8) - 8388608) / (float)(1 << 26);
        if ((seed >> 3) % 97 == 0)
            out[i] *= 8;
    }
    return out;
}

#endif
