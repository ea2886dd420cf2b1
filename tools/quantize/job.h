/* One run of `quire quantize`: a model's files to OUT. The process's only thread calls; rows of a matrix are shared by
 * threads that end with each call. On failure nothing is left in place, except OUT.partial of another command. */
#ifndef QUIRE_TOOLS_QUANTIZE_JOB_H
#define QUIRE_TOOLS_QUANTIZE_JOB_H

#include "base/hash.h"
#include "base/status.h"
#include "tools/quantize/method.h"
#include "tools/quantize/writer/output.h"

#include <stdint.h>

struct quantizer_job {
    const char *model; /* a directory, or a GGUF file */
    const char *out;
    const struct quantizer_method *method;
    struct quantizer_integers how;
    const struct quantizer_choices *choices;
    uint32_t n_threads;
    /* what: is counted, such as "weights"; a literal. Another one begins another bar. */
    void (*progress)(void *context, const char *what, uint64_t done, uint64_t total);
    void *context;
};

/* What was written. */
struct quantizer_report {
    uint32_t n_quantized, n_copied; /* tensors */
    uint32_t n_rounded; /* matrices of experts that saw too few tokens of the calibration: rounded to the nearest */
    uint64_t source_bytes, bytes; /* of all tensors */
};

/* Writes a directory of safetensors. */
int quantizer_run_checkpoint(const struct quantizer_job *job, struct quantizer_report *report, struct quire_error *err);
/* Writes a GGUF file from a GGUF file. */
int quantizer_run_gguf(const struct quantizer_job *job, struct quantizer_report *report, struct quire_error *err);

/* Finishes an output whose units are all written, if Quire can load it. */
int quantizer_job_finish(const struct quantizer_job *job, struct quantizer_output *output, struct quire_error *err);

/* Writes llama.cpp's importance matrix of a model. report: only n_quantized, the layers. */
int quantizer_run_imatrix(const struct quantizer_job *job, struct quantizer_report *report, struct quire_error *err);

/* The output's bytes depend on these in addition to the settings and the source's weights. */
struct quantizer_inputs {
    const void *head; /* of the data file */
    size_t n_head;
    const uint32_t *ids; /* tokens of the calibration, or NULL */
    uint64_t n_ids;
    uint32_t form; /* the GEMM form of the calibration; 0 without one */
    struct key256 importance; /* hash of the importance matrix; zero without one */
};
struct key256 quantizer_job_identity(const struct quantizer_job *job, const struct key256 *source,
                                     const struct quantizer_inputs *inputs);

#endif
