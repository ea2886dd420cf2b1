#include "kernels/cases/op_table.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
#define GEMM(dt, t, n, k, ...) \
    {.op = K_OP_GEMM, .dtype = dt, .n_tokens = t, .n_rows = n, .n_cols = k, __VA_ARGS__}
/* Gate and up of an MLP: n rows of each. */
#define GATED(dt, t, n, k, ...) \
    {.op = K_OP_GEMM_GATED, .dtype = dt, .n_tokens = t, .n_rows = 2 * (n), .n_cols = k, __VA_ARGS__}
#define GATED_MMA(t, n, k, ...) GATED(K_BF16, t, n, k, .form = K_FORM_MMA, __VA_ARGS__)
#define GATED_MMA_F16(t, n, k, ...) GATED(K_F16, t, n, k, .form = K_FORM_MMA, __VA_ARGS__)
#define TILE(t, n, k, ...) GEMM(K_BF16, t, n, k, .form = K_FORM_TILE, __VA_ARGS__)
#define TILE_F16(t, n, k, ...) GEMM(K_F16, t, n, k, .form = K_FORM_TILE, __VA_ARGS__)
#define TILE_BF16(t, n, k, ...) GEMM(K_BF16, t, n, k, .form = K_FORM_TILE_BF16, __VA_ARGS__)
#define MMA(t, n, k, ...) GEMM(K_BF16, t, n, k, .form = K_FORM_MMA, __VA_ARGS__)
#define MMA_F16(t, n, k, ...) GEMM(K_F16, t, n, k, .form = K_FORM_MMA, __VA_ARGS__)
/* The segments with which an engine runs o and down: sums over units of u columns. */
#define MMA_SERVED(n, k, u) \
    MMA(1, n, k, .unit = u), MMA(16, n, k, .unit = u), MMA(64, n, k, .unit = u), MMA(512, n, k, .unit = u), \
        MMA(2048, n, k, .unit = u)
