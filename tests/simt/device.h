/* A kernel of device.cu for each kind of operation. device_test.cc has the expected results. */
#ifndef QUIRE_TESTS_SIMT_DEVICE_H
#define QUIRE_TESTS_SIMT_DEVICE_H

#include <stdint.h>

struct shuffles { /* one warp */
    uint32_t width, operand;
    uint64_t index[32], up[32], down[32], bfly[32];
    float index_f32[32];
    double bfly_f64[32];
};
void run_shuffles(struct shuffles *s);

struct votes { /* one warp; lanes of mask take part */
    uint32_t mask, value[32];
    uint32_t ballot[32], add[32], min[32], max[32], any[32], all[32];
    int32_t signed_min[32], signed_max[32];
};
void run_votes(struct votes *v);

struct indices { /* for each thread of grid (3, 2, 2) and block (5, 7, 3) */
    uint32_t thread[3], block[3], n_threads[3], n_blocks[3], count, any, all;
};
enum { n_indices = 12 * 105 };
void run_indices(struct indices *out);

struct atomics { /* for 40 blocks of 64 threads, each with its number i */
    uint32_t add, or_bits[80], max, min, xor_all, in_shared;
    int32_t signed_max, signed_min, signed_sub;
    uint64_t add64, max64, exchanged_sum;
    float add_f32;
    uint32_t by_cas, last, wrapped, n_wraps;
};
void run_atomics(struct atomics *a);

#endif
