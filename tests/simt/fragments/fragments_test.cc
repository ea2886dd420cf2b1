/* Compares the stubs of ldmatrix and mma with the PTX ISA, and with a GPU's recorded results. */
#include <math.h>
#include <stdlib.h>

#include "tests/simt/fragments/products.h"
#include "tests/simt/fragments/tensor_core.h"

static int n_bad;

static void check(bool is_right, const char *what, int lane, int i)
{
    if (!is_right && n_bad++ < 10)
        printf("FAIL %s: lane %d, element %d\n", what, lane, i);
}

/* PTX ISA, "Matrix multiply-accumulate operation using mma instruction with m16n8k16", 16-bit factors:
 * groupID = laneid >> 2, threadID_in_group = laneid % 4;
 * a: row = groupID for a_i with i in {0, 1, 4, 5}, otherwise groupID + 8;
 *    col = threadID_in_group * 2 + (i & 1) for i < 4, otherwise 8 more
 * b: row = threadID_in_group * 2 + (i & 1) for i < 2, otherwise 8 more; col = groupID
 * c: row = groupID for i < 2, otherwise groupID + 8; col = threadID_in_group * 2 + (i & 1)
 */
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

static float value_of(uint32_t words, int half)
{
    return f32_of_f16((uint16_t)(words >> 16 * half));
}

/* Checks that each d equals tensor_core.h's. Returns how many differ from fma in sequence. */
static int check_mma(const struct fragments *f, const char *what)
{
    const struct tensor_core hopper = TENSOR_CORE_HOPPER;
    float a[16][16], b[8][16], c[16][8]; /* b by columns */
    int row, col, n_others = 0;
    for (int lane = 0; lane < 32; lane++) {
        for (int i = 0; i < 8; i++) {
            place_a(lane, i, &row, &col);
            a[row][col] = value_of(f->a[lane][i / 2], i % 2);
        }
        for (int i = 0; i < 4; i++) {
            place_b(lane, i, &row, &col);
            b[col][row] = value_of(f->b[lane][i / 2], i % 2);
            place_c(lane, i, &row, &col);
            c[row][col] = f->c[lane][i];
        }
    }
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            place_c(lane, i, &row, &col);
            float want = tensor_core_sum(hopper, c[row][col], a[row], b[col]), chain = c[row][col];
            for (int k = 0; k < 16; k++)
                chain = fmaf(a[row][k], b[col][k], chain);
            check(!memcmp(&f->mma[lane][i], &want, 4), what, lane, i);
            n_others += chain != f->mma[lane][i];
        }
    return n_others;
}

/* PTX ISA, "ldmatrix": thread 8 i + r addresses row r of matrix i. From each matrix, each thread receives the elements
 * 2 (laneid % 4) and one more of row laneid / 4. With .trans the matrix is transposed first. */
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

/* Each kind of rounding must be visible in so many sums that it cannot be the rounding of fma in sequence. */
static void check_roundings(struct fragments *f)
{
    for (int kind = 0; kind < n_product_kinds; kind++) {
        int n_others = 0;
        for (uint32_t round = 0; round < 16; round++) {
            fill_products(f, kind, round);
            run(f);
            n_others += check_mma(f, product_kinds[kind]);
        }
        check(n_others >= 200, product_kinds[kind], n_others, -1);
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

/* Returns whether the file exists. */
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
