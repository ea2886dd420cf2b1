/* A checkpoint's tensors bound to the description: every GEMM weight as the backend's k_weight over
 * the mapping, in place, and every norm, bias and inverse frequency as f32 in one arena.
 *
 * Owns the k_weights and the arena; borrows the mapping and the backend, which must outlive it.
 * Made and destroyed on the thread that drives the backend; read only by it.
 */
#ifndef QUIRE_ENGINE_WEIGHTS_H
#define QUIRE_ENGINE_WEIGHTS_H

#include "base/status.h"
#include "engine/model/model.h"
#include "engine/model/safetensors.h"
#include "kernels/kernels.h"

/* One layer. Bias and norm pointers are in backend memory; NULL where the model has none. */
struct layer_weights {
    struct k_weight *qkv;     /* [(Q + 2 KV) D, H]: q, k and v stacked */
    struct k_weight *o;       /* [H, Q D] */
    struct k_weight *gate_up; /* [2 I, H]: gate, then up */
    struct k_weight *down;    /* [H, I] */
    const float *qkv_bias, *o_bias, *gate_up_bias, *down_bias;
    const float *input_norm, *post_norm; /* [H] */
    const float *q_norm, *k_norm;        /* [D] */
};

struct weights {
    struct k_weight *embed;   /* [V, H] */
    struct k_weight *lm_head; /* [V, H]; the same object as embed when tied */
    const float *final_norm;  /* [H] */
    const float *inv_freq;    /* [D / 2] */
    uint32_t n_layers;
    struct layer_weights *layers;
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
