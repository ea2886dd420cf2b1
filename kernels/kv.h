/* The layout of a KV cache in a backend's memory. Owns nothing. Pure functions; any thread. Sizes and offsets are in
 * bytes. */
#ifndef QUIRE_KERNELS_KV_H
#define QUIRE_KERNELS_KV_H

#include "base/status.h"
#include "kernels/format.h"

#include <stdint.h>

/* One layer's K and V, each n_blocks blocks in backend memory. A block is [KV, block_tokens, D] of the format, where D
 * is head_dim of K and v_dim of V. A
 * quantized block holds bytes, followed by their scales, float [KV, block_tokens]. */
struct k_kv_layer {
    void *k_dev;
    void *v_dev;
};

#define K_NO_SLOT UINT32_MAX /* the slot of a padding token, whose K and V are not stored */

struct k_kv_shape {
    struct k_format format; /* from k_kv_format() */
    uint32_t n_kv_heads;
    uint32_t head_dim; /* of K; multiple of 16, at most 256 */
    uint32_t block_tokens;
    uint32_t v_dim; /* of a head of V; k_kv_check() */
};
/* F32 or F16, or K_INT (8 bits), K_E4M3 or K_E5M2 with a scale for each token and head. */
struct k_format k_kv_format(enum k_dtype kind);
/* QUIRE_UNSUPPORTED: no kernel here computes heads of V that are not as wide as those of K. */
int k_kv_check(const struct k_kv_shape *kv, struct quire_error *err);
#ifdef __cplusplus
extern "C" { /* for launches of GPU kernels, too */
#endif
uint64_t k_kv_scales_at(const struct k_kv_shape *kv); /* byte offset of a block's scales, if it has any */
uint64_t k_kv_block_bytes(const struct k_kv_shape *kv); /* size of a block of K; a multiple of 16 */
uint64_t k_kv_v_block_bytes(const struct k_kv_shape *kv); /* of V */
#ifdef __cplusplus
}
#endif

#endif
