/* kernels/cpu/amx.h in plain C, by Intel's manual, so that kernels/cpu/gemm_amx.c can be tested bit for bit on machines
 * without AMX. It is included first (-include) and replaces the intrinsics. Operations that raise #UD or #GP in
 * hardware abort here. */
#ifndef QUIRE_TESTS_AMX_TWIN_H
#define QUIRE_TESTS_AMX_TWIN_H

#define QUIRE_AMX_TWIN 1

#include "kernels/cpu/amx.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct {
    bool configured;
    struct amx_config config;
    unsigned char tiles[8][16][64];
} twin;

static inline void twin_must(bool condition)
{
    if (!condition)
        abort();
}

static inline void amx_configure(const struct amx_config *config)
{
    twin_must(config->palette == 1 && config->start_row == 0);
    for (int i = 0; i < 16; i++) {
        bool used = config->rows[i] > 0;
        twin_must(used == (config->row_bytes[i] > 0) && (!used || i < 8));
        twin_must(config->rows[i] <= 16 && config->row_bytes[i] <= 64);
    }
    for (size_t i = 0; i < sizeof config->reserved; i++)
        twin_must(config->reserved[i] == 0);
    twin.config = *config;
    twin.configured = true;
    memset(twin.tiles, 0, sizeof twin.tiles);
}

static inline void amx_release(void)
{
    twin.configured = false;
}

static inline void amx_zero(int tile)
{
    twin_must(twin.configured);
    memset(twin.tiles[tile], 0, sizeof twin.tiles[tile]);
}

static inline void amx_load(int tile, const void *base, uint64_t stride)
{
    amx_zero(tile);
    for (uint64_t i = 0; i < twin.config.rows[tile]; i++)
        memcpy(twin.tiles[tile][i], (const unsigned char *)base + i * stride, twin.config.row_bytes[tile]);
}

static inline void amx_store(int tile, void *base, uint64_t stride)
{
    twin_must(twin.configured);
    for (uint64_t i = 0; i < twin.config.rows[tile]; i++)
        memcpy((unsigned char *)base + i * stride, twin.tiles[tile][i], twin.config.row_bytes[tile]);
}

static inline float twin_flushed(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if ((bits & 0x7f800000u) == 0)
        bits &= 0x80000000u;
    memcpy(&x, &bits, 4);
    return x;
}

/* A result is tiny if 24 bits with unlimited exponent are below 2^-126. This is the behaviour of a Sapphire Rapids. */
static inline float twin_fma(float x, float y, float sum)
{
    float r = __builtin_fmaf(x, y, sum);
    bool tiny = __builtin_fabs((double)x * (double)y + (double)sum) < 0x1p-126 - 0x1p-151;
    return tiny ? __builtin_copysignf(0.0f, r) : r;
}

static inline float twin_bf16(const unsigned char *at)
{
    unsigned char wide[4] = {0, 0, at[0], at[1]};
    float x;
    memcpy(&x, wide, 4);
    return twin_flushed(x);
}

static inline void twin_must_fit(int c, int a, int b)
{
    const struct amx_config *config = &twin.config;
    twin_must(twin.configured && c != a && c != b && a != b);
    twin_must(config->row_bytes[a] % 4 == 0 && config->row_bytes[c] % 4 == 0);
    twin_must(config->rows[c] == config->rows[a] && config->row_bytes[c] == config->row_bytes[b]);
    twin_must(config->row_bytes[a] == config->rows[b] * 4);
}

static inline void amx_dpbssd(int c, int a, int b)
{
    const struct amx_config *config = &twin.config;
    twin_must_fit(c, a, b);
    for (int m = 0; m < config->rows[c]; m++) {
        for (int n = 0; n < config->row_bytes[c] / 4; n++) {
            uint32_t sum;
            memcpy(&sum, &twin.tiles[c][m][4 * n], 4);
            for (int k = 0; k < config->row_bytes[a]; k++)
                sum += (uint32_t)((int)(int8_t)twin.tiles[a][m][k] * (int8_t)twin.tiles[b][k / 4][4 * n + k % 4]);
            memcpy(&twin.tiles[c][m][4 * n], &sum, 4);
        }
    }
}

static inline void amx_dpbf16(int c, int a, int b)
{
    const struct amx_config *config = &twin.config;
    twin_must_fit(c, a, b);
    for (int m = 0; m < config->rows[c]; m++) {
        for (int n = 0; n < config->row_bytes[c] / 4; n++) {
            float even = 0, odd = 0, sum;
            for (int k = 0; k < config->rows[b]; k++) {
                const unsigned char *x = &twin.tiles[a][m][4 * k], *y = &twin.tiles[b][k][4 * n];
                even = twin_fma(twin_bf16(x), twin_bf16(y), even);
                odd = twin_fma(twin_bf16(x + 2), twin_bf16(y + 2), odd);
            }
            memcpy(&sum, &twin.tiles[c][m][4 * n], 4);
            sum = twin_flushed(twin_flushed(sum) + twin_flushed(even + odd));
            memcpy(&twin.tiles[c][m][4 * n], &sum, 4);
        }
    }
}

#endif