#define GATED_BATCHES(n, k) GATED_MMA(1, n, k), GATED_MMA(16, n, k), GATED_MMA(64, n, k), GATED_MMA(2048, n, k)
#define MMA_BATCHES(n, k) MMA(1, n, k), MMA(8, n, k), MMA(16, n, k), MMA(512, n, k)
/* Experts: n rows of each, or n of gate and of up, e experts of which a token uses u. */
#define MOE(dt, t, n, k, e, u, ...) \
    {.op = K_OP_MOE_GEMM, .dtype = dt, .n_tokens = t, .n_rows = n, .n_cols = k, .moe = &(const struct op_moe){.n_experts = e, .n_used = u, __VA_ARGS__}
#define MOE_GATED(dt, t, n, k, e, u, ...) \
    {.op = K_OP_MOE_GEMM_GATED, .dtype = dt, .n_tokens = t, .n_rows = 2 * (n), .n_cols = k, .moe = &(const struct op_moe){.n_experts = e, .n_used = u}, __VA_ARGS__}
#define ROUTE(t, k, e, u, ...) \
    {.op = K_OP_MOE_ROUTE, .n_tokens = t, .n_cols = k, .moe = &(const struct op_moe){.n_experts = e, .n_used = u, __VA_ARGS__}
#define COMBINE(t, n, u, ...) {.op = K_OP_MOE_COMBINE, .n_tokens = t, .n_cols = n, .moe = &(const struct op_moe){.n_used = u}, __VA_ARGS__}
#define LAYER(t, n, ...) {.op = K_OP_LAYERNORM, .n_tokens = t, .n_cols = n, __VA_ARGS__}
#define POOL(how, n, ...) {.op = K_OP_POOL, .pooling = how, .n_cols = n, __VA_ARGS__}
#define NORM(t, n, ...) {.op = K_OP_RMSNORM, .n_tokens = t, .n_cols = n, __VA_ARGS__}
#define ROPE(dt, q, kv, d, bt, ...)                                                            \
    {.op = K_OP_ROPE_KV, .dtype = dt, .n_q_heads = q, .n_kv_heads = kv, .head_dim = d,           \
     .block_tokens = bt, __VA_ARGS__}
#define ATTN(dt, q, kv, d, bt, ...)                                                            \
    {.op = K_OP_ATTENTION, .dtype = dt, .n_q_heads = q, .n_kv_heads = kv, .head_dim = d,         \
     .block_tokens = bt, __VA_ARGS__}
#define ATTN_MMA(q, kv, d, bt, ...) ATTN(K_F16, q, kv, d, bt, .form = K_FORM_MMA, __VA_ARGS__)
#define COPY(dt, kv, d, bt, t, n)                                                              \
    {.op = K_OP_KV_COPY, .dtype = dt, .n_kv_heads = kv, .head_dim = d, .block_tokens = bt,       \
     .n_tokens = t, .n_rows = n}
/* An 8-bit cache: the reads are equal in every form. */
#define ROPE_8(...) ROPE(K_INT, __VA_ARGS__), ROPE(K_E4M3, __VA_ARGS__), ROPE(K_E5M2, __VA_ARGS__)
#define SEQS(...) .seqs = {__VA_ARGS__}
/* Quantized weights in both forms: blocks, and planes with zero points or an order of columns. */
#define OF_BLOCKS(packing, bits, group) {K_INT, bits, group, K_F16, packing}
#define OF_PLANES(kind, bits, group, scale) {kind, bits, group, scale, K_PACKING_PLANES}
#define Q8_0 OF_BLOCKS(K_PACKING_Q8_0, 8, 32)
#define Q4_0 OF_BLOCKS(K_PACKING_Q4_0, 4, 32)
#define Q4_1 OF_BLOCKS(K_PACKING_Q4_1, 4, 32)
#define Q5_0 OF_BLOCKS(K_PACKING_Q5_0, 5, 32)
#define Q5_1 OF_BLOCKS(K_PACKING_Q5_1, 5, 32)
#define MXFP4 {K_INT, 4, 32, K_E8M0, K_PACKING_MXFP4}
#define IQ4_NL OF_BLOCKS(K_PACKING_IQ4_NL, 4, 32)
#define IQ4_XS OF_BLOCKS(K_PACKING_IQ4_XS, 4, 32)
#define Q2_K OF_BLOCKS(K_PACKING_Q2_K, 2, 16)
#define Q3_K OF_BLOCKS(K_PACKING_Q3_K, 3, 16)
#define Q4_K OF_BLOCKS(K_PACKING_Q4_K, 4, 32)
#define Q5_K OF_BLOCKS(K_PACKING_Q5_K, 5, 32)
#define Q6_K OF_BLOCKS(K_PACKING_Q6_K, 6, 16)
#define INT4(group) OF_PLANES(K_INT, 4, group, K_F16)
#define INT8(group) OF_PLANES(K_INT, 8, group, K_F32)
#define E2M1 OF_PLANES(K_E2M1, 4, 32, K_E8M0)
#define E4M3(group) OF_PLANES(K_E4M3, 8, group, K_BF16)
#define E5M2(group) OF_PLANES(K_E5M2, 8, group, K_F32)
/* Of quantized weights: what their format does not say. */
#define STORED(...) .stored = &(const struct op_stored){__VA_ARGS__}
#define FLOATS(format_, t, n, k, ...) GEMM(K_F16, t, n, k, .format = format_, __VA_ARGS__)
#define QUANT(format_, t, n, k, ...)                                                            \
    GEMM(K_F16, t, n, k, .format = format_, __VA_ARGS__),                                       \
        GEMM(K_F16, t, n, k, .format = format_, .form = K_FORM_INT8, __VA_ARGS__)
/* Decoding sequences of mixed lengths: 1,017 positions on average. */
#define DECODE_8 {1, 130}, {1, 1700}, {1, 64}, {1, 900}, {1, 2047}, {1, 331}, {1, 2500}, {1, 463}
#define DECODE_64 DECODE_8, DECODE_8, DECODE_8, DECODE_8, DECODE_8, DECODE_8, DECODE_8, DECODE_8

#define SAME_4(p) {1, p}, {1, p}, {1, p}, {1, p}
#define SAME_16(p) SAME_4(p), SAME_4(p), SAME_4(p), SAME_4(p)
/* Sequence lengths of 32k divided by the rank, down to 2k. */
#define ZIPF_16                                                                                                        \
    {1, 32767}, {1, 16383}, {1, 10922}, {1, 8191}, {1, 6553}, {1, 5461}, {1, 4681}, {1, 4095}, {1, 3640}, {1, 3276},   \
        {1, 2978}, {1, 2730}, {1, 2520}, {1, 2340}, {1, 2184}, {1, 2047}

const struct op_case op_test_cases[] = {
    /* GEMM: tokens around blocks of four, depths that fill the lanes and depths that do not, odd rows. */
    GEMM(K_F16, 1, 1, 1), GEMM(K_F16, 1, 7, 16), GEMM(K_F16, 2, 33, 48), GEMM(K_F16, 3, 17, 96),
    GEMM(K_F16, 5, 19, 100, .extra = true), GEMM(K_F16, 17, 31, 896, .extra = true),
    GEMM(K_F16, 33, 65, 160), GEMM(K_F16, 4, 9, 15), GEMM(K_F16, 6, 129, 17, .n_parts = 3),
    GEMM(K_F16, 9, 300, 896, .n_parts = 2, .extra = true),
    GEMM(K_F16, 3, 17, 100, .values = VALUES_TINY), GEMM(K_F16, 5, 31, 896, .values = VALUES_WIDE),
    GEMM(K_BF16, 1, 7, 16), GEMM(K_BF16, 2, 5, 48), GEMM(K_BF16, 3, 33, 96, .n_parts = 3),
    GEMM(K_BF16, 5, 19, 100, .extra = true), GEMM(K_BF16, 17, 131, 896),
    GEMM(K_BF16, 5, 31, 896, .values = VALUES_WIDE),
    GEMM(K_BF16, 3, 17, 100, .values = VALUES_TINY),
    GEMM(K_F32, 1, 7, 16), GEMM(K_F32, 2, 5, 48), GEMM(K_F32, 3, 17, 96),
    GEMM(K_F32, 5, 19, 100, .extra = true), GEMM(K_F32, 17, 67, 896, .n_parts = 4),
    GEMM(K_F32, 33, 130, 100), GEMM(K_F32, 5, 31, 896, .values = VALUES_WIDE),
    GEMM(K_F32, 3, 17, 100, .values = VALUES_TINY), GEMM(K_F32, 12, 5, 20000),
    /* 64 tokens and more: groups of 5 and 6, blocks of groups, sets of 16 repacked rows and remainders. */
    GEMM(K_F16, 64, 35, 100, .extra = true), GEMM(K_BF16, 97, 50, 896, .n_parts = 3, .extra = true), GEMM(K_F32, 65, 32, 384),
    GEMM(K_F32, 70, 9, 15), GEMM(K_F16, 66, 31, 896, .values = VALUES_WIDE), GEMM(K_F32, 71, 17, 100, .values = VALUES_TINY),
    TILE(1, 1, 1), TILE(1, 7, 16), TILE(2, 16, 32), TILE(3, 17, 96, .extra = true),
    TILE(5, 19, 100, .n_parts = 2), TILE(17, 131, 896, .extra = true, .n_parts = 3),
    TILE(33, 65, 48), TILE(5, 31, 896, .values = VALUES_WIDE),
    TILE(4, 33, 100, .values = VALUES_TINY),
    /* A vector of rows or of tokens, groups of 16 tokens and remainders, sets of 8, 16 and 32 repacked rows and
     * remainders, parts that meet within them. */
    TILE(6, 129, 64), TILE(7, 45, 224, .n_parts = 3), TILE(8, 40, 160), TILE(9, 33, 97), TILE(10, 100, 64),
    TILE(11, 47, 65), TILE(12, 64, 33), TILE(13, 63, 31), TILE(14, 130, 160, .n_parts = 4), TILE(15, 16, 34),
    TILE(16, 300, 192, .extra = true), TILE(24, 81, 96), TILE(25, 81, 96), TILE(64, 130, 544, .n_parts = 2),
    TILE(1, 300, 1120, .n_parts = 3), TILE(1, 100, 64, .values = VALUES_TINY, .extra = true),
    TILE(20, 50, 100, .values = VALUES_TINY, .extra = true), TILE(150, 19, 3200), TILE(20, 50, 600, .values = VALUES_WIDE),
    TILE_F16(1, 7, 16), TILE_F16(3, 33, 100, .extra = true), TILE_F16(17, 131, 224, .n_parts = 3),
    TILE_F16(12, 70, 544), TILE_F16(33, 50, 97, .extra = true), TILE_F16(5, 31, 896, .values = VALUES_WIDE),
    TILE_F16(20, 33, 100, .values = VALUES_TINY), TILE_F16(2, 33, 100, .values = VALUES_TINY),
    TILE_BF16(1, 1, 1), TILE_BF16(3, 33, 100, .extra = true), TILE_BF16(7, 33, 64), TILE_BF16(8, 40, 96),
    TILE_BF16(17, 131, 896, .n_parts = 3), TILE_BF16(12, 70, 544), TILE_BF16(33, 50, 97, .extra = true),
    TILE_BF16(5, 31, 896, .values = VALUES_WIDE), TILE_BF16(20, 33, 100, .values = VALUES_TINY),
    TILE_BF16(2, 33, 100, .values = VALUES_TINY),
    /* Segments: uneven ones, some empty, a partial last unit, or a partial only one; some that end within a tile. */
    GEMM(K_F16, 1, 33, 896, .unit = 64), GEMM(K_F16, 6, 37, 896, .unit = 64, .extra = true), GEMM(K_BF16, 7, 18, 100, .unit = 16),
    GEMM(K_BF16, 17, 20, 4864, .unit = 256), GEMM(K_F32, 64, 33, 1100, .unit = 128, .n_parts = 2), GEMM(K_F32, 5, 16, 300, .unit = 256),
    GEMM(K_BF16, 1, 9, 100, .unit = 16, .extra = true), GEMM(K_F16, 3, 17, 80, .unit = 80), GEMM(K_F16, 4, 33, 1200, .unit = 80),
    GEMM(K_F32, 8, 31, 896, .unit = 64, .values = VALUES_WIDE), GEMM(K_F16, 9, 17, 250, .unit = 16, .values = VALUES_TINY),
    GEMM(K_F32, 130, 35, 392, .unit = 16, .extra = true), GEMM(K_BF16, 68, 16, 300, .unit = 256), GEMM(K_F16, 64, 18, 1200, .unit = 80),
    TILE(1, 33, 896, .unit = 64), TILE(6, 37, 896, .unit = 64, .extra = true), TILE(7, 18, 100, .unit = 16),
    TILE(17, 20, 4864, .unit = 256), TILE(64, 65, 1100, .unit = 128, .n_parts = 2, .extra = true), TILE(12, 16, 300, .unit = 256),
    TILE(3, 33, 80, .unit = 80), TILE(33, 50, 1200, .unit = 80), TILE(20, 31, 896, .unit = 64, .values = VALUES_WIDE),
    TILE(20, 33, 250, .unit = 16, .values = VALUES_TINY, .extra = true), TILE(2, 33, 250, .unit = 16, .values = VALUES_TINY),
    TILE_F16(6, 33, 896, .unit = 64), TILE_F16(17, 50, 1200, .unit = 80, .extra = true), TILE_F16(40, 33, 100, .unit = 16),
    TILE_F16(5, 20, 250, .unit = 16, .values = VALUES_TINY), TILE_BF16(7, 33, 1200, .unit = 80), TILE_BF16(17, 37, 896, .unit = 64),
    /* Products of 16 columns, tiles of 64, chunks of 512 that one warp or several warps compute (up to 5, then a
     * second round); row tiles of 16, 32 and 64; tokens by 8, 16, 32 and 64. kernels_cuda_gemm_test has the wide
     * ones. */
    MMA(1, 1, 1), MMA(1, 7, 16), MMA(2, 33, 48, .extra = true), MMA(3, 17, 15), MMA(7, 45, 8, .n_parts = 2), MMA(8, 129, 64),
    MMA(9, 33, 97, .extra = true), MMA(10, 100, 513, .n_parts = 3), MMA(16, 31, 512), MMA(17, 50, 100), MMA(32, 47, 1025),
    MMA(33, 65, 520, .extra = true, .n_parts = 4), MMA(64, 64, 128), MMA(65, 130, 81), MMA(130, 19, 600),
    MMA(1, 40, 2700, .extra = true), MMA(4, 70, 896, .n_parts = 3), MMA(20, 19, 3200), MMA(70, 7, 1025),
    MMA(33, 50, 2000), MMA(64, 40, 3500, .extra = true), /* chunks of every warp, and a round without a fourth */
    MMA(12, 4100, 530), MMA(3, 4000, 100, .unit = 16, .extra = true),
    MMA(5, 31, 896, .values = VALUES_WIDE), MMA(40, 31, 600, .values = VALUES_WIDE), MMA(4, 33, 100, .values = VALUES_TINY),
    MMA(40, 33, 100, .values = VALUES_TINY, .extra = true),
    MMA_F16(1, 7, 16), MMA_F16(3, 33, 100, .extra = true), MMA_F16(11, 70, 544, .n_parts = 3), MMA_F16(17, 131, 224),
    MMA_F16(33, 50, 1097, .extra = true), MMA_F16(5, 31, 896, .values = VALUES_WIDE),
    MMA_F16(20, 33, 100, .values = VALUES_TINY), MMA_F16(66, 33, 100, .values = VALUES_TINY),
    /* Segments: uneven ones, of several chunks, without a unit; a partial last unit, or a partial only one. */
    MMA(1, 40, 896, .unit = 64), MMA(6, 33, 896, .unit = 64, .extra = true), MMA(7, 17, 100, .unit = 16),
    MMA(17, 20, 4864, .unit = 256), MMA(64, 33, 1100, .unit = 128, .extra = true, .n_parts = 2), MMA(33, 16, 300, .unit = 256),
    MMA(45, 24, 4400, .unit = 256), MMA(130, 19, 896, .unit = 64), MMA(1, 70, 9000, .unit = 256, .extra = true),
    MMA(5, 31, 896, .unit = 64, .values = VALUES_WIDE), MMA(20, 33, 100, .unit = 16, .values = VALUES_TINY, .extra = true),
    MMA_F16(9, 20, 80, .unit = 80), MMA_F16(33, 50, 1200, .unit = 80, .extra = true),
    /* More than 64 tokens and at least 64 columns: these have their own kernels on Hopper. Rows and tokens that fill
     * no tile, partial stages and chunks; segments of one chunk and of two, empty ones, and some that end within a
     * stage. */
    MMA(131, 140, 100, .extra = true, .n_parts = 3), MMA_F16(67, 260, 64), MMA(66, 40, 1090, .unit = 64, .extra = true),
    MMA(65, 4, 5120, .unit = 128), MMA(129, 131, 192, .unit = 64), MMA(70, 40, 1200, .unit = 80, .n_parts = 2), MMA(65, 31, 896, .unit = 64, .values = VALUES_WIDE),
    /* On the emulator's 4 multiprocessors: tiles of 128 x 64 or 64 x 64 whose segments four blocks, two or one
     * compute, and without segments. */
    MMA(40, 100, 3500, .unit = 256), MMA(33, 100, 640, .unit = 64, .extra = true), MMA(64, 500, 200, .unit = 32), MMA(50, 500, 70),

    /* Quantized weights: every format; one token, some, and more than a pass takes; rows that fill the repacked sets
     * and rows that do not. */
    QUANT(Q8_0, 19, 37, 288), QUANT(Q4_0, 19, 37, 288), QUANT(Q4_1, 19, 21, 288), QUANT(Q5_0, 19, 21, 288), QUANT(Q5_1, 19, 21, 288),
    QUANT(Q2_K, 19, 21, 512), QUANT(Q3_K, 19, 21, 512), QUANT(Q4_K, 19, 37, 512), QUANT(Q5_K, 19, 21, 512), QUANT(Q6_K, 19, 37, 512),
    QUANT(INT4(32), 19, 37, 288), QUANT(INT4(64), 19, 21, 320), QUANT(INT4(128), 19, 37, 384), QUANT(INT4(0), 19, 21, 288),
    QUANT(INT8(0), 19, 37, 320), QUANT(INT8(32), 19, 21, 288), QUANT(INT8(128), 19, 37, 640),
    QUANT(MXFP4, 19, 37, 288), QUANT(IQ4_NL, 19, 37, 288), QUANT(IQ4_XS, 19, 37, 512), QUANT(E2M1, 19, 37, 288), QUANT(E2M1, 3, 21, 300), QUANT(E2M1, 70, 19, 640, .extra = true),
    QUANT(MXFP4, 1, 37, 896), QUANT(IQ4_NL, 1, 37, 896), QUANT(IQ4_XS, 1, 37, 1280), QUANT(E2M1, 1, 37, 896), QUANT(E2M1, 1, 37, 1120, STORED(.permuted = true)), QUANT(E2M1, 1, 5, 45),
    FLOATS(E4M3(128), 19, 21, 384, STORED(.scale_rows = 8)), FLOATS(E4M3(0), 7, 21, 96), FLOATS(E5M2(64), 19, 21, 192), FLOATS(E5M2(0), 3, 21, 100),
    /* The same many times per thread, with one token and with a few; biases; one token and one row. */
    QUANT(Q8_0, 1, 300, 896, .extra = true), QUANT(Q4_0, 2, 300, 896, .extra = true), QUANT(Q4_K, 1, 300, 1024), QUANT(Q6_K, 4, 131, 768, .extra = true),
    QUANT(Q4_0, 1, 37, 896), QUANT(Q4_1, 1, 37, 896), QUANT(Q5_0, 1, 37, 896), QUANT(Q5_1, 1, 37, 928), QUANT(Q8_0, 1, 37, 1120), /* one token */
    QUANT(Q2_K, 1, 37, 1280), QUANT(Q3_K, 1, 37, 1280), QUANT(Q4_K, 1, 37, 1536), QUANT(Q5_K, 1, 37, 1280), QUANT(Q6_K, 1, 37, 768),
    QUANT(Q8_0, 1, 1, 32), QUANT(Q4_K, 33, 65, 256), QUANT(Q4_0, 70, 19, 64), QUANT(INT8(0), 67, 33, 128, .extra = true),
    /* Zero points, also of 8 bits: differences up to 255; columns in another order; one scale for all activations. */
    QUANT(INT4(64), 9, 37, 320, STORED(.has_zeros = true)), QUANT(INT4(128), 5, 21, 300, STORED(.has_zeros = true, .permuted = true)),
    QUANT(INT8(0), 9, 37, 288, STORED(.has_zeros = true)), QUANT(INT8(64), 5, 21, 192, STORED(.has_zeros = true)),
    QUANT(INT8(0), 9, 21, 320, STORED(.x_scale = 0.0078f)), QUANT(INT4(32), 9, 21, 320, STORED(.x_scale = 0.011f, .permuted = true)),
    QUANT(INT8(32), 5, 21, 100, STORED(.permuted = true)), QUANT(INT8(128), 9, 37, 256, STORED(.scale_rows = 16)), QUANT(INT4(64), 1, 37, 256, STORED(.scale_step = 2)), QUANT(E2M1, 5, 37, 256, STORED(.scale_step = 2)),
    /* Columns that fill no group and no byte; groups longer than a row. */
    QUANT(INT4(32), 5, 21, 101), QUANT(INT4(0), 5, 21, 45), QUANT(INT8(0), 5, 21, 31), QUANT(INT8(16), 5, 21, 77), QUANT(INT4(48), 5, 21, 130),
    QUANT(INT4(1024), 5, 21, 96), QUANT(INT8(0), 2, 5, 1), QUANT(INT8(0), 9, 19, 5000),
    /* Parts of several formats; gate and up. */
    QUANT(Q4_K, 9, 90, 512, .n_parts = 3, STORED(.other = Q6_K), .extra = true), QUANT(Q8_0, 5, 60, 288, .n_parts = 2, STORED(.other = K_FORMAT_F16)),
    QUANT(IQ4_XS, 5, 90, 512, .n_parts = 3, STORED(.other = IQ4_NL)), QUANT(MXFP4, 3, 60, 256, .n_parts = 3, STORED(.other = E2M1)),
    QUANT(Q5_0, 17, 70, 256, .n_parts = 4, STORED(.other = Q8_0)), QUANT(INT4(64), 5, 60, 256, .n_parts = 3, STORED(.other = INT8(0))),
    /* Experts: one token and several, more than a batch of 256, an expert without tokens, segments, every form. */
    MOE(K_F16, 1, 33, 100, 8, 2)}, MOE(K_BF16, 5, 17, 96, 4, 4, .per_choice = true)}, MOE(K_F32, 9, 31, 80, 1, 1)},
    MOE(K_F16, 70, 19, 100, 9, 3), .extra = true}, MOE(K_BF16, 300, 7, 48, 5, 2), .unit = 16},
    MOE(K_F32, 6, 33, 250, 8, 2, .per_choice = true), .unit = 16, .extra = true}, MOE(K_F16, 400, 5, 32, 3, 2)},
    MOE(K_BF16, 1, 40, 96, 8, 3), .form = K_FORM_TILE}, MOE(K_BF16, 37, 33, 100, 6, 2), .form = K_FORM_TILE, .extra = true},
    MOE(K_F16, 21, 20, 224, 4, 2, .per_choice = true), .form = K_FORM_TILE, .unit = 64}, MOE(K_BF16, 19, 33, 97, 4, 2), .form = K_FORM_TILE_BF16},
    MOE(K_F16, 1, 37, 512, 4, 2), .format = Q4_K}, MOE(K_F16, 9, 20, 288, 4, 2), .format = Q8_0}, MOE(K_F16, 70, 19, 256, 3, 2), .format = Q6_K, .form = K_FORM_INT8},
    MOE(K_F16, 1, 37, 288, 5, 3), .format = Q8_0, .form = K_FORM_INT8}, MOE(K_F16, 17, 21, 512, 4, 2), .format = Q4_K, .form = K_FORM_INT8, .extra = true},
    MOE(K_F16, 9, 21, 320, 4, 2), .format = INT4(64), STORED(.has_zeros = true)}, MOE(K_F16, 9, 21, 320, 4, 2), .format = INT4(64), STORED(.has_zeros = true), .form = K_FORM_INT8},
    MOE(K_F16, 5, 21, 192, 4, 2), .format = E4M3(64)}, MOE(K_F16, 7, 19, 256, 4, 2), .format = INT8(0), .form = K_FORM_INT8},
    MOE(K_F16, 1, 37, 96, 8, 4), .format = E2M1}, MOE(K_F16, 9, 21, 300, 4, 2), .format = E2M1, .extra = true}, MOE(K_F16, 1, 37, 96, 8, 4), .format = E2M1, .form = K_FORM_INT8},
    MOE(K_F16, 17, 21, 320, 4, 2, .per_choice = true), .format = E2M1, .form = K_FORM_INT8, .unit = 32}, MOE(K_F16, 1, 37, 288, 5, 3), .format = MXFP4, .form = K_FORM_INT8},
    MOE(K_F16, 9, 21, 288, 4, 2), .format = MXFP4}, MOE(K_F16, 9, 21, 256, 4, 2), .format = IQ4_XS, .form = K_FORM_INT8}, MOE(K_F16, 9, 21, 96, 4, 2), .format = IQ4_NL, .form = K_FORM_INT8},
    MOE_GATED(K_F16, 1, 33, 96, 8, 2), MOE_GATED(K_F16, 7, 24, 96, 4, 2, .format = E2M1, STORED(.scale_step = 2), .extra = true, .gate = K_GATE_CLAMPED, .scale = 7.0f), MOE_GATED(K_BF16, 30, 24, 100, 5, 2, .extra = true), MOE_GATED(K_BF16, 300, 5, 64, 4, 3, .form = K_FORM_TILE),
    MOE_GATED(K_F16, 9, 33, 100, 5, 2, .gate = K_GATE_GELU_TANH), MOE_GATED(K_BF16, 30, 24, 96, 4, 2, .extra = true, .gate = K_GATE_CLAMPED, .scale = 0.7f),
    MOE_GATED(K_F16, 12, 24, 256, 4, 2, .format = Q4_K, .form = K_FORM_INT8), MOE_GATED(K_F16, 3, 24, 256, 4, 2, .format = Q5_K),
    /* On tensor cores: tiles of every size, chunks, segments; all tokens on one expert; the most experts. */
    MOE(K_BF16, 1, 40, 1100, 8, 3), .form = K_FORM_MMA}, MOE(K_F16, 16, 33, 600, 6, 2), .form = K_FORM_MMA, .extra = true},
    MOE(K_BF16, 70, 35, 300, 3, 2, .per_choice = true), .form = K_FORM_MMA, .unit = 32}, MOE(K_F16, 300, 20, 64, 4, 2), .form = K_FORM_MMA},
    MOE(K_BF16, 40, 70, 97, 2, 1), .form = K_FORM_MMA, .extra = true}, MOE(K_F16, 17, 70, 1040, 3, 3), .form = K_FORM_MMA, .unit = 64},
    MOE_GATED(K_BF16, 30, 24, 600, 4, 2, .form = K_FORM_MMA, .extra = true), MOE_GATED(K_F16, 150, 33, 48, 3, 2, .form = K_FORM_MMA, .gate = K_GATE_CLAMPED, .scale = 0.7f),
    MOE_GATED(K_BF16, 1, 40, 1100, 8, 2, .form = K_FORM_MMA), MOE(K_F16, 40, 9, 48, 2, 1)}, MOE(K_F32, 3, 5, 32, 1024, 32)}, MOE(K_F16, 33, 9, 96, 2, 1), .format = Q8_0, .form = K_FORM_INT8},
    ROUTE(3, 40, 1024, 32)}, ROUTE(2, 33, 1024, 1, .normalize = true)}, ROUTE(1, 96, 8, 2)}, ROUTE(9, 100, 60, 8, .normalize = true)}, ROUTE(70, 33, 128, 8), .extra = true}, ROUTE(5, 15, 5, 5)}, ROUTE(3, 64, 1, 1)},
    ROUTE(9, 100, 32, 4, .score = K_ROUTE_TOP_SOFTMAX), .extra = true}, ROUTE(9, 100, 33, 4, .score = K_ROUTE_TOP_SOFTMAX, .normalize = true)},
    ROUTE(12, 100, 64, 6, .score = K_ROUTE_SIGMOID, .normalize = true), .extra = true, .scale = 2.5f}, ROUTE(7, 50, 16, 4, .score = K_ROUTE_SIGMOID)},
    ROUTE(12, 100, 64, 6, .score = K_ROUTE_SIGMOID, .n_groups = 8, .n_groups_used = 3, .normalize = true), .extra = true},
    ROUTE(12, 100, 40, 4, .n_groups = 5, .n_groups_used = 2, .group_by_best = true)}, ROUTE(6, 200, 24, 3), .values = VALUES_WIDE},
    COMBINE(1, 96, 2), COMBINE(9, 100, 8, .extra = true), COMBINE(33, 17, 1, .into = true), COMBINE(5, 200, 3, .into = true, .extra = true),
    GATED(K_F16, 5, 33, 288, .format = Q8_0, .n_parts = 2), GATED(K_F16, 17, 24, 256, .format = Q4_K, .form = K_FORM_INT8, .extra = true),
    /* Segments that divide groups and pairs in a byte, segments longer than groups, and empty ones. */
    QUANT(Q8_0, 7, 37, 896, .unit = 64, .extra = true), QUANT(Q8_0, 9, 21, 1280, .unit = 80), QUANT(Q4_0, 9, 21, 640, .unit = 80), QUANT(Q4_K, 9, 37, 1280, .unit = 80),
    QUANT(Q6_K, 9, 21, 1280, .unit = 80), QUANT(Q4_K, 17, 21, 4864, .unit = 256), QUANT(Q6_K, 1, 37, 1024, .unit = 128), QUANT(Q2_K, 3, 21, 768, .unit = 48),
    QUANT(INT4(128), 9, 37, 640, .unit = 64), QUANT(INT4(64), 7, 21, 560, .unit = 80, STORED(.has_zeros = true)), QUANT(INT8(0), 9, 37, 640, .unit = 80), QUANT(INT8(128), 5, 21, 384, .unit = 64),
    QUANT(MXFP4, 9, 37, 1280, .unit = 80), QUANT(IQ4_NL, 9, 21, 640, .unit = 80), QUANT(IQ4_XS, 9, 21, 1280, .unit = 80), QUANT(E2M1, 7, 21, 560, .unit = 80), QUANT(E2M1, 1, 21, 640, .unit = 64),
    QUANT(IQ4_XS, 1, 37, 1024, .unit = 128), QUANT(MXFP4, 1, 65, 896, .unit = 64), QUANT(Q5_1, 5, 21, 96, .unit = 16), QUANT(Q4_0, 1, 65, 896, .unit = 64), FLOATS(E4M3(128), 5, 21, 640, .unit = 64),
    /* Numbers of all sizes, and a NaN or an infinity. */
    QUANT(Q8_0, 9, 21, 288, .values = VALUES_WIDE), QUANT(Q4_K, 9, 21, 512, .values = VALUES_WIDE), QUANT(Q6_K, 9, 21, 256, .values = VALUES_TINY), QUANT(Q4_0, 9, 21, 288, .values = VALUES_TINY),
    QUANT(MXFP4, 9, 21, 288, .values = VALUES_WIDE), QUANT(MXFP4, 9, 21, 288, .values = VALUES_TINY), QUANT(E2M1, 9, 21, 288, .values = VALUES_WIDE), QUANT(E2M1, 1, 21, 288, .values = VALUES_TINY),
    QUANT(IQ4_NL, 9, 21, 288, .values = VALUES_WIDE), QUANT(IQ4_XS, 9, 21, 256, .values = VALUES_TINY),
    QUANT(INT4(64), 9, 21, 320, .values = VALUES_WIDE), QUANT(INT8(0), 9, 21, 320, .values = VALUES_WIDE), QUANT(INT8(64), 9, 21, 320, .values = VALUES_TINY),
    QUANT(Q8_0, 19, 21, 288, .values = VALUES_BROKEN), QUANT(Q4_K, 9, 21, 256, .values = VALUES_BROKEN), QUANT(INT8(0), 9, 21, 96, .values = VALUES_BROKEN),
    QUANT(Q8_0, 5, 21, 288, .values = VALUES_FULL), QUANT(Q4_0, 5, 21, 288, .values = VALUES_FULL), QUANT(Q5_1, 5, 21, 288, .values = VALUES_FULL),
    QUANT(MXFP4, 5, 21, 288, .values = VALUES_FULL), QUANT(MXFP4, 1, 21, 288, .values = VALUES_FULL), QUANT(IQ4_NL, 5, 21, 288, .values = VALUES_FULL), QUANT(IQ4_NL, 1, 21, 288, .values = VALUES_FULL),
    QUANT(IQ4_XS, 5, 21, 256, .values = VALUES_FULL), QUANT(IQ4_XS, 1, 21, 256, .values = VALUES_FULL), QUANT(E2M1, 5, 21, 288, .values = VALUES_FULL), QUANT(E2M1, 1, 21, 288, .values = VALUES_FULL),
    QUANT(Q4_K, 5, 21, 256, .values = VALUES_FULL), QUANT(Q6_K, 5, 21, 256, .values = VALUES_FULL), QUANT(INT8(0), 5, 21, 320, .values = VALUES_FULL),
    QUANT(Q8_0, 1, 21, 288, .values = VALUES_FULL), QUANT(Q5_0, 1, 21, 288, .values = VALUES_FULL), QUANT(Q6_K, 1, 21, 256, .values = VALUES_FULL), QUANT(Q4_0, 1, 21, 288, .values = VALUES_FULL),
    QUANT(Q6_K, 1, 21, 256, .values = VALUES_BROKEN), QUANT(INT4(32), 9, 21, 288, .values = VALUES_BROKEN), FLOATS(E4M3(0), 5, 21, 96, .values = VALUES_WIDE),

    {.op = K_OP_EMBED, .n_tokens = 9, .n_rows = 40, .n_cols = 512, .format = Q4_K, STORED(.other = Q6_K), .n_parts = 3},
    {.op = K_OP_EMBED, .n_tokens = 9, .n_rows = 40, .n_cols = 96, .format = Q8_0, .into = true},
    {.op = K_OP_EMBED, .n_tokens = 9, .n_rows = 40, .n_cols = 320, .format = INT4(64), STORED(.has_zeros = true, .permuted = true)},
    {.op = K_OP_EMBED, .n_tokens = 5, .n_rows = 40, .n_cols = 101, .format = E4M3(0)},
    {.op = K_OP_EMBED, .n_tokens = 9, .n_rows = 40, .n_cols = 512, .format = IQ4_XS, STORED(.other = IQ4_NL), .n_parts = 3},
    {.op = K_OP_EMBED, .n_tokens = 9, .n_rows = 40, .n_cols = 96, .format = MXFP4, STORED(.other = E2M1), .n_parts = 2},
    {.op = K_OP_EMBED, .dtype = K_F16, .n_tokens = 5, .n_rows = 300, .n_cols = 100, .n_parts = 2},
    {.op = K_OP_EMBED, .dtype = K_BF16, .n_tokens = 33, .n_rows = 77, .n_cols = 96},
    {.op = K_OP_EMBED, .dtype = K_F32, .n_tokens = 1, .n_rows = 3, .n_cols = 1},
    {.op = K_OP_EMBED, .dtype = K_BF16, .n_tokens = 7, .n_rows = 40, .n_cols = 101, .scale = 9.797959f},
    {.op = K_OP_EMBED, .dtype = K_F16, .n_tokens = 3, .n_rows = 40, .n_cols = 96, .scale = 12.0f},
    {.op = K_OP_EMBED, .n_tokens = 5, .n_rows = 40, .n_cols = 256, .format = Q4_K, .scale = 0.3f},
    {.op = K_OP_EMBED, .dtype = K_F16, .n_tokens = 17, .n_rows = 50, .n_cols = 4097,
     .values = VALUES_TINY},
    {.op = K_OP_EMBED, .dtype = K_F32, .n_tokens = 9, .n_rows = 2, .n_cols = 48, .into = true},
    {.op = K_OP_EMBED, .dtype = K_BF16, .n_tokens = 6, .n_rows = 40, .n_cols = 101, .into = true},
    {.op = K_OP_EMBED, .dtype = K_F16, .n_tokens = 3, .n_rows = 40, .n_cols = 64, .into = true},
    {.op = K_OP_GATHER, .n_tokens = 5, .n_rows = 3, .n_cols = 96},
    {.op = K_OP_GATHER, .n_tokens = 33, .n_rows = 40, .n_cols = 7},

    NORM(1, 1), NORM(1, 16), NORM(2, 96, .extra = true), NORM(3, 100), NORM(17, 896, .extra = true),
    NORM(33, 127, .extra = true), NORM(5, 4096, .values = VALUES_WIDE),
    NORM(3, 48, .values = VALUES_TINY),
    NORM(1, 16, .into = true), NORM(7, 96, .into = true), NORM(9, 127, .into = true), NORM(3, 4096, .into = true),
    NORM(4, 96, .n_rows = 160), NORM(17, 100, .n_rows = 300), NORM(2, 31, .n_rows = 64), NORM(3, 2048, .n_rows = 4096),
    /* Rows wider than a thread block's shared memory, with a partial last piece. */
    NORM(2, 12288), NORM(2, 12301, .extra = true), NORM(3, 32772, .extra = true), NORM(1, 49152, .values = VALUES_WIDE),
    NORM(2, 12301, .into = true), NORM(2, 12288, .n_rows = 12300),

    LAYER(1, 1), LAYER(1, 16), LAYER(2, 96, .extra = true), LAYER(3, 100), LAYER(17, 384, .extra = true), LAYER(33, 127, .extra = true),
    LAYER(5, 1024, .values = VALUES_WIDE), LAYER(3, 48, .values = VALUES_TINY, .extra = true), LAYER(2, 12301, .extra = true),

    {.op = K_OP_ACTIVATE, .n_tokens = 1, .n_cols = 1}, {.op = K_OP_ACTIVATE, .n_tokens = 7, .n_cols = 1537},
    {.op = K_OP_ACTIVATE, .n_tokens = 5, .n_cols = 96, .values = VALUES_WIDE}, {.op = K_OP_ACTIVATE, .n_tokens = 3, .n_cols = 33, .values = VALUES_TINY},
    {.op = K_OP_ACTIVATE, .n_tokens = 4, .n_cols = 100, .activation = K_ACT_TANH}, {.op = K_OP_ACTIVATE, .n_tokens = 4, .n_cols = 64, .activation = K_ACT_TANH, .values = VALUES_WIDE},

    {.op = K_OP_ACTIVATE, .n_tokens = 3, .n_cols = 99, .activation = K_ACT_SCALE, .scale = 0.22f},
    {.op = K_OP_ACTIVATE, .n_tokens = 2, .n_cols = 257, .activation = K_ACT_SOFTCAP, .scale = 30.0f},
    {.op = K_OP_ACTIVATE, .n_tokens = 4, .n_cols = 64, .activation = K_ACT_SOFTCAP, .scale = 3.0f, .values = VALUES_WIDE},

    POOL(K_POOL_FIRST, 1, SEQS({1, 0})), POOL(K_POOL_FIRST, 384, .extra = true, SEQS({5, 0}, {1, 0}, {17, 0})),
    POOL(K_POOL_LAST, 96, SEQS({5, 0}, {1, 0})), POOL(K_POOL_LAST, 127, .extra = true, SEQS({3, 0}, {2, 0})),
    POOL(K_POOL_MEAN, 100, SEQS({33, 0}, {1, 0})), POOL(K_POOL_MEAN, 384, .extra = true, SEQS({256, 0}, {7, 0}, {1, 0}, {2, 0})),
    POOL(K_POOL_MEAN, 4096, .extra = true, .values = VALUES_WIDE, SEQS({4, 0})), POOL(K_POOL_MEAN, 48, .extra = true, .values = VALUES_TINY, SEQS({3, 0}, {9, 0})),

    /* Gate and up: rows that fill the tiles of 8, 16, 32 and 64 pairs and rows that do not, in every form. */
    GATED(K_F32, 1, 1, 1), GATED(K_F32, 9, 33, 100, .extra = true), GATED(K_F16, 1, 17, 96, .n_parts = 2),
    GATED(K_F16, 12, 40, 300, .values = VALUES_WIDE), GATED(K_BF16, 1, 64, 160, .extra = true, .n_parts = 2), GATED(K_BF16, 19, 65, 50),
    GATED(K_BF16, 3, 20, 100, .form = K_FORM_TILE, .extra = true, .n_parts = 2), GATED(K_F16, 17, 33, 64, .form = K_FORM_TILE),
    GATED(K_BF16, 18, 24, 96, .form = K_FORM_TILE_BF16),
    GATED(K_F32, 9, 33, 100, .extra = true, .gate = K_GATE_GELU_TANH), GATED(K_F16, 12, 40, 300, .values = VALUES_WIDE, .gate = K_GATE_GELU_TANH),
    GATED_MMA(2, 40, 160, .extra = true, .gate = K_GATE_GELU_TANH), GATED_MMA_F16(70, 72, 192, .gate = K_GATE_GELU_TANH),
    GATED(K_F16, 5, 33, 288, .format = Q8_0, .n_parts = 2, .gate = K_GATE_GELU_TANH),
    GATED(K_F32, 9, 33, 100, .extra = true, .gate = K_GATE_CLAMPED, .scale = 0.5f), GATED(K_F16, 12, 40, 300, .values = VALUES_WIDE, .gate = K_GATE_CLAMPED, .scale = 7.0f),
    GATED_MMA(2, 40, 160, .extra = true, .gate = K_GATE_CLAMPED, .scale = 0.7f), GATED_MMA_F16(70, 72, 192, .gate = K_GATE_CLAMPED, .scale = 7.0f),
    GATED_MMA(1, 1, 1), GATED_MMA(1, 7, 600, .extra = true, .n_parts = 2), GATED_MMA(8, 8, 64), GATED_MMA(5, 61, 1100, .n_parts = 3),
    GATED_MMA(9, 33, 97, .extra = true), GATED_MMA(16, 40, 520), GATED_MMA(12, 2060, 70), GATED_MMA(3, 7700, 20), GATED_MMA(2, 3850, 520), GATED_MMA(17, 16, 100),
    GATED_MMA(32, 47, 1025, .extra = true), GATED_MMA(33, 32, 128), GATED_MMA(34, 440, 130), GATED_MMA(36, 250, 70), GATED_MMA(64, 65, 81, .extra = true, .n_parts = 4),
    GATED_MMA(130, 19, 600), GATED_MMA(5, 31, 896, .values = VALUES_WIDE), GATED_MMA(40, 33, 100, .values = VALUES_TINY, .extra = true),
    GATED_MMA_F16(1, 9, 16), GATED_MMA_F16(10, 70, 544, .n_parts = 3), GATED_MMA_F16(20, 33, 100, .extra = true),
    GATED_MMA_F16(66, 33, 1097, .extra = true),
    GATED_MMA(66, 72, 600, .extra = true, .n_parts = 2), GATED_MMA_F16(131, 72, 200), GATED_MMA(65, 40, 100, .values = VALUES_WIDE, .n_parts = 4),

    {.op = K_OP_ROPE_ANGLES, .n_tokens = 1, .n_cols = 8},
    {.op = K_OP_ROPE_ANGLES, .n_tokens = 33, .n_cols = 32},
    {.op = K_OP_ROPE_ANGLES, .n_tokens = 17, .n_cols = 64, .scale = 1.2079441f},
    {.op = K_OP_ROPE_ANGLES, .n_tokens = 64, .n_cols = 128, .values = VALUES_WIDE},
    {.op = K_OP_ROPE_ANGLES, .n_tokens = 300, .n_cols = 64, .values = VALUES_WIDE, .exact = true},
    {.op = K_OP_ROPE_ANGLES, .n_tokens = 65, .n_cols = 32, .scale = 1.2079441f, .exact = true, .most_position = 1027},
    {.op = K_OP_ROPE_ANGLES, .n_tokens = 40, .n_cols = 16, .most_position = 259},

    ROPE(K_F16, 6, 2, 16, 16, SEQS({1, 0})), ROPE(K_F16, 6, 2, 64, 8, SEQS({5, 62}, {1, 511})),
    ROPE(K_F16, 12, 2, 80, 32, .extra = true, SEQS({17, 30}, {3, 1500})),
    ROPE(K_F16, 1, 1, 256, 16, .extra = true, SEQS({33, 500})),
    ROPE(K_F32, 6, 2, 128, 16, .extra = true, SEQS({2, 63}, {5, 0})),
    ROPE(K_F32, 12, 2, 16, 8, .values = VALUES_WIDE, SEQS({3, 7})),
    ROPE(K_F16, 3, 3, 48, 16, .values = VALUES_WIDE, SEQS({9, 11})),
    ROPE(K_F16, 5, 1, 96, 16, .extra = true, SEQS({3, 15})), ROPE(K_F16, 2, 1, 144, 16, .extra = true, SEQS({3, 15})),
    ROPE(K_F32, 3, 1, 256, 16, SEQS({2, 15})),
    /* Heads of which the last numbers are not rotated, or none. */
    ROPE(K_F16, 6, 2, 128, 16, .n_fixed = 32, SEQS({5, 62})), ROPE(K_F16, 3, 1, 48, 8, .n_fixed = 32, .extra = true, SEQS({9, 11})),
    ROPE(K_F32, 2, 2, 256, 16, .n_fixed = 64, SEQS({3, 0})), ROPE(K_F32, 4, 2, 64, 16, .n_fixed = 64, SEQS({2, 63})),
    ROPE(K_INT, 4, 2, 96, 16, .n_fixed = 48, SEQS({7, 1})), ROPE(K_E4M3, 2, 1, 80, 16, .n_fixed = 80, .extra = true, SEQS({2, 9})),
    ROPE(K_F16, 8, 2, 64, 3, .extra = true, .n_fill = 5, SEQS({4, 14}, {7, 0})), ROPE(K_F32, 2, 1, 48, 128, .n_fill = 2, SEQS({2, 7})),

    ROPE_8(6, 2, 64, 8, SEQS({5, 62}, {1, 511})), ROPE_8(2, 1, 256, 3, .extra = true, .n_fill = 2, SEQS({9, 14})),
    ROPE_8(12, 3, 80, 1, .extra = true, .values = VALUES_WIDE, SEQS({17, 30}, {3, 5})), ROPE_8(3, 3, 48, 16, .values = VALUES_TINY, SEQS({9, 11})),
    ROPE_8(1, 5, 16, 16, .values = VALUES_BROKEN, SEQS({24, 0})), ROPE(K_INT, 2, 1, 144, 16, .values = VALUES_BROKEN, SEQS({9, 0})),

    /* A second q for attention sinks. */
    ROPE(K_F16, 6, 2, 64, 8, .sinks = 1, SEQS({5, 62}, {1, 511})), ROPE(K_F32, 4, 2, 80, 16, .sinks = 1, .n_fixed = 32, .extra = true, SEQS({9, 3})),
    ROPE(K_INT, 8, 2, 64, 16, .sinks = 1, .extra = true, .n_fill = 5, SEQS({4, 14}, {7, 0})),

    /* Attention: positions on both sides of tiles (64) and splits (512), windows, head groups. */
    ATTN(K_F16, 6, 2, 16, 16, SEQS({1, 0})), ATTN(K_F16, 6, 2, 64, 16, SEQS({1, 63}, {1, 64})),
    ATTN(K_F16, 6, 2, 64, 8, SEQS({3, 62}, {3, 510})),
    ATTN(K_F16, 12, 2, 80, 32, SEQS({1, 511}, {1, 512}, {2, 513})),
    ATTN(K_F16, 1, 1, 128, 16, SEQS({2, 1500}, {17, 0})),
    ATTN(K_F16, 1, 1, 256, 8, SEQS({33, 1000})), ATTN(K_F16, 9, 1, 32, 16, SEQS({5, 60})),
    ATTN(K_F16, 40, 2, 16, 16, SEQS({3, 126}, {1, 5})), ATTN(K_F16, 4, 4, 48, 16, SEQS({21, 500})),
    ATTN(K_F16, 6, 2, 64, 16, .window = 1, SEQS({3, 63})),
    ATTN(K_F16, 6, 2, 64, 16, .window = 64, SEQS({5, 126}, {2, 0})),
    ATTN(K_F16, 6, 2, 16, 8, .window = 100, SEQS({70, 0}, {3, 600})),
    ATTN(K_F16, 6, 2, 64, 32, .window = 700, SEQS({5, 1340}, {9, 1020})),
    ATTN(K_F16, 6, 2, 16, 16, .window = 4096, SEQS({2, 1023})),
    ATTN(K_F32, 6, 2, 64, 16, SEQS({3, 62}, {1, 1500})),
    ATTN(K_F32, 12, 2, 16, 8, .window = 65, SEQS({17, 560})),
    ATTN(K_F32, 1, 1, 80, 32, SEQS({5, 0})),
    ATTN(K_F16, 6, 2, 64, 16, .values = VALUES_SHARP, SEQS({3, 1500}, {2, 64})),
    ATTN(K_F32, 6, 2, 16, 16, .values = VALUES_SHARP, SEQS({2, 1030})),
    /* Splits on several threads; many queries of one sequence; every group size that has its own code; windows that
     * begin within a split and exclude some splits. */
    ATTN(K_F16, 1, 1, 64, 16, SEQS({1, 4000})), ATTN(K_F16, 7, 1, 64, 16, SEQS({1, 2900}, {1, 70})),
    ATTN(K_F16, 14, 2, 64, 16, SEQS({1, 1100}, {1, 5}, {1, 3000}, {1, 511}, {2, 640}, {40, 0})),
    ATTN(K_F16, 8, 1, 128, 128, SEQS({1, 2047}, {1, 2048})), ATTN(K_F16, 5, 1, 96, 64, SEQS({1, 1600})),
    ATTN(K_F16, 8, 2, 96, 64, SEQS({70, 470}, {9, 0})), ATTN(K_F16, 7, 7, 80, 16, SEQS({70, 30})),
    ATTN(K_F16, 71, 1, 64, 16, SEQS({1, 700}, {2, 63})), ATTN(K_F32, 16, 2, 256, 32, SEQS({12, 600})),
    ATTN(K_F16, 2, 2, 64, 16, .window = 600, SEQS({1, 3000}, {3, 1500})),
    ATTN(K_F16, 14, 2, 64, 16, .window = 40, SEQS({100, 480}, {1, 1023})),
    ATTN(K_F16, 3, 1, 48, 16, .window = 9, SEQS({150, 450})),
    ATTN(K_F16, 14, 2, 64, 16, .values = VALUES_SHARP, SEQS({60, 500}, {1, 1700})),

    /* Softcaps that bend and that clip, sinks, and both with windows; with splits, on several threads. */
    ATTN(K_F16, 4, 2, 256, 16, .softcap = 50, .window = 700, SEQS({3, 1500}, {1, 40})),
    ATTN(K_F16, 6, 2, 64, 16, .softcap = 0.5f, SEQS({3, 62}, {1, 1700}, {20, 500})),
    ATTN(K_F16, 14, 2, 64, 16, .softcap = 30, .values = VALUES_SHARP, SEQS({40, 500}, {1, 1700})),
    ATTN(K_F16, 16, 2, 64, 16, .extra = true, SEQS({1, 0}, {1, 2900}, {30, 490})),
    ATTN(K_F16, 8, 1, 64, 16, .window = 128, .extra = true, SEQS({1, 1030}, {40, 600}, {1, 30})),
    ATTN(K_F16, 12, 2, 80, 32, .softcap = 1, .window = 600, .extra = true, SEQS({1, 2000}, {5, 1020})),
    ATTN(K_F16, 9, 1, 128, 16, .softcap = 2, .extra = true, SEQS({1, 1500}, {9, 60})),
    ATTN(K_F32, 8, 2, 96, 8, .softcap = 1, .window = 65, .extra = true, SEQS({17, 560}, {1, 1100})),
    ATTN(K_F32, 7, 1, 16, 16, .softcap = 20, .extra = true, .values = VALUES_SHARP, SEQS({3, 1030})),

    /* Attention sinks: tokens that are sinks, a window that touches them, one that has left them, tiles with both; and
     * with softcaps and logits of heads; with splits, on several threads. */
    ATTN(K_F16, 6, 2, 64, 16, .window = 8, .sinks = 4, SEQS({1, 0}, {3, 1}, {1, 3}, {1, 4}, {1, 11}, {1, 12}, {1, 70})),
    ATTN(K_F16, 6, 2, 64, 16, .window = 16, .sinks = 4, SEQS({100, 0}, {3, 600})), ATTN(K_F16, 14, 2, 64, 16, .window = 600, .sinks = 4, SEQS({1, 3000}, {3, 1500}, {1, 700})),
    ATTN(K_F32, 12, 2, 16, 8, .window = 65, .sinks = 512, SEQS({17, 560}, {90, 500}, {5, 60})), ATTN(K_F32, 3, 1, 80, 32, .window = 1, .sinks = 70, SEQS({140, 0})),
    ATTN(K_INT, 6, 2, 64, 16, .window = 100, .sinks = 5, SEQS({70, 90}, {1, 900})), ATTN(K_E4M3, 8, 1, 128, 32, .window = 1200, .sinks = 33, SEQS({1, 4000}, {9, 20})),
    ATTN(K_F16, 8, 1, 64, 16, .window = 128, .sinks = 4, .extra = true, .softcap = 20, SEQS({1, 1030}, {40, 600}, {1, 3})),
    ATTN(K_F16, 71, 1, 64, 16, .window = 700, .sinks = 130, SEQS({1, 1700}, {2, 129})), ATTN(K_F16, 1, 1, 256, 8, .window = 513, .sinks = 511, SEQS({33, 1000})),
    ATTN(K_F16, 14, 2, 64, 16, .window = 300, .sinks = 8, .values = VALUES_SHARP, SEQS({60, 500}, {1, 1700})), ATTN(K_E5M2, 4, 4, 48, 16, .window = 64, .sinks = 64, SEQS({21, 500}, {130, 0})),

    /* Whole rows: within a tile, across tiles and across splits, including an item's last query. */
    ATTN(K_F32, 12, 12, 32, 16, .whole = true, SEQS({1, 0}, {31, 0}, {65, 0})),
    ATTN(K_F32, 2, 2, 48, 16, .whole = true, SEQS({20, 500}, {3, 510})), ATTN(K_F16, 4, 2, 64, 16, .whole = true, SEQS({70, 0}, {3, 0})),
    ATTN(K_F16, 2, 1, 16, 32, .whole = true, .values = VALUES_SHARP, SEQS({17, 500})),

    /* An 8-bit cache. */
    ATTN(K_INT, 6, 2, 16, 16, SEQS({1, 0})), ATTN(K_E4M3, 6, 2, 64, 16, SEQS({1, 63}, {1, 64})), ATTN(K_E5M2, 6, 2, 64, 8, SEQS({3, 62}, {3, 510})),
    ATTN(K_INT, 12, 2, 80, 32, SEQS({1, 511}, {1, 512}, {2, 513})), ATTN(K_E4M3, 1, 1, 256, 8, SEQS({33, 600})), ATTN(K_INT, 9, 1, 32, 16, SEQS({5, 60})),
    ATTN(K_E5M2, 40, 2, 16, 16, SEQS({3, 126}, {1, 5})), ATTN(K_INT, 4, 4, 48, 16, SEQS({21, 500})), ATTN(K_INT, 6, 2, 64, 16, .window = 64, SEQS({5, 126}, {2, 0})),
    ATTN(K_E4M3, 6, 2, 64, 32, .window = 700, SEQS({5, 1340}, {9, 1020})), ATTN(K_INT, 1, 1, 64, 16, SEQS({1, 4000})),
    ATTN(K_INT, 14, 2, 64, 16, .values = VALUES_SHARP, SEQS({40, 500}, {1, 1700})), ATTN(K_E4M3, 14, 2, 64, 16, SEQS({1, 1100}, {1, 5}, {1, 2900}, {40, 0})),
    ATTN(K_E5M2, 7, 1, 96, 64, .window = 600, SEQS({1, 2000}, {1, 70})), ATTN(K_INT, 8, 1, 128, 128, SEQS({1, 2047}, {1, 2048})),
    ATTN(K_E5M2, 4, 2, 256, 16, .softcap = 50, .window = 700, SEQS({3, 1500}, {1, 40})), ATTN(K_INT, 6, 2, 64, 16, .softcap = 0.5f, SEQS({3, 62}, {1, 1700})),
    ATTN(K_E4M3, 16, 2, 64, 16, .extra = true, SEQS({1, 0}, {1, 2900}, {30, 490})), ATTN(K_INT, 8, 2, 96, 16, .softcap = 3, .extra = true, SEQS({17, 560}, {1, 1100})),
    ATTN(K_INT, 2, 2, 48, 16, .whole = true, SEQS({20, 500}, {3, 510})), ATTN(K_E4M3, 12, 12, 32, 16, .whole = true, SEQS({1, 0}, {31, 0}, {65, 0})),
    ATTN(K_INT, 6, 2, 64, 16, .form = K_FORM_MMA, SEQS({20, 500}, {1, 1100})), ATTN(K_E4M3, 8, 1, 128, 16, .form = K_FORM_MMA, .extra = true, SEQS({1, 600})),
    ATTN(K_E5M2, 4, 2, 80, 32, .form = K_FORM_MMA, .softcap = 2, .window = 100, SEQS({3, 600}, {1, 5})),

    /* Attention on tensor cores: the same positions, and query tiles of 16 and of 64 rows that end in a row or cross
     * a tile; widths that have a kernel and widths that do not; data that several blocks share; windows that exclude
     * whole splits. */
    ATTN_MMA(6, 2, 16, 16, SEQS({1, 0})), ATTN_MMA(6, 2, 64, 16, SEQS({1, 63}, {1, 64})),
    ATTN_MMA(6, 2, 64, 8, SEQS({3, 62}, {3, 510})), ATTN_MMA(12, 2, 80, 32, SEQS({1, 511}, {1, 512}, {2, 513})),
    ATTN_MMA(1, 1, 128, 16, SEQS({2, 1500}, {17, 0})), ATTN_MMA(1, 1, 256, 8, SEQS({33, 1000})),
    ATTN_MMA(9, 1, 32, 16, SEQS({5, 60})), ATTN_MMA(40, 2, 16, 16, SEQS({3, 126}, {1, 5})),
    ATTN_MMA(4, 4, 48, 16, SEQS({21, 500})), ATTN_MMA(4, 2, 112, 16, SEQS({9, 60}, {1, 520})),
    ATTN_MMA(4, 1, 192, 16, SEQS({5, 60}, {1, 520})), ATTN_MMA(8, 1, 256, 16, SEQS({9, 508}, {1, 1030})),
    ATTN_MMA(6, 2, 64, 16, .window = 1, SEQS({3, 63})), ATTN_MMA(6, 2, 64, 16, .window = 64, SEQS({5, 126}, {2, 0})),
    ATTN_MMA(6, 2, 16, 8, .window = 100, SEQS({70, 0}, {3, 600})),
    ATTN_MMA(6, 2, 64, 32, .window = 700, SEQS({5, 1340}, {9, 1020})),
    ATTN_MMA(6, 2, 16, 16, .window = 4096, SEQS({2, 1023})),
    ATTN_MMA(6, 2, 64, 16, .values = VALUES_SHARP, SEQS({3, 1500}, {2, 64})),
    ATTN_MMA(14, 2, 64, 16, .values = VALUES_SHARP, SEQS({40, 500}, {1, 1700})),
    ATTN_MMA(1, 1, 64, 16, SEQS({1, 4000})), ATTN_MMA(7, 1, 64, 16, SEQS({1, 2900}, {1, 70})),
    ATTN_MMA(14, 2, 64, 16, SEQS({1, 1100}, {1, 5}, {1, 3000}, {1, 511}, {2, 640}, {20, 0})),
    ATTN_MMA(8, 1, 128, 128, SEQS({1, 2047}, {1, 2048})), ATTN_MMA(5, 1, 96, 64, SEQS({1, 1600})),
    ATTN_MMA(8, 2, 96, 64, SEQS({30, 490}, {9, 0})), ATTN_MMA(7, 7, 80, 16, SEQS({20, 50})),
    ATTN_MMA(71, 1, 64, 16, SEQS({1, 700}, {2, 63})), ATTN_MMA(17, 1, 128, 16, SEQS({1, 600})),
    ATTN_MMA(2, 2, 64, 16, .window = 600, SEQS({1, 3000}, {3, 1500})),
    ATTN_MMA(14, 2, 64, 16, .window = 40, SEQS({50, 490}, {1, 1023})),
    ATTN_MMA(3, 1, 48, 16, .window = 9, SEQS({80, 470})), ATTN_MMA(4, 1, 256, 16, .window = 500, SEQS({20, 1020})),
    ATTN_MMA(4, 1, 64, 16, SEQS(DECODE_8)),
    ATTN_MMA(4, 2, 256, 16, .softcap = 50, .window = 700, SEQS({3, 1500}, {1, 40})),
    ATTN_MMA(6, 2, 64, 16, .softcap = 0.5f, SEQS({3, 62}, {1, 1700}, {20, 500})),
    ATTN_MMA(14, 2, 64, 16, .softcap = 30, .values = VALUES_SHARP, SEQS({40, 500}, {1, 1700})),
    ATTN_MMA(16, 2, 64, 16, .extra = true, SEQS({1, 0}, {1, 2900}, {30, 490})),
    ATTN_MMA(8, 1, 64, 16, .window = 128, .extra = true, SEQS({1, 1030}, {40, 600}, {1, 30})),
    ATTN_MMA(12, 2, 80, 32, .softcap = 1, .window = 600, .extra = true, SEQS({1, 2000}, {5, 1020})),
    ATTN_MMA(9, 1, 128, 16, .softcap = 2, .extra = true, SEQS({1, 1500}, {9, 60})),
    ATTN_MMA(8, 2, 96, 16, .extra = true, SEQS({17, 560}, {1, 1100})),
    ATTN_MMA(8, 2, 256, 16, .softcap = 3, .window = 520, .extra = true, SEQS({9, 1020}, {1, 1600})),
    ATTN_MMA(7, 1, 16, 16, .softcap = 20, .extra = true, .values = VALUES_SHARP, SEQS({3, 1030})),
    /* Attention sinks, as above; large query tiles whose tokens are sinks; and divided ones. */
    ATTN_MMA(6, 2, 64, 16, .window = 8, .sinks = 4, SEQS({1, 0}, {3, 1}, {1, 3}, {1, 4}, {1, 11}, {1, 12}, {1, 70})),
    ATTN_MMA(6, 2, 64, 16, .window = 16, .sinks = 4, SEQS({100, 0}, {3, 600})),
    ATTN_MMA(14, 2, 64, 16, .window = 600, .sinks = 4, SEQS({1, 3000}, {3, 1500}, {1, 700})),
    ATTN_MMA(12, 2, 16, 8, .window = 65, .sinks = 512, SEQS({17, 560}, {90, 500}, {5, 60})),
    ATTN_MMA(2, 1, 64, 16, .window = 65, .sinks = 100, SEQS({80, 0})), ATTN_MMA(3, 1, 80, 32, .window = 1, .sinks = 70, SEQS({140, 0})),
    ATTN_MMA(8, 1, 128, 32, .window = 1200, .sinks = 33, SEQS({1, 4000}, {9, 20})),
    ATTN_MMA(8, 1, 64, 16, .window = 128, .sinks = 4, .extra = true, .softcap = 20, SEQS({1, 1030}, {40, 600}, {1, 3})),
    ATTN_MMA(71, 1, 64, 16, .window = 700, .sinks = 130, SEQS({1, 1700}, {2, 129})), ATTN_MMA(1, 1, 256, 8, .window = 513, .sinks = 511, SEQS({33, 1000})),
    ATTN_MMA(14, 2, 64, 16, .window = 300, .sinks = 8, .values = VALUES_SHARP, SEQS({60, 500}, {1, 1700})),
    ATTN_MMA(8, 2, 256, 16, .softcap = 3, .window = 520, .sinks = 4, .extra = true, SEQS({9, 1020}, {1, 1600})),
    ATTN_MMA(1, 1, 128, 16, .window = 700, .sinks = 4, SEQS({60, 1310})),

    /* Copies: one block, some, all of an arena; pieces small and large enough for several threads. */
    COPY(K_F16, 2, 64, 16, 1, 1), COPY(K_F16, 2, 16, 8, 5, 9), COPY(K_F32, 1, 80, 32, 3, 3),
    COPY(K_F16, 8, 128, 16, 17, 40), COPY(K_F32, 3, 256, 1, 33, 50), COPY(K_F16, 1, 48, 128, 64, 64),
    COPY(K_F16, 1, 16, 1, 300, 301), COPY(K_INT, 2, 64, 16, 5, 9), COPY(K_E4M3, 1, 16, 1, 300, 301), COPY(K_E5M2, 3, 80, 5, 17, 40),
    COPY(K_INT, 8, 128, 16, 40, 41),

    {.op = K_OP_SAMPLE, .n_tokens = 1, .n_rows = 1}, {.op = K_OP_SAMPLE, .n_tokens = 40, .n_rows = 5},
    {.op = K_OP_SAMPLE, .n_tokens = 200, .n_rows = 257},
    {.op = K_OP_SAMPLE, .n_tokens = 24, .n_rows = 32003},
    {.op = K_OP_SAMPLE, .n_tokens = 100, .n_rows = 1000, .values = VALUES_WIDE},
};
const size_t op_n_test_cases = sizeof op_test_cases / sizeof op_test_cases[0];

