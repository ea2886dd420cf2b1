/* Formulas without calibration against other programs: torch for integers and FP8, the gguf package for blocks of 32. The
 * hashes are those of their bytes (numpy 2.4, torch 2.15, gguf 0.19). */
#include "base/hash.h"
#include "kernels/quant.h"
#include "tests/quantize/draw.h"
#include "tools/quantize/methods/blocks.h"
#include "tools/quantize/methods/floats.h"
#include "tools/quantize/methods/integers.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const float eight[8] = {0.1f, -0.5f, 2.54f, -1.27f, 0.0f, 0.013f, 1.999f, -2.0f};

static void check_hash(const void *data, size_t n, const char *expected)
{
    char hex[65];
    const struct key256 hash = quire_sha256(data, n);
    quire_key256_hex(&hash, hex);
    assert_string_equal(hex, expected);
}

/* Rounds one row, and compares scale, zero point and codes. */
static void check_row(struct quantizer_integers how, const float *w, uint32_t n, float scale, uint32_t zero,
                      uint8_t *codes)
{
    float scales[1];
    uint8_t zeros[1];
    struct quantizer_codes out = {1, n, 1, codes, scales, zeros, NULL};
    quantizer_round(&how, w, 0, 1, &out);
    assert_memory_equal(scales, &scale, sizeof scale);
    assert_int_equal(zeros[0], zero);
}

static void integers_are_those_of_torch(void **state)
{
    static const uint8_t absmax[8] = {133, 103, 255, 64, 128, 129, 228, 28},
                         zeropoint[8] = {118, 84, 255, 41, 112, 113, 224, 0}, block[8] = {8, 7, 15, 4, 8, 8, 14, 2};
    uint8_t codes[4096];
    float w[4096];
    (void)state;
    check_row((struct quantizer_integers){8, 0, true, K_F32}, eight, 8, 0x1.47ae14p-6f, 128, codes);
    assert_memory_equal(codes, absmax, 8);
    check_row((struct quantizer_integers){8, 0, false, K_F32}, eight, 8, 0x1.23b31p-6f, 112, codes);
    assert_memory_equal(codes, zeropoint, 8);
    check_row((struct quantizer_integers){4, 0, true, K_F32}, eight, 8, 0x1.7390d2p-2f, 8, codes);
    assert_memory_equal(codes, block, 8);
    draw(w, 4096, 11);
    check_row((struct quantizer_integers){8, 0, true, K_F32}, w, 4096, 0x1.e93ff4p-8f, 128, codes);
    check_hash(codes, 4096, "0aee7db96cf70c928012ed3b7901ee809715b968275a07f5f4caf92ccca7ddf1");
    check_row((struct quantizer_integers){8, 0, false, K_F32}, w, 4096, 0x1.a47d7ep-8f, 148, codes);
    check_hash(codes, 4096, "bab88353ef9299bb15a3a0077205d521be18607aa4d09a738065a5f705d27d7a");
}

static void blocks_of_128_are_those_of_torch(void **state)
{
    const struct quantizer_integers how = {4, 128, true, K_F32};
    float w[4096], scales[32];
    uint8_t codes[4096], zeros[32];
    struct quantizer_codes out = {1, 4096, 32, codes, scales, zeros, NULL};
    (void)state;
    quantizer_round(&how, draw(w, 4096, 11), 0, 1, &out);
    check_hash(scales, sizeof scales, "0bd1f51b3f560a4a5feed3dbe0097c655db1ba9dd4d23fcb39de39070b96cabc");
    check_hash(codes, sizeof codes, "40da3c79521266debab0713052284227147e9fd5dde584ae889f1699166fdcf1");
}

static void fp8_is_that_of_torch(void **state)
{
    static const struct {
        enum k_dtype kind;
        float top, scale_of_eight, scale;
        uint8_t codes[8];
        const char *hash;
    } kinds[] = {{K_E4M3,
                  448,
                  0x1.7390d2p-8f,
                  0x1.15631ep-9f,
                  {89, 235, 126, 246, 0, 65, 123, 251},
                  "0d0c4953a257d48112d70b82c43da95027f64e5ea0462df6acbd7fc947791700"},
                 {K_E5M2,
                  57344,
                  0x1.7390d2p-15f,
                  0x1.15631ep-16f,
                  {104, 242, 123, 247, 0, 93, 122, 250},
                  "b013d85a12d3ddadb67fd63d355f5a7e5ee833ccb4816df044db05a765f67332"}};
    float w[4096];
    uint8_t codes[4096];
    (void)state;
    draw(w, 4096, 11);
    for (size_t i = 0; i < 2; i++) {
        assert_true(quantizer_fp8_scale(kinds[i].kind, 2.54f) == kinds[i].scale_of_eight);
        quantizer_fp8_round(kinds[i].kind, kinds[i].scale_of_eight, eight, 8, codes);
        assert_memory_equal(codes, kinds[i].codes, 8);
        float most = 0;
        for (uint32_t k = 0; k < 4096; k++)
            most = fmaxf(most, fabsf(w[k]));
        assert_true(quantizer_fp8_scale(kinds[i].kind, most) == kinds[i].scale);
        quantizer_fp8_round(kinds[i].kind, kinds[i].scale, w, 4096, codes);
        check_hash(codes, 4096, kinds[i].hash);
    }
    assert_true(quantizer_fp8_scale(K_E4M3, 0) == 1);
}

