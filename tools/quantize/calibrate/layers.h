/* Runs a model's layers one at a time over calibration samples, and shows the inputs of each layer's matrices. Memory:
 * one layer's weights, one sample's KV cache, and the residual stream of all samples. A layer is a pipeline stage of its
 * own (engine/forward); the residual stream goes from stage to stage through memory here.
 *
 * Owns the model, a backend (`cpu`, KV in float32) and the residual streams. The GEMM form is lane, but tile for BF16
 * weights on a machine with AMX: the same accuracy in a third of the time. Weights that replace others are then rounded
 * to BF16. One thread; the backend has
 * workers. */
#ifndef QUIRE_TOOLS_QUANTIZE_LAYERS_H
#define QUIRE_TOOLS_QUANTIZE_LAYERS_H

#include "base/status.h"
#include "kernels/gemm_form.h"

#include <stdbool.h>
#include <stdint.h>

struct calibration_layers;

/* The matrices of a layer that have the same input; of experts, of each. */
enum calibration_site {
    CALIBRATION_QKV,
    CALIBRATION_O,
    CALIBRATION_GATE_UP,
    CALIBRATION_DOWN,
    CALIBRATION_SHARED_GATE_UP, /* of the shared expert */
    CALIBRATION_SHARED_DOWN,
    CALIBRATION_N_SITES
};

/* A site's inputs, of one sample. */
struct calibration_rows {
    enum calibration_site site;
    const float *x; /* [n_tokens, n_cols]; or [n_tokens, n_used, n_cols], a row for each choice */
    uint32_t n_tokens, n_cols;
    const uint32_t *experts; /* [n_tokens, n_used], who computes with the row; NULL: not experts' */
    uint32_t n_used;
    bool per_choice;
};

/* Called for each site of a sample, in the order in which the layer computes. */
typedef void (*calibration_observer)(void *context, const struct calibration_rows *rows);

/* The input: ids [n_samples, length]. */
struct calibration_input {
    const char *model;
    const uint32_t *ids;
    uint32_t n_samples, length;
    uint32_t n_threads;
};

/* The form of BF16 weights on this machine, with which the activations' last bits change. */
int calibration_form(enum k_gemm_form *out, struct quire_error *err);

/* Rejects a model that is not a decoder. `input->ids` is borrowed. */
int calibration_layers_open(const struct calibration_input *input, struct calibration_layers **out,
                            struct quire_error *err);
void calibration_layers_close(struct calibration_layers *l); /* NULL is fine */
uint32_t calibration_n_layers(const struct calibration_layers *l);
/* Experts of a layer; 0: it has an MLP. */
uint32_t calibration_n_experts(const struct calibration_layers *l, uint32_t layer);

/* Whether the input of down is the product of up's output with something, so that rows of up can be divided: not of a clamped
 * gate, as gpt-oss has it. */
bool calibration_is_linear_in_up(const struct calibration_layers *l, uint32_t layer);

/* What is added to a norm's stored numbers: 0, or Gemma's 1. */
float calibration_norm_offset(const struct calibration_layers *l);

/* Whether the blocks of a layer have a norm before and one after them, as Gemma 2 and 3 have. */
bool calibration_has_two_norms(const struct calibration_layers *l, uint32_t layer);

/* Loads layer `layer`; layers come in rising order. */
int calibration_layer_begin(struct calibration_layers *l, uint32_t layer, struct quire_error *err);
/* Runs the layer over all samples. observer: NULL, or as above. advance: the layer's output becomes the next layer's
 * input. */
int calibration_layer_run(struct calibration_layers *l, calibration_observer observer, void *context, bool advance,
                          struct quire_error *err);
/* f32 matrices [n_experts][n_parts], each [n_rows, n_cols], parts in the order in which the model stacks them. */
struct calibration_matrices {
    const float *const *w;
    const uint32_t *n_rows; /* of each */
    uint32_t n_experts, n_parts, n_cols; /* n_experts 1: not experts' */
};
/* Replaces a site's matrices, also again. They are borrowed until calibration_layer_end(). */
int calibration_layer_replace(struct calibration_layers *l, enum calibration_site site,
                              const struct calibration_matrices *m, struct quire_error *err);
void calibration_layer_end(struct calibration_layers *l);

#endif