/* Shapes of a 0.5B model (hidden 896, 14/2 heads of 64, 4864 wide), unless another comment names the model. */
const struct op_case op_bench_cases[] = {
    GEMM(K_F16, 1, 4864, 896), GEMM(K_F16, 4, 4864, 896), GEMM(K_F16, 64, 4864, 896),
    GEMM(K_BF16, 1, 4864, 896), GEMM(K_BF16, 4, 4864, 896), GEMM(K_BF16, 64, 4864, 896),
    GEMM(K_F32, 1, 4864, 896), GEMM(K_F32, 4, 4864, 896), GEMM(K_F32, 64, 4864, 896),
    GEMM(K_F16, 1, 896, 4864), GEMM(K_F16, 64, 896, 4864),
    TILE(1, 4864, 896), TILE(4, 4864, 896), TILE(64, 4864, 896), TILE_BF16(64, 4864, 896), TILE_F16(64, 4864, 896),
    /* A 1.5B model (hidden 1536, 12/2 heads of 128, 8960 wide, 151936 tokens) and an 8B one (4096, 32/8, 14336,
     * 128256): qkv, o, gate and up, down, logits. */
    MMA_BATCHES(2048, 1536), MMA_BATCHES(1536, 1536), MMA_BATCHES(17920, 1536), MMA_BATCHES(1536, 8960),
    MMA(1, 151936, 1536), MMA(8, 151936, 1536), MMA(16, 151936, 1536),
    MMA_BATCHES(6144, 4096), MMA_BATCHES(4096, 4096), MMA_BATCHES(28672, 4096), MMA_BATCHES(4096, 14336),
    MMA(1, 128256, 4096), MMA(8, 128256, 4096), MMA(16, 128256, 4096),
    {.op = K_OP_EMBED, .dtype = K_F16, .n_tokens = 64, .n_rows = 32000, .n_cols = 896},
    QUANT(Q8_0, 1, 4864, 896), QUANT(Q8_0, 16, 4864, 896), QUANT(Q8_0, 512, 4864, 896), QUANT(Q4_0, 1, 4864, 896), QUANT(Q4_0, 16, 4864, 896),
    QUANT(Q4_0, 512, 4864, 896), QUANT(Q4_K, 1, 896, 4864), QUANT(Q6_K, 1, 896, 4864), QUANT(IQ4_NL, 1, 4864, 896), QUANT(IQ4_NL, 16, 4864, 896), QUANT(IQ4_XS, 1, 896, 4864), QUANT(MXFP4, 1, 4864, 896), QUANT(MXFP4, 16, 4864, 896), QUANT(INT4(128), 1, 4864, 896), QUANT(INT8(0), 1, 4864, 896),
    NORM(1, 896, .extra = true), NORM(64, 896, .extra = true), NORM(1, 4096, .extra = true), NORM(2048, 4096, .extra = true),
    GATED(K_F16, 1, 4864, 896), GATED(K_F16, 64, 4864, 896), GATED_MMA(1, 8960, 1536), GATED_MMA(512, 8960, 1536),
    GATED_MMA(512, 14336, 4096), GATED_BATCHES(14336, 4096),
    /* o and down of the 8B model in segments, and the layer's quantized weights. */
    MMA_SERVED(4096, 4096, 128), MMA_SERVED(4096, 14336, 256),
    QUANT(INT4(128), 1, 28672, 4096), QUANT(INT4(128), 16, 28672, 4096), QUANT(INT8(0), 1, 28672, 4096), QUANT(Q8_0, 1, 28672, 4096),
    QUANT(Q4_K, 1, 28672, 4096), QUANT(Q4_K, 512, 28672, 4096), QUANT(Q4_0, 1, 28672, 4096), QUANT(IQ4_NL, 1, 28672, 4096), QUANT(IQ4_XS, 1, 28672, 4096), QUANT(IQ4_XS, 512, 28672, 4096),
    QUANT(MXFP4, 1, 28672, 4096), QUANT(MXFP4, 512, 28672, 4096), QUANT(INT4(32), 1, 28672, 4096), QUANT(E2M1, 1, 28672, 4096), QUANT(E2M1, 16, 28672, 4096),
    {.op = K_OP_ROPE_ANGLES, .n_tokens = 64, .n_cols = 32},
    ROPE(K_F16, 14, 2, 64, 16, SEQS({64, 448})), ROPE(K_F16, 32, 8, 128, 16, .extra = true, SEQS({2048, 0})),
    ATTN(K_F16, 14, 2, 64, 16, SEQS({1, 2047})), ATTN(K_F16, 14, 2, 64, 16, SEQS({128, 384})),
    ATTN(K_F16, 32, 8, 128, 16, SEQS({1, 2047})), ATTN(K_F16, 16, 16, 64, 16, SEQS({1, 1023})),
    ATTN(K_F16, 14, 2, 64, 16, SEQS({1, 8191})), ATTN(K_F16, 14, 2, 64, 16, SEQS({1, 32767})),
    ATTN(K_F16, 32, 8, 128, 16, SEQS({1, 8191})), ATTN(K_F16, 16, 16, 64, 16, SEQS({1, 8191})),
    ATTN(K_F16, 14, 2, 64, 16, .window = 1024, SEQS({1, 32767})),
    ATTN(K_F16, 14, 2, 64, 16, SEQS(DECODE_64)), ATTN(K_F16, 32, 8, 128, 16, SEQS(DECODE_64)),
    ATTN(K_F16, 14, 2, 64, 16, SEQS({512, 0})), ATTN(K_F16, 14, 2, 64, 16, SEQS({512, 4096})),
    ATTN(K_F16, 32, 8, 128, 16, SEQS({512, 4096})), ATTN(K_F16, 16, 16, 64, 16, SEQS({512, 4096})),
    ATTN(K_F16, 14, 2, 64, 16, .window = 1024, SEQS({512, 4096})),
    ATTN_MMA(32, 8, 128, 16, SEQS(SAME_16(4095))), ATTN_MMA(32, 8, 128, 128, SEQS(SAME_16(4095))),
    ATTN_MMA(32, 8, 128, 16, SEQS(SAME_16(4095), SAME_16(4095), SAME_16(4095), SAME_16(4095))),
    ATTN_MMA(32, 8, 128, 16, SEQS(SAME_16(1023), SAME_16(1023), SAME_16(1023), SAME_16(1023))),
    ATTN_MMA(32, 8, 128, 16, SEQS(ZIPF_16)), ATTN_MMA(32, 8, 128, 128, SEQS(ZIPF_16)),
    ATTN_MMA(32, 8, 128, 16, SEQS({1, 131071})), ATTN_MMA(32, 8, 128, 16, SEQS({8192, 0})),
    ATTN_MMA(32, 8, 128, 16, SEQS({16384, 0})), ATTN_MMA(32, 8, 128, 16, SEQS({512, 4096})),
    ATTN_MMA(32, 8, 128, 16, SEQS({2048, 0}, ZIPF_16)), ATTN_MMA(14, 2, 64, 16, SEQS(DECODE_64)),
    /* Layers of Gemma 2 9B (16/8 heads of 256, softcap) and of GPT-OSS 20B (64/8 heads of 64, sinks). */
    ATTN(K_F16, 16, 8, 256, 16, .softcap = 50, SEQS({1, 2047})), ATTN(K_F16, 64, 8, 64, 16, .extra = true, SEQS({1, 2047})),
    ATTN_MMA(16, 8, 256, 16, .softcap = 50, SEQS(SAME_16(4095))), ATTN_MMA(16, 8, 256, 16, SEQS(SAME_16(4095))),
    ATTN_MMA(64, 8, 64, 16, .extra = true, SEQS(SAME_16(4095))), ATTN_MMA(64, 8, 64, 16, SEQS(SAME_16(4095))),
    /* An 8-bit cache. */
    ATTN(K_INT, 32, 8, 128, 16, SEQS(SAME_16(4095))), ATTN(K_E4M3, 32, 8, 128, 16, SEQS(SAME_16(4095))),
    ATTN(K_INT, 14, 2, 64, 16, SEQS({1, 8191})), ATTN(K_E4M3, 14, 2, 64, 16, SEQS({1, 8191})), ATTN(K_E5M2, 14, 2, 64, 16, SEQS({1, 8191})),
    ATTN(K_INT, 32, 8, 128, 16, SEQS({1, 8191})), ATTN(K_INT, 16, 16, 64, 16, SEQS({1, 8191})), ATTN(K_INT, 14, 2, 64, 16, SEQS({512, 4096})),
    COPY(K_F16, 2, 64, 16, 1, 64), COPY(K_F16, 2, 64, 16, 64, 64), COPY(K_F16, 8, 128, 16, 64, 64),
    {.op = K_OP_SAMPLE, .n_tokens = 1, .n_rows = 151936, .sampling = SAMPLING_FULL},
    {.op = K_OP_SAMPLE, .n_tokens = 16, .n_rows = 151936, .sampling = SAMPLING_FULL},
    {.op = K_OP_SAMPLE, .n_tokens = 1, .n_rows = 151936, .sampling = SAMPLING_GREEDY},
    {.op = K_OP_SAMPLE, .n_tokens = 1, .n_rows = 151936, .sampling = SAMPLING_TOP_P},
    {.op = K_OP_SAMPLE, .n_tokens = 64, .n_rows = 151936, .sampling = SAMPLING_TEMPERATURE},
    {.op = K_OP_SAMPLE, .n_tokens = 128, .n_rows = 131072, .sampling = SAMPLING_TOP_P},
};
const size_t op_n_bench_cases = sizeof op_bench_cases / sizeof op_bench_cases[0];
/* clang-format on */