/* Ties go to even codes; scales are powers of two for which the largest weight is 3.5 to 7. */
static void mxfp4_is_the_nearest_number(void **state)
{
    static const float numbers[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6},
                       ties[10] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5, 7, -0.75f, -6};
    static const uint8_t codes_of_ties[10] = {0, 2, 2, 4, 4, 6, 6, 7, 10, 15};
    float w[32];
    uint8_t codes[32];
    (void)state;
    quantizer_mxfp4_round(1, ties, 10, codes);
    assert_memory_equal(codes, codes_of_ties, 10);
    assert_true(quantizer_mxfp4_scale(6.99f) == 1 && quantizer_mxfp4_scale(7) == 2 && quantizer_mxfp4_scale(3.5f) == 1);
    assert_true(quantizer_mxfp4_scale(0) == 0x1p-127f && quantizer_mxfp4_scale(0x1p-140f) == 0x1p-127f);
    assert_true(quantizer_mxfp4_scale(0x1.fffffep127f) == 0x1p126f);
    assert_true(quantizer_mxfp4_byte(4) == 127 && quantizer_mxfp4_byte(7.9f) == 127 && quantizer_mxfp4_byte(0) == 0);
    for (uint32_t seed = 1; seed < 200; seed++) {
        float most = 0;
        draw(w, 32, seed);
        for (uint32_t i = 0; i < 32; i++)
            most = fmaxf(most, fabsf(w[i]));
        const float scale = quantizer_mxfp4_scale(most);
        quantizer_mxfp4_round(scale, w, 32, codes);
        for (uint32_t i = 0; i < 32; i++) {
            float least = INFINITY;
            for (uint32_t k = 0; k < 8; k++)
                least = fminf(least, fabsf(fabsf(w[i]) - numbers[k] * scale));
            assert_true(fabsf(fabsf(w[i]) - numbers[codes[i] & 7] * scale) == least);
            assert_true((codes[i] & 8) == (w[i] < 0 ? 8 : 0));
        }
    }
}

static void blocks_of_32_are_those_of_the_gguf_package(void **state)
{
    static const struct {
        enum k_packing packing;
        const char *hash;
    } types[] = {{K_PACKING_Q8_0, "72ad251442c0a9555364510bce318fd67aaaeedcad4755d4fb2dd2956906e805"},
                 {K_PACKING_Q4_0, "8a02f6a4a2314f6c06166bd515c2fd092f6c7ec49bca0ad324138ed09a4e9e5c"},
                 {K_PACKING_Q4_1, "ad62218a94939cf15ed53364bd81993c5a13cbce58a3fccc436934e4cea276de"},
                 {K_PACKING_Q5_0, "16b9d78448421b606e93731d2fddf67c40a5f31b0024a8ae443616b9c85d2524"},
                 {K_PACKING_Q5_1, "61b86e6de0a4f068bfc220608331cf4171c719e5a3bbafa01681a6dec7d368ea"},
                 {K_PACKING_MXFP4, "23d830a74c037aa48fd605285f9d6e2f2ffb6cf88600d371738ebfbd5bbd8e13"}};
    float *w = malloc(65536 * sizeof *w);
    uint8_t *out = malloc(65536 * 2);
    (void)state;
    draw(w, 65536, 7);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const uint64_t bytes = k_format_bytes(k_format_of_blocks(types[i].packing), 1024);
        for (uint32_t row = 0; row < 64; row++)
            quantizer_blocks(types[i].packing, w + row * 1024, NULL, 1024, out + row * bytes);
        check_hash(out, 64 * bytes, types[i].hash);
    }
    free(w);
    free(out);
}

/* What a row of blocks stands for, by the reader that every kernel is compared with. */
static void read_blocks(enum k_packing packing, const uint8_t *blocks, uint32_t n, float *out)
{
    const struct k_format format = k_format_of_blocks(packing);
    const struct k_weight_view view = {
        .data = blocks, .format = format, .n_rows = 1, .n_cols = n, .row_stride_bytes = k_format_bytes(format, n)};
    for (uint32_t k = 0; k < n; k += format.group) {
        float scale, least;
        k_quant_scale(&view, 0, k, &scale, &least);
        k_quant_read(&view, 0, k, k + format.group, out + k);
        for (uint32_t i = k; i < k + format.group; i++)
            out[i] = scale * out[i] + least;
    }
}

