/* Runs a model's layers one at a time over calibration samples, and shows the inputs of each layer's matrices. Memory:
 * one layer's weights, one sample's KV cache, and the residual stream of all samples. A layer is a pipeline stage of its
 * own (engine/forward); the residual stream goes from stage to stage through memory here.
 *
 * Owns the model, a backend (`cpu`, GEMM form lane, KV in float32) and the residual streams. One thread; the backend has
 * workers. */
#ifndef QUIRE_TOOLS_QUANTIZE_LAYERS_H
#define QUIRE_TOOLS_QUANTIZE_LAYERS_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct calibration_layers;

/* The matrices of a layer that have the same input. */
enum calibration_site { CALIBRATION_QKV, CALIBRATION_O, CALIBRATION_GATE_UP, CALIBRATION_DOWN, CALIBRATION_N_SITES };

/* Called for each site of a sample, in the order of the sites. x: [n_tokens, n_cols] */
typedef void (*calibration_observer)(void *context, enum calibration_site site, const float *x, uint32_t n_tokens,
                                     uint32_t n_cols);

/* What is run: ids [n_samples, length]. */
struct calibration_input {
    const char *model;
    const uint32_t *ids;
    uint32_t n_samples, length;
    uint32_t n_threads;
};

/* Rejects a model with experts, and one that is not a decoder. `input->ids` is borrowed. */
int calibration_layers_open(const struct calibration_input *input, struct calibration_layers **out,
                            struct quire_error *err);
void calibration_layers_close(struct calibration_layers *l); /* NULL is fine */
uint32_t calibration_n_layers(const struct calibration_layers *l);

/* Loads layer `layer`; layers come in rising order. */
int calibration_layer_begin(struct calibration_layers *l, uint32_t layer, struct quire_error *err);
/* Runs the layer over all samples. observer: NULL, or as above. advance: the layer's output becomes the next layer's
 * input. */
int calibration_layer_run(struct calibration_layers *l, calibration_observer observer, void *context, bool advance,
                          struct quire_error *err);
/* Replaces a site's matrices by f32 ones, [n_rows[i], n_cols] each, in the order in which the model stacks them. They are
 * borrowed until calibration_layer_end(). */
int calibration_layer_replace(struct calibration_layers *l, enum calibration_site site, const float *const *matrices,
                              const uint32_t *n_rows, uint32_t n_matrices, uint32_t n_cols, struct quire_error *err);
void calibration_layer_end(struct calibration_layers *l);

#endif
