/* A checkpoint's tensors bound to the description by the table of engine/model/tensors.h: every GEMM weight as the
 * backend's k_weight over the mapping, in place, and every norm, bias and inverse frequency as f32 in one arena.
 *
 * Owns the k_weights and the arena; borrows the mapping and the backend, which must outlive it.
 * Made and destroyed on the thread that drives the backend; read only by it.
 */
#ifndef QUIRE_ENGINE_WEIGHTS_H
#define QUIRE_ENGINE_WEIGHTS_H

#include "base/status.h"
#include "engine/model/model.h"
#include "engine/model/safetensors.h"
#include "engine/model/tensors.h"
#include "kernels/kernels.h"

/* What a site applies: y = matrix x + bias. */
struct site_weight {
    struct k_weight *matrix; /* NULL where the model has no such site */
    const float *bias;       /* in backend memory, or NULL */
    uint32_t unit;           /* of its sum's segments, k_gemm_args.unit */
};

/* Of one layer, or of what lies beside the layers. Vectors are in backend memory; NULL where the model has none. */
struct weight_set {
    struct site_weight site[MODEL_N_SITES];
    const float *vector[MODEL_N_VECTORS];
};

struct weights {
    struct weight_set *layers; /* [n_layers] */
    struct weight_set *beside; /* layers[n_layers] */
    const float *inv_freq;     /* [D / 2] */
    uint32_t n_layers;
    void *params_dev;
    struct k_backend *backend;
};

/* Sets desc->dtype to the dtype that the checkpoint's embedding, and with it the bulk, is stored
 * in: config.json may leave it out, or have been written for other files. */
int weights_stored_dtype(const struct safetensors *checkpoint, struct model_desc *desc, struct quire_error *err);

/* Checks every shape. Errors name the tensor, what was expected and what the checkpoint has. */
int weights_create(struct k_backend *backend, const struct safetensors *checkpoint, const struct model_desc *desc,
                   enum k_gemm_form form, struct weights **out, struct quire_error *err);
void weights_destroy(struct weights *w); /* NULL is fine */

#endif
