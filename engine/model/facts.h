/* What the weight files of a model add to its config.json. Made by weights_stored_dtype(), constant afterwards; any
 * thread. */
#ifndef QUIRE_ENGINE_MODEL_FACTS_H
#define QUIRE_ENGINE_MODEL_FACTS_H

#include "engine/model/quantization/quantization.h"
#include "kernels/format.h"

#include <stdbool.h>

struct checkpoint_facts {
    enum k_dtype dtype;            /* of the embedding; K_F16 where that is quantized */
    struct k_format weight_format; /* of most bytes of the layers' matrices; bits 0: no checkpoint was inspected */
    bool needs_lanes; /* a GEMM's matrix is neither float16 nor bfloat16, whatever most are */
    char lanes_matrix[96];        /* the first such matrix; "" without */
    struct k_format lanes_format; /* its format */
    bool int8_activations;        /* the weights were made to meet activations in int8 */
    enum k_dtype dense_dtype;     /* of the Dense module's weights */
    uint64_t copied_bytes;        /* of tensors that loading copies, since they are misaligned in the files */
    struct quantization quantization; /* of the file, or what --quantization makes of plain weights */
};

#endif
