#include "tools/quantize/method.h"

#include <stdio.h>
#include <string.h>

static const struct quantizer_gguf_mix q8_0 = {7, K_PACKING_Q8_0, K_PACKING_Q8_0, false, false},
                                       q4_0 = {2, K_PACKING_Q4_0, K_PACKING_Q6_K, false, false},
                                       q4_1 = {3, K_PACKING_Q4_1, K_PACKING_Q6_K, false, false},
                                       q5_0 = {8, K_PACKING_Q5_0, K_PACKING_Q6_K, false, false},
                                       q5_1 = {9, K_PACKING_Q5_1, K_PACKING_Q6_K, false, false},
                                       q4_k_m = {15, K_PACKING_Q4_K, K_PACKING_Q6_K, true, false},
                                       q5_k_m = {17, K_PACKING_Q5_K, K_PACKING_Q6_K, true, false},
                                       q6_k = {18, K_PACKING_Q6_K, K_PACKING_Q6_K, false, false},
                                       mxfp4 = {38, K_PACKING_MXFP4, K_PACKING_Q8_0, false, true};

#define CALIBRATED " calibration calibration-samples calibration-length "
#define GGUF(name, mix, options) {name, LAYOUT_GGUF, ALGORITHM_ROUND, {8, 32, true, K_F16}, K_E4M3, &mix, 0, 0, options}
static const struct quantizer_method methods[] = {
    {"absmax-int8", LAYOUT_PACKED, ALGORITHM_ROUND, {8, 0, true, K_F32}, K_E4M3, NULL, 0, 0, " group-size "},
    {"zeropoint-int8", LAYOUT_PACKED, ALGORITHM_ROUND, {8, 0, false, K_F32}, K_E4M3, NULL, 0, 0, " group-size "},
    {"int4-block", LAYOUT_PACKED, ALGORITHM_ROUND, {4, 128, true, K_F32}, K_E4M3, NULL, 0, 0, " group-size sym "},
    {"fp8-e4m3", LAYOUT_FP8, ALGORITHM_ROUND, {8, 0, true, K_F32}, K_E4M3, NULL, 0, 0, " "},
    {"fp8-e5m2", LAYOUT_FP8, ALGORITHM_ROUND, {8, 0, true, K_F32}, K_E5M2, NULL, 0, 0, " "},
    {"mxfp4", LAYOUT_MXFP4, ALGORITHM_ROUND, {4, 32, true, K_F32}, K_E4M3, NULL, 0, 0, " "},
    {"gptq",
     LAYOUT_GPTQ,
     ALGORITHM_GPTQ,
     {4, 128, true, K_F16},
     K_E4M3,
     NULL,
     128,
     2048,
     " bits group-size sym desc-act damp" CALIBRATED},
    {"awq", LAYOUT_AWQ, ALGORITHM_AWQ, {4, 128, false, K_F16}, K_E4M3, NULL, 512, 512, " group-size" CALIBRATED},
    {"smoothquant-w8a8", LAYOUT_INTS, ALGORITHM_SMOOTHQUANT, {8, 0, true, K_F32}, K_E4M3, NULL, 512, 512, CALIBRATED},
    GGUF("gguf-q8_0", q8_0, " "),
    GGUF("gguf-q4_0", q4_0, " "),
    GGUF("gguf-q4_1", q4_1, " "),
    GGUF("gguf-q5_0", q5_0, " "),
    GGUF("gguf-q5_1", q5_1, " "),
    GGUF("gguf-q4_k_m", q4_k_m, " imatrix "),
    GGUF("gguf-q5_k_m", q5_k_m, " imatrix "),
    GGUF("gguf-q6_k", q6_k, " imatrix "),
    GGUF("gguf-mxfp4", mxfp4, " "),
    {"imatrix", LAYOUT_GGUF, ALGORITHM_IMATRIX, {8, 32, true, K_F16}, K_E4M3, NULL, 128, 512, CALIBRATED},
};
#define N_METHODS (sizeof methods / sizeof *methods)

const char *quantizer_method_names(void)
{
    static const char names[] = "absmax-int8, zeropoint-int8, int4-block, fp8-e4m3, fp8-e5m2, mxfp4, gptq, awq, "
                                "smoothquant-w8a8, gguf-q8_0, gguf-q4_0, "
                                "gguf-q4_1, gguf-q5_0, gguf-q5_1, gguf-q4_k_m, gguf-q5_k_m, gguf-q6_k, gguf-mxfp4, "
                                "imatrix";
    return names;
}

