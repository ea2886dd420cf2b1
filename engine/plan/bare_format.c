/* Lists the formats of weights that --weights accepts. */
#include "engine/model/quantization/quantize.h"
#include "engine/plan_bare.h"

#include <string.h>

#define F32 K_FORMAT_F32
#define F16 K_FORMAT_F16
#define BF16 K_FORMAT_BF16
#define NONE {.bits = 0}
#define Q8_0 {K_INT, 8, 32, K_F16, K_PACKING_Q8_0}
#define Q4_0 {K_INT, 4, 32, K_F16, K_PACKING_Q4_0}
#define Q4_K {K_INT, 4, 32, K_F16, K_PACKING_Q4_K}
#define Q5_K {K_INT, 5, 32, K_F16, K_PACKING_Q5_K}
#define Q6_K {K_INT, 6, 16, K_F16, K_PACKING_Q6_K}
#define INT4_128 {K_INT, 4, 128, K_F16, K_PACKING_PLANES}
#define INT8_128 {K_INT, 8, 128, K_F16, K_PACKING_PLANES}
#define INT8_ROW {K_INT, 8, 0, K_F32, K_PACKING_PLANES}
#define FP8_ROWS QUANTIZE_BLOCK_ROWS
#define E4M3_128 {K_E4M3, 8, 128, K_F32, K_PACKING_PLANES}
#define MXFP4 {K_E2M1, 4, 32, K_E8M0, K_PACKING_PLANES}

static const struct bare_format formats[] = {
    {"f32", "4 bytes", F32, NONE, F32, false, 0, NULL},
    {"f16", "2 bytes", F16, NONE, F16, false, 0, NULL},
    {"bf16", "2 bytes", BF16, NONE, BF16, false, 0, NULL},
    {"int8", "8 bits, a float16 scale for 32 columns (Q8_0)", Q8_0, NONE, Q8_0, false, 0, "int8"},
    {"int4", "4 bits, a float16 scale for 32 columns (Q4_0); the head Q8_0", Q4_0, NONE, Q8_0, false, 0, "int4-block"},
    {"fp8", "e4m3, a float32 scale for 128 x 128; the head as config.json says", E4M3_128, NONE, NONE, false, FP8_ROWS,
     "fp8"},
    {"w8a8", "8 bits, a float32 scale for a row; the head as config.json says", INT8_ROW, NONE, NONE, false, 0, NULL},
    {"gptq", "4 bits, a float16 scale and a zero point for 128 columns", INT4_128, NONE, NONE, true, 0, NULL},
    {"gptq-8", "8 bits, a float16 scale and a zero point for 128 columns", INT8_128, NONE, NONE, true, 0, NULL},
    {"awq", "4 bits, a float16 scale and a zero point for 128 columns", INT4_128, NONE, NONE, true, 0, NULL},
    {"mxfp4", "e2m1, a scale of 8 bits for 32 columns", MXFP4, NONE, NONE, false, 0, NULL},
    {"q8_0", "GGUF: 8.5 bits", Q8_0, NONE, Q8_0, false, 0, NULL},
    {"q6_k", "GGUF: 6.56 bits", Q6_K, NONE, Q6_K, false, 0, NULL},
    {"q5_k_m", "GGUF: Q5_K, and Q6_K for half of the V and down projections", Q5_K, Q6_K, Q6_K, false, 0, NULL},
    {"q4_k_m", "GGUF: Q4_K, and Q6_K for half of the V and down projections", Q4_K, Q6_K, Q6_K, false, 0, NULL},
    {"q4_0", "GGUF: 4.5 bits; the head Q6_K", Q4_0, NONE, Q6_K, false, 0, NULL},
};

const struct bare_format *bare_format_at(size_t i)
{
    return i < sizeof formats / sizeof formats[0] ? &formats[i] : NULL;
}

const struct bare_format *bare_format_find(const char *name)
{
    static const char *const aliases[][2] = {
        {"float32", "f32"}, {"fp32", "f32"},      {"float16", "f16"},     {"fp16", "f16"},
        {"half", "f16"},    {"bfloat16", "bf16"}, {"int4-block", "int4"}, {"smoothquant-w8a8", "w8a8"}};
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        name = strcmp(name, aliases[i][0]) == 0 ? aliases[i][1] : name;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strcmp(name, formats[i].name) == 0)
            return &formats[i];
    return NULL;
}
