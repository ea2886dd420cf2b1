/* kernels/cpu/amx.h in plain C, by Intel's manual, so that kernels/cpu/gemm_amx.c can be tested bit for bit on machines
 * without AMX. It is included first (-include) and replaces the intrinsics. Operations that raise #UD or #GP in
 * hardware abort here. */
#ifndef QUIRE_TESTS_AMX_STUB_H
#define QUIRE_TESTS_AMX_STUB_H

#define QUIRE_AMX_STUB 1

#include "kernels/cpu/amx.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct {
    bool configured;
    struct amx_config config;
    unsigned char tiles[8][16][64];
} stub;

static inline void stub_must(bool condition)
{
    if (!condition)
        abort();
}

static inline void amx_configure(const struct amx_config *config)
{
    stub_must(config->palette == 1 && config->start_row == 0);
    for (int i = 0; i < 16; i++) {
        bool used = config->rows[i] > 0;
        stub_must(used == (config->row_bytes[i] > 0) && (!used || i < 8));
        stub_must(config->rows[i] <= 16 && config->row_bytes[i] <= 64);
    }
    for (size_t i = 0; i < sizeof config->reserved; i++)
        stub_must(config->reserved[i] == 0);
    stub.config = *config;
    stub.configured = true;
    memset(stub.tiles, 0, sizeof stub.tiles);
}

static inline void amx_release(void)
{
    stub.configured = false;
}

static inline void amx_zero(int tile)
{
    stub_must(stub.configured);
    memset(stub.tiles[tile], 0, sizeof stub.tiles[tile]);
}

static inline void amx_load(int tile, const void *base, uint64_t stride)
{
    amx_zero(tile);
    for (uint64_t i = 0; i < stub.config.rows[tile]; i++)
        memcpy(stub.tiles[tile][i], (const unsigned char *)base + i * stride, stub.config.row_bytes[tile]);
}

static inline void amx_store(int tile, void *base, uint64_t stride)
{
    stub_must(stub.configured);
    for (uint64_t i = 0; i < stub.config.rows[tile]; i++)
        memcpy((unsigned char *)base + i * stride, stub.tiles[tile][i], stub.config.row_bytes[tile]);
}

static inline float stub_flushed(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if ((bits & 0x7f800000u) == 0)
        bits &= 0x80000000u;
    memcpy(&x, &bits, 4);
    return x;
}

/* A result is tiny if 24 bits with unlimited exponent are below 2^-126. This is the behaviour of a Sapphire Rapids. */
static inline float stub_fma(float x, float y, float sum)
{
    float r = __builtin_fmaf(x, y, sum);
    bool tiny = __builtin_fabs((double)x * (double)y + (double)sum) < 0x1p-126 - 0x1p-151;
    return tiny ? __builtin_copysignf(0.0f, r) : r;
}

static inline float stub_bf16(const unsigned char *at)
{
    unsigned char wide[4] = {0, 0, at[0], at[1]};
    float x;
    memcpy(&x, wide, 4);
    return stub_flushed(x);
}

static inline void stub_must_fit(int c, int a, int b)
{
    const struct amx_config *config = &stub.config;
    stub_must(stub.configured && c != a && c != b && a != b);
    stub_must(config->row_bytes[a] % 4 == 0 && config->row_bytes[c] % 4 == 0);
    stub_must(config->rows[c] == config->rows[a] && config->row_bytes[c] == config->row_bytes[b]);
    stub_must(config->row_bytes[a] == config->rows[b] * 4);
}

static inline void amx_dpbssd(int c, int a, int b)
{
    const struct amx_config *config = &stub.config;
    stub_must_fit(c, a, b);
    for (int m = 0; m < config->rows[c]; m++) {
        for (int n = 0; n < config->row_bytes[c] / 4; n++) {
            uint32_t sum;
            memcpy(&sum, &stub.tiles[c][m][4 * n], 4);
            for (int k = 0; k < config->row_bytes[a]; k++)
                sum += (uint32_t)((int)(int8_t)stub.tiles[a][m][k] * (int8_t)stub.tiles[b][k / 4][4 * n + k % 4]);
            memcpy(&stub.tiles[c][m][4 * n], &sum, 4);
        }
    }
}

static inline void amx_dpbf16(int c, int a, int b)
{
    const struct amx_config *config = &stub.config;
    stub_must_fit(c, a, b);
    for (int m = 0; m < config->rows[c]; m++) {
        for (int n = 0; n < config->row_bytes[c] / 4; n++) {
            float even = 0, odd = 0, sum;
            for (int k = 0; k < config->rows[b]; k++) {
                const unsigned char *x = &stub.tiles[a][m][4 * k], *y = &stub.tiles[b][k][4 * n];
                even = stub_fma(stub_bf16(x), stub_bf16(y), even);
                odd = stub_fma(stub_bf16(x + 2), stub_bf16(y + 2), odd);
            }
            memcpy(&sum, &stub.tiles[c][m][4 * n], 4);
            sum = stub_flushed(stub_flushed(sum) + stub_flushed(even + odd));
            memcpy(&stub.tiles[c][m][4 * n], &sum, 4);
        }
    }
}

#endif