static double square_error(enum k_packing packing, const float *w, const float *weights, uint32_t n)
{
    float *values = malloc(n * sizeof *values);
    uint8_t *blocks = malloc(n * 2);
    double sum = 0;
    quantizer_blocks(packing, w, weights, n, blocks);
    read_blocks(packing, blocks, n, values);
    for (uint32_t i = 0; i < n; i++)
        sum += (weights ? weights[i] : 1) * ((double)values[i] - w[i]) * ((double)values[i] - w[i]);
    free(values);
    free(blocks);
    return sum;
}

/* The search for scales gains what a grid from the least to the largest weight loses: the bounds are root mean squares of
 * that grid with exact scales, 2^bits codes over a group's range. */
static void blocks_of_256_beat_a_plain_grid(void **state)
{
    static const struct {
        enum k_packing packing;
        uint32_t group;
        float codes;
    } types[] = {{K_PACKING_Q4_K, 32, 15}, {K_PACKING_Q5_K, 32, 31}, {K_PACKING_Q6_K, 16, 63}};
    float w[8192], weights[8192];
    (void)state;
    draw(w, 8192, 5);
    for (uint32_t i = 0; i < 8192; i++)
        weights[i] = i % 7 == 0 ? 100 : 1;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        double grid = 0;
        for (uint32_t k = 0; k < 8192; k += types[t].group) {
            float least = 0, most = 0;
            for (uint32_t i = k; i < k + types[t].group; i++) {
                least = fminf(least, w[i]);
                most = fmaxf(most, w[i]);
            }
            const float step = types[t].packing == K_PACKING_Q6_K ? fmaxf(-least, most) / 31
                                                                  : (most - least) / types[t].codes;
            for (uint32_t i = k; i < k + types[t].group; i++)
                grid += pow(rintf(w[i] / step) * step - w[i], 2);
        }
        const double plain = square_error(types[t].packing, w, NULL, 8192);
        assert_true(plain < grid);
        /* Important columns get smaller errors than without importance. */
        double unweighted = 0;
        float values[256];
        uint8_t blocks[256];
        for (uint32_t k = 0; k < 8192; k += 256) {
            quantizer_blocks(types[t].packing, w + k, NULL, 256, blocks);
            read_blocks(types[t].packing, blocks, 256, values);
            for (uint32_t i = 0; i < 256; i++)
                unweighted += weights[k + i] * pow(values[i] - w[k + i], 2);
        }
        assert_true(square_error(types[t].packing, w, weights, 8192) < 0.95 * unweighted);
    }
}

static void special_blocks_are_exact(void **state)
{
    static const enum k_packing packings[] = {K_PACKING_Q8_0, K_PACKING_Q4_0, K_PACKING_Q4_1,
                                              K_PACKING_Q5_0, K_PACKING_Q5_1, K_PACKING_Q4_K,
                                              K_PACKING_Q5_K, K_PACKING_Q6_K, K_PACKING_MXFP4};
    const float zeros[256] = {0};
    (void)state;
    for (size_t i = 0; i < sizeof packings / sizeof *packings; i++) {
        assert_true(quantizer_has_blocks(packings[i]));
        assert_true(square_error(packings[i], zeros, NULL, 256) == 0);
    }
    assert_false(quantizer_has_blocks(K_PACKING_Q2_K));
}

/* |w − value| <= scale / 2, also with scales that are rounded, but for what the clipped ends lose. */
static void errors_are_at_most_half_a_step(void **state)
{
    static const enum k_dtype dtypes[] = {K_F32, K_F16, K_BF16};
    float w[1024], scales[64];
    uint8_t codes[1024], zeros[64];
    (void)state;
    draw(w, 1024, 3);
    for (uint32_t c = 0; c < 24; c++) {
        const struct quantizer_integers how = {c % 2 ? 4 : 8, c / 2 % 2 ? 32 : 0, c / 4 % 2, dtypes[c / 8]};
        const uint32_t n_groups = quantizer_n_groups(&how, 1024);
        struct quantizer_codes out = {1, 1024, n_groups, codes, scales, zeros, NULL};
        quantizer_round(&how, w, 0, 1, &out);
        for (uint32_t k = 0; k < 1024; k++) {
            const struct quantizer_grid grid = {scales[k * n_groups / 1024], zeros[k * n_groups / 1024]};
            const float error = fabsf(quantizer_value(grid, codes[k]) - w[k]);
            /* A scale in bf16 is off by 2^-9, and so are its 2^bits steps. */
            const float lost = dtypes[c / 8] == K_F32 ? 0 : grid.scale * 256 * 0x1p-9f;
            assert_true(error <= grid.scale * 0.5001f + lost + grid.scale * 0.5f * (float)!how.symmetric);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_are_those_of_torch),
        cmocka_unit_test(blocks_of_128_are_those_of_torch),
        cmocka_unit_test(fp8_is_that_of_torch),
        cmocka_unit_test(mxfp4_is_the_nearest_number),
        cmocka_unit_test(blocks_of_32_are_those_of_the_gguf_package),
        cmocka_unit_test(blocks_of_256_beat_a_plain_grid),
        cmocka_unit_test(special_blocks_are_exact),
        cmocka_unit_test(errors_are_at_most_half_a_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
