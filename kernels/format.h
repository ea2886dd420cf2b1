/* The storage formats of tensors: of a file's tensor, a weight, or a KV cache. Constant data and pure functions; any
 * thread. Sizes are in bytes, except where a name says bits. No function fails. */
#ifndef QUIRE_KERNELS_FORMAT_H
#define QUIRE_KERNELS_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum k_dtype {
    K_F32,
    K_F16,
    K_BF16,
    K_INT, /* its number of bits is in the format */
    K_E4M3,
    K_E5M2,
    K_E2M1, /* of MXFP4, 4 bits */
    K_E8M0, /* a power of two; only scales of K_E2M1 */
};
size_t k_dtype_bytes(enum k_dtype dtype); /* only for a dtype of whole bytes */
/* Returns "float32", "float16", "bfloat16", "int", "float8_e4m3", "float8_e5m2", "float4_e2m1" or "float8_e8m0". */
const char *k_dtype_name(enum k_dtype dtype);

enum k_packing {
    K_PACKING_NONE, /* elements in sequence, each of whole bytes, without scales */
    /* As NONE, but two 4-bit elements share a byte, the low half first. Scales and zero points are separate planes. */
    K_PACKING_PLANES,
    /* GGUF's blocks of 32 or 256 columns, which contain their scales. A row consists of whole blocks. */
    K_PACKING_Q8_0,
    K_PACKING_Q4_0,
    K_PACKING_Q4_1,
    K_PACKING_Q5_0,
    K_PACKING_Q5_1,
    K_PACKING_MXFP4,
    K_PACKING_IQ4_NL,
    K_PACKING_Q2_K,
    K_PACKING_Q3_K,
    K_PACKING_Q4_K,
    K_PACKING_Q5_K,
    K_PACKING_Q6_K,
    K_PACKING_IQ4_XS,
};
#define K_N_PACKINGS 15

/* The storage format of a tensor: a tensor in a file, a weight, or a KV cache. */
struct k_format {
    enum k_dtype kind; /* the type of an element before it is widened */
    uint32_t bits; /* size of a stored element; 4 is half a byte */
    uint32_t group; /* elements of a row that share a scale; 0: the whole row, or no scales */
    enum k_dtype scale; /* type of the scales */
    enum k_packing packing;
};
/* The plain formats, without groups. For initializers. */
#define K_FORMAT_F32 {K_F32, 32, 0, K_F32, K_PACKING_NONE}
#define K_FORMAT_F16 {K_F16, 16, 0, K_F32, K_PACKING_NONE}
#define K_FORMAT_BF16 {K_BF16, 16, 0, K_F32, K_PACKING_NONE}
struct k_format k_format_of(enum k_dtype dtype);
/* Returns the format of a GGUF packing. */
struct k_format k_format_of_blocks(enum k_packing packing);
/* Returns a format of planes: int4, int8, e2m1, e4m3 or e5m2, with a scale for each `group` columns of a row (0: one for the
 * whole row). */
struct k_format k_format_of_planes(enum k_dtype kind, uint32_t bits, uint32_t group, enum k_dtype scale);
bool k_format_is_plain(struct k_format format); /* one of the three plain formats: no scales */
bool k_format_is_quantized(struct k_format format); /* one of the other formats of docs/internals/numerics.md §19 */
bool k_format_is_integers(struct k_format format); /* one of those whose q are integers */
uint64_t k_format_bytes(struct k_format format, uint64_t n); /* size of a row of n elements, without planes of scales */
const char *k_format_name(struct k_format format); /* for messages: "bfloat16", "Q4_K", "int4" */

#endif