uint32_t op_n_seqs(const struct op_case *c)
{
    uint32_t n = 0;
    while (n < OP_MAX_SEQS && c->seqs[n].n_tokens > 0)
        n++;
    return n;
}

uint32_t op_n_tokens(const struct op_case *c)
{
    if (op_n_seqs(c) == 0)
        return c->n_tokens;
    uint32_t n = 0;
    for (uint32_t s = 0; s < op_n_seqs(c); s++)
        n += c->seqs[s].n_tokens;
    return n;
}

bool op_is_gemm(const struct op_case *c)
{
    return c->op == K_OP_GEMM || c->op == K_OP_GEMM_GATED || op_is_moe_gemm(c);
}

bool op_is_moe_gemm(const struct op_case *c)
{
    return c->op == K_OP_MOE_GEMM || c->op == K_OP_MOE_GEMM_GATED;
}

uint64_t op_all_rows(const struct op_case *c)
{
    return (uint64_t)c->n_rows * (op_is_moe_gemm(c) ? c->moe->n_experts : 1);
}

struct k_gate op_gate(const struct op_case *c)
{
    return (struct k_gate){c->gate, c->scale};
}

bool op_is_quantized(const struct op_case *c)
{
    return c->format.bits > 0;
}

struct op_stored op_stored(const struct op_case *c)
{
    return c->stored ? *c->stored : (struct op_stored){.scale_rows = 0};
}

