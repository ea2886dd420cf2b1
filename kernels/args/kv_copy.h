/* The arguments of the copies between a KV pool and its host tier. The rules of all operations (threads, order, memory,
 * errors) are in kernels/backend.h. */
#ifndef QUIRE_KERNELS_ARGS_KV_COPY_H
#define QUIRE_KERNELS_ARGS_KV_COPY_H

#include "kernels/kv.h"

#include <stdint.h>

struct k_block_pair {
    uint32_t from, to; /* block ids */
};
struct k_kv_copy_args { /* copies whole blocks of one layer, K and V, from one arena to another, or within one */
    const struct k_kv_shape *kv; /* of both arenas */
    const struct k_kv_layer *from, *to; /* on a device either may be memory from alloc_host() */
    /* [n_pairs] HOST memory, read before the call returns. No block is `to` twice, or both `to` and `from` in one
     * arena. */
    const struct k_block_pair *pairs;
    uint32_t n_pairs;
};

#endif
