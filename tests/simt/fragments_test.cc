/* Are the twins of ldmatrix and mma what the PTX ISA says, and what a GPU did? */
#include <math.h>
#include <stdlib.h>

#include "tests/simt/fragments.h"

static int n_bad;

static void check(bool is_right, const char *what, int lane, int i)
{
    if (!is_right && n_bad++ < 10)
        printf("FAIL %s: lane %d, element %d\n", what, lane, i);
}

/* PTX ISA, "Matrix multiply-accumulate operation using mma instruction with m16n8k16", 16-bit factors:
 * groupID = laneid >> 2, threadID_in_group = laneid % 4;
 * a: row = groupID for a_i with i in {0, 1, 4, 5}, else groupID + 8;
 *    col = threadID_in_group * 2 + (i & 1) for i < 4, and 8 more else
 * b: row = threadID_in_group * 2 + (i & 1) for i < 2, and 8 more else; col = groupID
 * c: row = groupID for i < 2, else groupID + 8; col = threadID_in_group * 2 + (i & 1) */
static void place_a(int lane, int i, int *row, int *col)
{
    *row = (0 <= i && i < 2) || (4 <= i && i < 6) ? lane >> 2 : (lane >> 2) + 8;
    *col = lane % 4 * 2 + (i & 1) + (i >= 4 ? 8 : 0);
}

static void place_b(int lane, int i, int *row, int *col)
{
    *row = lane % 4 * 2 + (i & 1) + (i >= 2 ? 8 : 0);
    *col = lane >> 2;
}

static void place_c(int lane, int i, int *row, int *col)
{
    *row = i < 2 ? lane >> 2 : (lane >> 2) + 8;
    *col = lane % 4 * 2 + (i & 1);
}

/* The value of f16 bits, finite. */
static double value_of(uint32_t words, int half)
{
    int bits = (int)(words >> 16 * half & 0xffff), exponent = bits >> 10 & 31, fraction = bits & 1023;
    double size = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return bits & 0x8000 ? -size : size;
}

/* d = c, then d = fma(a_k, b_k, d) for k = 0 to 15 (docs/numerics.md §17). */
static void check_mma(const struct fragments *f, const char *what)
{
    double a[16][16], b[16][8];
    float d[16][8];
    int row, col;
    for (int lane = 0; lane < 32; lane++) {
        for (int i = 0; i < 8; i++) {
            place_a(lane, i, &row, &col);
            a[row][col] = value_of(f->a[lane][i / 2], i % 2);
        }
        for (int i = 0; i < 4; i++) {
            place_b(lane, i, &row, &col);
            b[row][col] = value_of(f->b[lane][i / 2], i % 2);
            place_c(lane, i, &row, &col);
            d[row][col] = f->c[lane][i];
        }
    }
    for (row = 0; row < 16; row++)
        for (col = 0; col < 8; col++)
            for (int k = 0; k < 16; k++)
                d[row][col] = fmaf((float)a[row][k], (float)b[k][col], d[row][col]);
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            place_c(lane, i, &row, &col);
            check(!memcmp(&f->mma[lane][i], &d[row][col], 4), what, lane, i);
        }
}

/* PTX ISA, "ldmatrix": thread 8 i + r addresses row r of matrix i; each thread receives of each matrix the elements
 * 2 (laneid % 4) and one more of row laneid / 4; with .trans the matrix is transposed first. */
static void check_ldmatrix(const struct fragments *f)
{
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++)
            for (int half = 0; half < 2; half++) {
                int row = lane / 4, col = 2 * (lane % 4) + half;
                uint16_t plain = (uint16_t)(f->ldmatrix[lane][i] >> 16 * half);
                uint16_t trans = (uint16_t)(f->ldmatrix_trans[lane][i] >> 16 * half);
                check(plain == f->rows[8 * i + row][col], "ldmatrix", lane, i);
                check(trans == f->rows[8 * i + col][row], "ldmatrix.trans", lane, i);
            }
}

static void run(struct fragments *f)
{
    cudaError_t error = run_fragments(f);
    if (error != cudaSuccess) {
        printf("FAIL: %s\n", cudaGetErrorString(error));
        exit(1);
    }
}

/* Factors and sums of every size, denormal ones too, so that each rounding and the order show. */
static void check_roundings(struct fragments *f)
{
    uint32_t random = 7;
    for (int round = 0; round < 50; round++) {
        uint32_t *words[] = {&f->a[0][0], &f->b[0][0]};
        for (int m = 0; m < 2; m++)
            for (int i = 0; i < (m ? 64 : 128); i++) {
                random = random * 1664525u + 1013904223u;
                words[m][i] = random & (round % 2 ? 0xbbffbbff : 0x83ff83ff); /* below 2; denormal */
            }
        for (int i = 0; i < 128; i++) {
            random = random * 1664525u + 1013904223u;
            f->c[i / 4][i % 4] = ldexpf((float)(int)random, round % 2 ? -40 : -60 - 2 * round);
        }
        for (int lane = 0; lane < 4; lane++) /* row 0: what is a denormal in c stays one */
            f->a[lane][0] = f->a[lane][2] = 0;
        run(f);
        check_mma(f, "mma, roundings");
    }
}

static void check_zeros()
{
    struct zeros z;
    fill_zeros(&z);
    if (run_zeros(&z) != cudaSuccess) {
        printf("FAIL: zeros do not run\n");
        exit(1);
    }
    check(count_moved(&z) == 0, "mma, zeros", 0, 0);
    check(memcmp(z.zero, z.c, sizeof z.c) != 0, "mma, zeros: nothing was added", 0, 0);
}

/* Yields whether there was a file. */
static bool check_recorded(const struct fragments *f)
{
    FILE *recorded = fopen(QUIRE_SOURCE_DIR "/tests/simt/fragments.txt", "r"), *own = tmpfile();
    if (!recorded || !own)
        return false;
    write_fragments(f, own);
    rewind(own);
    char expected[256], got[256];
    int lane = 0;
    while (fgets(expected, sizeof expected, recorded)) {
        if (expected[0] == '#') {
            printf("fragments of%s", expected + 1);
            continue;
        }
        check(fgets(got, sizeof got, own) && !strcmp(got, expected), "fragments.txt", lane, 0);
        lane++;
    }
    check(lane == 32, "fragments.txt: 32 lines", lane, 0);
    fclose(recorded);
    fclose(own);
    return true;
}

int main()
{
    struct fragments f;
    fill_fragments(&f);
    run(&f);
    check_ldmatrix(&f);
    check_mma(&f, "mma");
    bool has_recorded = check_recorded(&f);
    check_roundings(&f);
    check_zeros();
    printf("%s ldmatrix, ldmatrix.trans and mma against the PTX ISA's formulas\n", n_bad ? "FAIL" : "ok");
    printf(has_recorded ? "compared with a GPU's fragments\n"
                        : "no fragments recorded on hardware yet: tests/simt/fragments.txt is missing\n");
    return n_bad != 0;
}