bool op_has_cache(const struct op_case *c)
{
    return c->op == K_OP_ROPE_KV || c->op == K_OP_ATTENTION || c->op == K_OP_KV_COPY;
}

bool op_has_byte_cache(const struct op_case *c)
{
    return op_has_cache(c) && k_dtype_bytes(c->dtype) == 1;
}

uint64_t op_cache_row_bytes(const struct op_case *c)
{
    return c->head_dim * k_dtype_bytes(c->dtype) + (op_has_byte_cache(c) ? sizeof(float) : 0);
}

struct k_format op_format(const struct op_case *c, uint32_t part)
{
    if (op_has_cache(c))
        return k_kv_format(c->dtype);
    if (!op_is_quantized(c))
        return k_format_of(c->dtype);
    return part % 2 == 1 && op_stored(c).other.bits > 0 ? op_stored(c).other : c->format;
}

uint32_t op_part_rows(const struct op_case *c, uint32_t part)
{
    uint32_t n_parts = c->n_parts ? c->n_parts : 1, first = 0;
    for (uint32_t p = 0; p < part; p++)
        first += c->n_rows / (n_parts + 1) + p;
    return part + 1 < n_parts ? c->n_rows / (n_parts + 1) + part : c->n_rows - first;
}

uint64_t op_weight_bytes(const struct op_case *c)
{
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < (c->n_parts ? c->n_parts : 1); p++) {
        const struct k_format format = op_format(c, p);
        uint64_t groups = format.group ? (c->n_cols + format.group - 1) / format.group : 1;
        bool has_planes = format.packing == K_PACKING_PLANES;
        bytes += op_part_rows(c, p) *
                 (k_format_bytes(format, c->n_cols) + (has_planes ? groups * k_dtype_bytes(format.scale) : 0) +
                  (has_planes && op_stored(c).has_zeros ? groups : 0));
    }
    return bytes * (op_is_moe_gemm(c) ? c->moe->n_experts : 1);
}

