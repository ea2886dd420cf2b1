/* The part of a model that one rank holds. A zeroed shard is the whole model. share.h makes it and gives the sizes that
 * follow from it. Data only; any thread. */
#ifndef QUIRE_ENGINE_MODEL_SHARD_H
#define QUIRE_ENGINE_MODEL_SHARD_H

#include <stdbool.h>
#include <stdint.h>

struct model_shard {
    uint32_t rank, n_ranks; /* that divide each layer; n_ranks 0: nothing is divided */
    bool whole_experts; /* the ranks of a layer hold whole experts each; else columns of each expert */
    uint32_t stage, n_stages; /* pipeline stages; n_stages 0: this rank has all layers, and the next two are not set */
    uint32_t first_layer, end_layer;
    bool last_has_more; /* of layers that do not divide: the last stage has one more than the first */
    /* Set by weights_look_share(). */
    uint64_t repacked_bytes; /* of matrices that the backend repacks for the form int8 */
    uint64_t repacked_rows_bytes; /* of rows that loading repacks */
    uint64_t device_bytes; /* of a device's copies of all matrices, each in its format; 0: they are used in place */
};

#endif
