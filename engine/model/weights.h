/* A checkpoint's tensors bound to the description by the table of engine/model/tensors.h: every GEMM weight as the
 * backend's k_weight over the mapping, in place where kernels can read it there, and every norm, bias and inverse
 * frequency as f32 in one arena.
 *
 * Owns the k_weights, the copies and the arena; borrows the mapping and the backend, which must outlive it.
 * Made and destroyed on the thread that drives the backend; read only by it. */
#ifndef QUIRE_ENGINE_WEIGHTS_H
#define QUIRE_ENGINE_WEIGHTS_H

#include "base/status.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/model/quantization/repack_cache.h"
#include "engine/model/share.h"
#include "engine/model/tensor_table.h"
#include "engine/model/tensors.h"
#include "kernels/backend.h"
#include "kernels/format.h"
#include "kernels/gemm_form.h"

/* The weights of a site: y = matrix x + bias. */
struct site_weight {
    struct k_weight *matrix; /* NULL where the model has no such site */
    const float *bias;       /* in backend memory, or NULL */
    uint32_t unit;           /* unit of the segments of its sum, k_gemm_args.unit */
    enum model_cut cut;      /* how the ranks divide it */
};

/* The weights of one layer, or those outside the layers. Vectors are in backend memory, and NULL if the model does
 * not have them. */
struct weight_set {
    struct site_weight site[MODEL_N_SITES];
    const float *vector[MODEL_N_VECTORS];
};

struct weights {
    struct weight_set *layers; /* [n_layers] */
    struct weight_set *beside; /* layers[n_layers] */
    struct site_weight head; /* output head; this rank's rows if there are several ranks; without a matrix if the
                              * model makes no logits */
    bool has_own_head; /* not one of a site's tensors */
    const float *inv_freq[MODEL_MAX_ROPES]; /* [dim / 2] of each of the model's ropes */
    uint32_t n_layers;
    void *params_dev;
    void *repacked_rows; /* host memory of repacked rows, whose order in the file differs from the kernels', and of rows
                      * quantized at load */
    const void *kept; /* instead of it: a mapped file of such rows (engine/model/quantization/repack_cache.h) */
    uint64_t kept_bytes;
    struct k_backend *backend;
};

/* Opens the model's checkpoint, together with the weights of modules in folders of their own. Errors as
 * checkpoint_open(). */
int weights_open(const char *model, const struct model_config *config, struct checkpoint **out,
                 struct quire_error *err);

/* Makes the facts of a checkpoint. The dtype is the one that its embedding is stored in: config.json may leave it out, or
 * have been written for other files. QUIRE_INVALID where quantization_config says otherwise than the tensors.
 * quantization: NULL, or as quantization_choose() takes it: what the file has, or what its plain weights are made into.
 */
int weights_stored_dtype(const struct checkpoint *checkpoint, const char *quantization,
                         const struct model_config *config, struct checkpoint_facts *out, struct quire_error *err);

/* The matrices of a checkpoint, grouped by format. */
#define WEIGHTS_MAX_FORMATS 16u
#define WEIGHTS_OWNERS (OF_MODEL + 1u)
struct weights_of_format {
    struct k_format format;
    uint64_t n_weights[WEIGHTS_OWNERS]; /* by enum model_owner: embeddings and head are OF_MODEL */
    uint64_t bytes, layer_bytes; /* bytes of elements; planes of scales are separate */
};
struct weights_contents {
    struct weights_of_format of[WEIGHTS_MAX_FORMATS];
    uint32_t n;
    uint64_t repacked_bytes, device_bytes; /* model_shard's, of weights_look_share() only */
    uint64_t n_vector_weights; /* of norms and biases */
    /* What one token computes with: not the experts that are not its own. The bytes are those that its step reads: of
     * embeddings without a head a row, of vectors f32. Planes of scales are left out, as above. */
    uint64_t n_active, active_bytes;
    bool has_quantized; /* as quantization_config says */
    bool needs_lanes; /* checkpoint_facts', and the two after it */
    char lanes_matrix[96];
    struct k_format lanes_format;
};
/* After weights_stored_dtype(). */
int weights_look(const struct checkpoint *checkpoint, const struct model_desc *desc, struct weights_contents *out,
                 struct quire_error *err);

uint64_t weights_n_parameters(const struct weights_contents *contents); /* of matrices and vectors */

/* Tensors that the model does not compute with, by kind. */
#define WEIGHTS_MAX_UNUSED 24u
#define WEIGHTS_IGNORED "not of this model (refused without --ignore-unused-tensors)"
struct weights_unused {
    struct weights_unused_kind {
        const char *what; /* "rotary tables"; WEIGHTS_IGNORED: what weights_unused() refuses */
        char first[MODEL_NAME_BYTES];
        uint32_t n;
        uint64_t bytes;
    } of[WEIGHTS_MAX_UNUSED];
    uint32_t n;
};
/* After weights_stored_dtype(). QUIRE_INVALID, naming the first: the checkpoint has a tensor under a name of the architecture,
 * or of a GGUF file under any name, that the model does not compute with, and that is not known to change nothing (rotary
 * tables, vision parts, a tied head that is a copy, biases of zeros ...). `ignore`: such tensors are counted instead. */
int weights_unused(const struct checkpoint *checkpoint, const struct model_desc *desc, bool ignore,
                   struct weights_unused *out, struct quire_error *err);
/* Whether the checkpoint names its tensors without "model.", or "bert.": it was saved from the model without its head. */
bool weights_are_bare(const struct checkpoint *checkpoint, const struct model_desc *desc);

/* Sizes of one rank's part: sets desc->shard.repacked_bytes, repacked_rows_bytes and device_bytes, and counts the bytes of
 * matrices that are mapped in place. planner: of the backend at hand, or NULL while it is not known: then repacked_bytes and
 * device_bytes are 0. */
int weights_look_share(const struct checkpoint *checkpoint, const struct k_planner *planner, struct model_desc *desc,
                       uint64_t *bytes, struct quire_error *err);

/* Called as matrices become ready: engine_options.loading. */
struct weights_progress {
    void (*fn)(void *context, uint64_t done, uint64_t total); /* NULL disables reports */
    void *context;
};

/* Misaligned tensors of the checkpoint are copied first. keep: where repacked rows are stored and found; NULL disables the cache. Checks every shape. Errors name the
 * tensor, the expected shape or dtype, and the one in the checkpoint. */
int weights_create(struct k_backend *backend, struct checkpoint *checkpoint, const struct model_desc *desc,
                   enum k_gemm_form form, const struct repack_source *keep, struct weights_progress progress,
                   struct weights **out, struct quire_error *err);
void weights_destroy(struct weights *w); /* NULL is fine */

#endif