bool op_is_fill(const struct op_case *c, uint64_t token)
{
    return token + c->n_fill >= op_n_tokens(c);
}

static char name[256];

__attribute__((format(printf, 1, 2))) static void append(const char *format, ...)
{
    size_t used = strlen(name);
    va_list args;
    va_start(args, format);
    vsnprintf(name + used, sizeof name - used, format, args);
    va_end(args);
}

const char *op_sampling_name(enum op_sampling sampling)
{
    static const char *const names[N_SAMPLINGS] = {"", "greedy", "temperature", "top_p", "full"};
    return names[sampling];
}

static void append_format(const struct op_case *c)
{
    const struct op_stored stored = op_stored(c);
    append(" %s", k_format_name(op_format(c, 0)));
    if (stored.other.bits > 0)
        append("/%s", k_format_name(stored.other));
    if (c->format.packing == K_PACKING_PLANES && c->format.group > 0)
        append(" of %u", c->format.group);
    else if (c->format.packing == K_PACKING_PLANES)
        append(" of a row");
    if (stored.scale_rows > 1)
        append(" and %u rows", stored.scale_rows);
    if (stored.scale_step > 1)
        append(" at every row %u", stored.scale_step);
    append("%s%s%s", stored.has_zeros ? ", zeros" : "", stored.permuted ? ", permuted" : "",
           stored.x_scale != 0 ? ", x scale" : "");
}

