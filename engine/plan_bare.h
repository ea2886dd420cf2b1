/* Plans of a model of which there is only config.json, with weights of a format that the caller names: sizes by
 * arithmetic. `quire plan` prints them. Reads no file and needs no device. No state; any thread. */
#ifndef QUIRE_ENGINE_PLAN_BARE_H
#define QUIRE_ENGINE_PLAN_BARE_H

#include "base/status.h"
#include "engine/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A format of weights, as --weights names it. Constant data. */
struct bare_format {
    const char *name;  /* "int4" */
    const char *says;  /* for people: what is stored, with scales */
    struct k_format layers; /* of the layers' matrices */
    struct k_format more;   /* of V and down projections in half of the layers; bits 0: as the others */
    struct k_format head;   /* of the matrix that makes logits, and of embeddings in a file of GGUF */
    bool zeros;             /* a zero point of an element's bits belongs to each group */
    uint32_t scale_rows;    /* rows that share a scale, of FP8 in blocks; 0: each row has its own */
    const char *made_by;    /* NULL, or the value of --quantization that makes it of plain weights */
};
const struct bare_format *bare_format_find(const char *name); /* NULL: no format has this name */
const struct bare_format *bare_format_at(size_t i);           /* NULL past the last */
/* What the text of config.json says of stored weights; BF16 if they are plain. Errors as quantization_read(). */
int bare_format_stated(const char *config, size_t n_config, struct bare_format *out, struct quire_error *err);
/* Bytes of `count` matrices of a layer, with their scales and zero points. */
uint64_t bare_matrix_bytes(const struct bare_format *format, uint64_t count, uint64_t n_rows, uint32_t n_cols);

/* The model: zeroed it is closed. */
struct bare_model {
    struct model_config *config; /* owned */
    struct bare_format format; /* chosen, or as config.json says */
};

/* config: the text of config.json. weights: a name, or NULL for what config.json says. Errors as model_describe_json(),
 * and QUIRE_INVALID for an unknown name, with all that are known. bare_close() frees. */
int bare_open(const char *config, size_t n_config, const char *weights, struct bare_model *out,
              struct quire_error *err);
/* The same model with weights of another format. Borrows m->config: do not close it. */
struct bare_model bare_with(const struct bare_model *m, const struct bare_format *format);
void bare_close(struct bare_model *m);

/* The weights of one of n_ranks that divide each layer. Bytes are of matrices: on a device as it stores them; on a host as
 * files do, with norms and biases. */
struct bare_weights {
    uint64_t parameters, active_parameters; /* active: a token computes with them, of embeddings alone with a row */
    uint64_t bytes;
    uint64_t step_bytes; /* that the step of one token reads */
    uint64_t repacked_bytes; /* that the cpu backend adds for the form int8 */
};
/* planner: of the device; only the cpu backend repacks. */
void bare_weights(const struct bare_model *m, uint32_t n_ranks, const struct k_planner *planner,
                  struct bare_weights *out);

/* The plan of rank 0 of n_ranks for `batch` sequences of `context` tokens, with just the KV blocks that these hold.
 * context may exceed what the model was made for. Errors as engine_plan_make(), and QUIRE_UNSUPPORTED where the model
 * does not divide among n_ranks. */
int bare_plan(const struct bare_model *m, const struct engine_options *options, uint32_t n_ranks, uint32_t context,
              uint32_t batch, struct engine_plan *out, struct quire_error *err);

#endif