/* An option of the command line, and whether the method has one value only for it and this is the value. */
struct option {
    bool is_set, is_fixed, is_its_value;
    const char *name;
};

/* Rejects an option that the method does not have, except the value that the method uses anyway. */
static int check_applies(const struct quantizer_method *m, const struct option *option, struct quire_error *err)
{
    char word[40];
    snprintf(word, sizeof word, " %s ", option->name);
    if (!option->is_set || option->is_its_value || strstr(m->options, word))
        return QUIRE_OK;
    if (option->is_fixed)
        return quire_fail(err, QUIRE_INVALID, "--%s: --method %s has one value only, and not this one", option->name,
                          m->name);
    return quire_fail(err, QUIRE_INVALID, "--%s: does not apply to --method %s", option->name, m->name);
}

static int check_all(const struct quantizer_method *m, const struct quantizer_choices *c, struct quire_error *err)
{
    bool has_bits = m->layout != LAYOUT_GGUF;
    bool has_integers = has_bits && m->layout != LAYOUT_FP8 && m->layout != LAYOUT_MXFP4;
    bool has_groups = m->layout == LAYOUT_MXFP4 || m->layout == LAYOUT_INTS;
    int64_t group = m->how.group ? (int64_t)m->how.group : -1;
    const struct option all[] = {
        {c->is_set.bits, has_bits, has_bits && c->bits == m->how.bits, "bits"},
        {c->is_set.group, has_groups, has_groups && c->group == group, "group-size"},
        {c->is_set.symmetric, has_integers, has_integers && c->symmetric == m->how.symmetric, "sym"},
        {c->is_set.desc_act, false, has_bits && !c->desc_act, "desc-act"},
        {c->is_set.damp, false, false, "damp"},
        {c->is_set.calibration, false, false, "calibration"},
        {c->is_set.samples, false, false, "calibration-samples"},
        {c->is_set.length, false, false, "calibration-length"},
        {c->is_set.imatrix, false, false, "imatrix"},
    };
    int status = QUIRE_OK;
    for (size_t i = 0; status == QUIRE_OK && i < sizeof all / sizeof *all; i++)
        status = check_applies(m, &all[i], err);
    return status;
}

static int apply(const struct quantizer_method *m, const struct quantizer_choices *c, struct quantizer_integers *how,
                 struct quire_error *err)
{
    *how = m->how;
    if (c->is_set.bits && c->bits != 4 && c->bits != 8)
        return quire_fail(err, QUIRE_INVALID, "--bits: %u is not supported; 4 and 8 are", c->bits);
    if (c->is_set.group && c->group != -1 && (c->group <= 0 || c->group % 16 != 0 || c->group > 1 << 20))
        return quire_fail(err, QUIRE_INVALID,
                          "--group-size: %lld is not supported; -1 (the row) and multiples of 16 are",
                          (long long)c->group);
    if (m->algorithm != ALGORITHM_ROUND && !c->calibration)
        return quire_fail(err, QUIRE_INVALID, "--calibration: is missing: --method %s needs a text file, or JSONL",
                          m->name);
    if (c->is_set.bits)
        how->bits = c->bits;
    if (c->is_set.group)
        how->group = c->group < 0 ? 0 : (uint32_t)c->group;
    if (c->is_set.symmetric)
        how->symmetric = c->symmetric;
    return QUIRE_OK;
}

int quantizer_method_choose(const struct quantizer_choices *choices, const struct quantizer_method **method,
                            struct quantizer_integers *how, struct quire_error *err)
{
    *method = NULL;
    if (!choices->method)
        return quire_fail(err, QUIRE_INVALID, "--method: is missing; methods: %s", quantizer_method_names());
    for (size_t i = 0; i < N_METHODS; i++)
        if (strcmp(methods[i].name, choices->method) == 0)
            *method = &methods[i];
    if (!*method)
        return quire_fail(err, QUIRE_INVALID, "--method: \"%.40s\" is unknown; methods: %s", choices->method,
                          quantizer_method_names());
    int status = check_all(*method, choices, err);
    return status == QUIRE_OK ? apply(*method, choices, how, err) : status;
}
