/* Factors and sums for mma whose rounding distinguishes one tensor core from another, and both from other arithmetic.
 * The emulator (fragments_test.cc) and a GPU (probe.cu) use the same ones. */
#ifndef QUIRE_TESTS_SIMT_FRAGMENTS_PRODUCTS_H
#define QUIRE_TESTS_SIMT_FRAGMENTS_PRODUCTS_H

#include <math.h>

#include "tests/simt/fragments/fragments.h"

enum {
    PRODUCTS_NEAR,
    PRODUCTS_WIDE,
    PRODUCTS_DENORMAL,
    PRODUCTS_CANCEL,
    PRODUCTS_FEW,
    PRODUCTS_SPECIAL,
    n_product_kinds
};

static const char *const product_kinds[] = {
    "factors of 2^-4 to 2^4", "factors of every size",  "denormal factors",
    "sums that cancel",       "three in four are zero", "infinities and NaNs",
};

static inline float f32_of_f16(uint16_t h)
{
    int exponent = h >> 10 & 31, fraction = h & 1023;
    float size = exponent == 31
                     ? (fraction ? NAN : INFINITY)
                     : ldexpf((float)(exponent ? 1024 + fraction : fraction), exponent ? exponent - 25 : -24);
    return h & 0x8000 ? -size : size;
}

static inline uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8; /* the low bits are not random */
}

static inline uint16_t random_factor(int kind, uint32_t *random)
{
    uint32_t bits = next_random(random), sign_and_fraction = bits & 0x83ff, what = next_random(random) % 64;
    uint32_t exponent = 1 + next_random(random) % 30;
    if (kind == PRODUCTS_SPECIAL && what < 2)
        return (uint16_t)((sign_and_fraction & 0x8000) | 0x7c00 | (what ? 0 : sign_and_fraction & 1));
    if (kind == PRODUCTS_FEW && what < 32)
        return (uint16_t)(sign_and_fraction & 0x8000);
    if (kind == PRODUCTS_DENORMAL)
        exponent = what < 32 ? 0 : exponent;
    else if (kind != PRODUCTS_WIDE)
        exponent = 11 + exponent % 8;
    return (uint16_t)(sign_and_fraction | exponent << 10);
}

/* Returns the result of a chain of sums in row `row` of A and column `col` of B, from the elements in lanes. */
static inline float sum_of_products(const struct fragments *f, int row, int col)
{
    float sum = 0;
    for (int k = 0; k < 16; k++) {
        uint32_t a = f->a[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2], b = f->b[col * 4 + k % 8 / 2][k / 8];
        sum += f32_of_f16((uint16_t)(a >> 16 * (k % 2))) * f32_of_f16((uint16_t)(b >> 16 * (k % 2)));
    }
    return sum;
}

/* c: from 2^30 times smaller than the products to 2^30 times larger, and denormal; minus the sum of the products, plus
 * a little. */
static inline void fill_products(struct fragments *f, int kind, uint32_t round)
{
    uint32_t random = round * 8191u + (uint32_t)kind * 77u + 1;
    memset(f, 0, sizeof *f);
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 6; i++) {
            uint32_t low = random_factor(kind, &random), word = low | (uint32_t)random_factor(kind, &random) << 16;
            *(i < 4 ? &f->a[lane][i] : &f->b[lane][i - 4]) = word;
        }
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            float sum = sum_of_products(f, lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2);
            int size = (int)(next_random(&random) % 60) - 30;
            float part = ldexpf((float)(int)next_random(&random) - 0x800000, size - 24);
            uint32_t denormal = next_random(&random) & 0x7fffff;
            f->c[lane][i] = kind == PRODUCTS_CANCEL ? ldexpf(part, -20) - sum : part;
            if (round % 8 == 7 && kind != PRODUCTS_CANCEL)
                memcpy(&f->c[lane][i], &denormal, 4);
        }
}

#endif
