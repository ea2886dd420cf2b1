/* A run that writes a directory of safetensors, as its parts see it: checkpoint_job.c lists and writes tensors,
 * calibrated.c the matrices of a calibrated method, both with the functions here. Private to these files; one thread. */
#ifndef QUIRE_TOOLS_QUANTIZE_CHECKPOINT_RUN_H
#define QUIRE_TOOLS_QUANTIZE_CHECKPOINT_RUN_H

#include "base/buffer.h"
#include "engine/checkpoint/checkpoint.h"
#include "tools/quantize/calibrate/samples.h"
#include "tools/quantize/job.h"
#include "tools/quantize/source.h"
#include "tools/quantize/writer/layouts.h"
#include "tools/quantize/writer/output.h"

#include <jansson.h>

/* A tensor of the source, or an expert's part of one, and its tensors in the output. */
struct checkpoint_unit {
    uint32_t source; /* checkpoint_at()'s */
    const struct experts_apart *apart; /* NULL: the whole tensor; otherwise the part of an expert */
    uint32_t expert, part;
    bool is_quantized;
    bool is_blocks; /* the whole tensor has all experts and becomes gpt-oss's MXFP4 */
    uint32_t first_item, n_items; /* of the list */
    char name[TENSOR_LIST_NAME_BYTES]; /* that of the tensor; of a part that which it would have alone */
};

struct checkpoint_run {
    const struct quantizer_job *job;
    struct quantizer_report *report;
    struct checkpoint *checkpoint;
    struct checkpoint_unit *units;
    uint32_t n_units;
    struct tensor_list list;
    json_t *ignored; /* modules that stay plain */
    bool has_blocks; /* only experts are quantized, as gpt-oss's MXFP4 */
    struct quantizer_integers how; /* with the scales' dtype */
    struct buffer header, config;
    struct calibration_samples samples; /* of a calibrated method */
    struct quantizer_output *output;
    uint64_t done_weights, n_weights;
};

/* Gives a unit's tensor, with its name and shape. If the unit is a part of a tensor, out->data is NULL. */
void checkpoint_run_tensor(const struct checkpoint_run *r, uint32_t unit, struct checkpoint_tensor *out);
/* Widens the matrix of a unit. out: [rows, cols] */
int checkpoint_run_load(const struct checkpoint_run *r, uint32_t unit, float *out, struct quire_error *err);

struct quantizer_matrix_shape checkpoint_run_shape(const struct checkpoint_run *r, const struct checkpoint_tensor *t);

/* Arrays for a matrix; free them with checkpoint_run_free_codes(), also after a failure. */
int checkpoint_run_alloc_codes(const struct checkpoint_run *r, const struct checkpoint_tensor *t,
                               struct quantizer_codes *out, struct quire_error *err);
void checkpoint_run_free_codes(struct quantizer_codes *codes);

/* Writes a unit's tensors, and notes that it is done. */
int checkpoint_run_write_codes(struct checkpoint_run *r, uint32_t unit, const struct checkpoint_tensor *t,
                               const struct quantizer_codes *codes, struct quire_error *err);
/* Writes an expert's matrix of a unit with is_blocks. t: the matrix. */
int checkpoint_run_write_expert(struct checkpoint_run *r, uint32_t unit, const struct checkpoint_tensor *t,
                                const struct quantizer_codes *codes, uint32_t expert, uint32_t n_experts,
                                struct quire_error *err);
/* Reads the tensors of a GPTQ unit that is done. codes->groups is set. */
int checkpoint_run_read_codes(struct checkpoint_run *r, uint32_t unit, const struct checkpoint_tensor *t,
                              struct quantizer_codes *codes, struct quire_error *err);
/* Writes a unit that stays plain: bytes in the place of the source's. */
int checkpoint_run_write_plain(struct checkpoint_run *r, uint32_t unit, const void *data, struct quire_error *err);

#endif
