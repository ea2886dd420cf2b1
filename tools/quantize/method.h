/* The methods of `quire quantize` and their options. Constant data and pure functions; any thread. */
#ifndef QUIRE_TOOLS_QUANTIZE_METHOD_H
#define QUIRE_TOOLS_QUANTIZE_METHOD_H

#include "base/status.h"
#include "tools/quantize/methods/integers.h"
#include "tools/quantize/writer/layouts.h"

#include <stdbool.h>
#include <stdint.h>

/* How a method chooses numbers. */
enum quantizer_algorithm {
    ALGORITHM_ROUND, /* each weight alone, to the nearest */
    ALGORITHM_GPTQ,
    ALGORITHM_AWQ,
    ALGORITHM_SMOOTHQUANT,
    ALGORITHM_IMATRIX, /* no numbers: the importance matrix of the calibration */
};

/* Formats of the matrices of a GGUF file. */
struct quantizer_gguf_mix {
    uint32_t file_type; /* general.file_type */
    enum k_packing plain; /* of most matrices */
    enum k_packing better; /* the head; in the M mixes also half of attn_v and ffn_down */
    bool is_mixed;
    /* `plain` is for the matrices of experts, or where a model has none, of all layers; `better` for all others. */
    bool is_of_experts;
};

struct quantizer_method {
    const char *name;
    enum quantizer_layout layout;
    enum quantizer_algorithm algorithm;
    struct quantizer_integers how; /* defaults; `scale` is the checkpoint's dtype, except in GPTQ's and AWQ's files */
    enum k_dtype fp8;
    const struct quantizer_gguf_mix *gguf; /* of LAYOUT_GGUF */
    uint32_t samples, length; /* the calibration's defaults */
    const char *options; /* names of the options that apply: " bits group-size " */
};

/* The values of the command line. A value that is not set has is_set false. */
struct quantizer_choices {
    const char *method;
    uint32_t bits, samples, length;
    int64_t group; /* -1: the row */
    bool symmetric, desc_act;
    double damp;
    const char *calibration, *imatrix;
    struct {
        bool bits, group, symmetric, desc_act, damp, calibration, samples, length, imatrix;
    } is_set;
};

/* Finds the method and applies the choices to `how`. The error names the option. */
int quantizer_method_choose(const struct quantizer_choices *choices, const struct quantizer_method **method,
                            struct quantizer_integers *how, struct quire_error *err);

/* Returns the names of all methods with commas. */
const char *quantizer_method_names(void);

#endif