static void append_moe(enum k_operation op, const struct op_moe *moe)
{
    static const char *const scores[] = {"softmax", "top softmax", "sigmoid"};
    append(" C%u", moe->n_used);
    if (moe->n_experts > 0)
        append(" E%u", moe->n_experts);
    if (moe->n_groups > 1)
        append(" of %u/%u groups%s", moe->n_groups_used, moe->n_groups, moe->group_by_best ? " by best" : "");
    append("%s%s", moe->per_choice ? " per choice" : "", moe->normalize ? " normalized" : "");
    if (op == K_OP_MOE_ROUTE)
        append(" %s", scores[moe->score]);
}

const char *op_name(const struct op_case *c)
{
    static const char *const values[] = {"", " wide", " tiny", " sharp", " broken", " full"};
    static const char *const forms[] = {"", " tile", " tile-bf16", " mma", " int8"};
    name[0] = '\0';
    append("%s", k_operation_name(c->op));
    if (op_is_gemm(c) || c->op == K_OP_EMBED || op_has_cache(c))
        append_format(c);
    append("%s", forms[c->form]);
    if (c->op == K_OP_KV_COPY)
        append(" %u heads of %u, blocks of %u", c->n_kv_heads, c->head_dim, c->block_tokens);
    else if (c->head_dim > 0)
        append(" %u/%u heads of %u, blocks of %u, window %u, from", c->n_q_heads, c->n_kv_heads, c->head_dim,
               c->block_tokens, c->window);
    for (uint32_t s = 0; s < op_n_seqs(c) && s < 4; s++)
        append(" %u", c->seqs[s].position);
    if (op_n_seqs(c) > 4)
        append(" and %u more", op_n_seqs(c) - 4);
    append(" T%u", op_n_tokens(c));
    if (c->n_fill > 0)
        append(", %u of no slot", c->n_fill);
    if (c->sinks > 0)
        append(", sinks %u", c->sinks);
    append("%s", c->exact ? ", exact" : "");
    if (c->most_position > 0)
        append(", to %u", c->most_position);
    if (c->n_fixed > 0)
        append(", %u fixed", c->n_fixed);
    if (c->scale != 0)
        append(", by %g", (double)c->scale);
    if (c->softcap != 0)
        append(", softcap %g", (double)c->softcap);
    if (c->gate != K_GATE_SILU)
        append(c->gate == K_GATE_CLAMPED ? ", clamped to %g" : ", gelu", (double)c->scale);
    if (c->n_rows > 0)
        append(" N%u", c->n_rows);
    if (c->n_cols > 0)
        append(" K%u", c->n_cols);
    if (c->moe)
        append_moe(c->op, c->moe);
    if (c->n_parts > 1)
        append(" in %u parts", c->n_parts);
    if (c->unit > 0)
        append(" segments of %u", c->unit);
    append("%s%s%s%s", c->extra ? " +" : "", c->into ? " into" : "", c->whole ? " whole" : "", values[c->values]);
    if (c->sampling != SAMPLING_MIXED)
        append(" %s", op_sampling_name(c->sampling));
    return name;
}
