/* ldmatrix, ldmatrix.trans and mma with inputs whose results are exact in f32, so that they do not depend on the order
 * of a sum: the comparison shows where each element goes. The emulator (fragments_test.cc) and a GPU
 * (fragments_record.cc), which writes fragments.txt, run the same inputs. */
#ifndef QUIRE_TESTS_SIMT_FRAGMENTS_FRAGMENTS_H
#define QUIRE_TESTS_SIMT_FRAGMENTS_FRAGMENTS_H

#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct fragments {
    /* in: the input of lane l */
    uint16_t rows[32][8]; /* the row whose address it passes; row l % 8 of matrix l / 8 */
    uint32_t a[32][4], b[32][2];
    float c[32][4];
    /* out: the output of lane l */
    uint32_t ldmatrix[32][4], ldmatrix_trans[32][4];
    float mma[32][4];
};

cudaError_t run_fragments(struct fragments *host);

/* A product with a zero factor must not change the sum, however large the other factor is: attention multiplies p = 0
 * by V of masked positions, and its bits must not depend on their content. */
struct zeros {
    uint32_t a[32][4], b[32][2]; /* every odd column of A is zero, every odd row of B large */
    float c[32][4];              /* far smaller, with all bits of an f32 */
    float large[32][4], zero[32][4], kept[32][4]; /* out: with B, with zeros in its odd rows, with zeros in all of A */
};

cudaError_t run_zeros(struct zeros *host);

static inline void fill_zeros(struct zeros *z)
{
    uint32_t random = 3, words[10];
    for (int lane = 0; lane < 32; lane++) {
        for (int i = 0; i < 10; i++)
            words[i] = random = random * 1664525u + 1013904223u;
        for (int i = 0; i < 4; i++)
            z->a[lane][i] = (words[i] >> 16 & 0x03ff) | 0x2c00; /* 2^-4 to 2^-3 */
        for (int i = 0; i < 2; i++)
            z->b[lane][i] = (words[4 + i] & 0x80000000u) | 0x7bff0000u | (words[4 + i] >> 8 & 0x83ff) |
                            0x0400; /* 65504; 2^-14 */
        for (int i = 0; i < 4; i++) {
            uint32_t bits = (words[6 + i] & 0x80000000u) | (words[6 + i] >> 4 & 0x007fffffu) | 0x37000000u; /* 2^-17 */
            memcpy(&z->c[lane][i], &bits, 4);
        }
    }
}

/* Counts sums that a zero has changed. */
static inline int count_moved(const struct zeros *z)
{
    int n = 0;
    for (int i = 0; i < 128; i++)
        n += memcmp(&z->large[i / 4][i % 4], &z->zero[i / 4][i % 4], 4) != 0 ||
             memcmp(&z->kept[i / 4][i % 4], &z->c[i / 4][i % 4], 4) != 0;
    return n;
}

/* Converts an integer of magnitude at most 8 to f16. */
static inline uint16_t f16_of_small(int x)
{
    int size = x < 0 ? -x : x, exponent = size >= 8 ? 3 : size >= 4 ? 2 : size >= 2 ? 1 : 0;
    if (!size)
        return 0;
    return (uint16_t)((x < 0 ? 0x8000 : 0) | (15 + exponent) << 10 | (size << 10 >> exponent & 0x3ff));
}

/* Every row element has a different value. Factors are integers in [-8, 8], sums integers below 2^11. */
static inline void fill_fragments(struct fragments *f)
{
    uint32_t random = 1;
    memset(f, 0, sizeof *f);
    for (int lane = 0; lane < 32; lane++) {
        uint16_t factors[12];
        for (int i = 0; i < 8; i++)
            f->rows[lane][i] = (uint16_t)(lane * 8 + i);
        for (int i = 0; i < 12; i++) {
            random = random * 1664525u + 1013904223u;
            factors[i] = f16_of_small((int)(random >> 16) % 17 - 8);
        }
        for (int i = 0; i < 4; i++)
            f->a[lane][i] = factors[2 * i] | (uint32_t)factors[2 * i + 1] << 16;
        for (int i = 0; i < 2; i++)
            f->b[lane][i] = factors[8 + 2 * i] | (uint32_t)factors[9 + 2 * i] << 16;
        for (int i = 0; i < 4; i++)
            f->c[lane][i] = (float)(lane * 4 + i - 60);
    }
}

/* Writes one line per lane: its number and 12 words, of ldmatrix, of ldmatrix.trans, and of mma's sums (the bits of
 * f32). */
static inline void write_fragments(const struct fragments *f, FILE *file)
{
    for (int lane = 0; lane < 32; lane++) {
        uint32_t words[12];
        memcpy(words, f->ldmatrix[lane], 16);
        memcpy(words + 4, f->ldmatrix_trans[lane], 16);
        memcpy(words + 8, f->mma[lane], 16);
        fprintf(file, "%d", lane);
        for (int i = 0; i < 12; i++)
            fprintf(file, " %08x", (unsigned)words[i]);
        fprintf(file, "\n");
    }
}

#endif
