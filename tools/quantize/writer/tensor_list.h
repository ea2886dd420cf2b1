/* The tensors of an output file, in the order of their data, and the header of a safetensors file with them. One thread
 * at a time. */
#ifndef QUIRE_TOOLS_QUANTIZE_TENSOR_LIST_H
#define QUIRE_TOOLS_QUANTIZE_TENSOR_LIST_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stdint.h>

#define TENSOR_LIST_NAME_BYTES 256

struct tensor_list_item {
    char name[TENSOR_LIST_NAME_BYTES];
    const char *dtype; /* "F16": static */
    uint32_t n_dims;
    uint64_t shape[8];
    uint64_t begin, n_bytes; /* begin: of the data, which the header precedes */
};

struct tensor_list {
    struct tensor_list_item *items; /* owned */
    uint32_t n, capacity;
    uint64_t n_bytes;
    uint32_t alignment; /* of each tensor; 0: each begins where the one before ends */
    bool failed; /* no memory, or a name is too long; the list is invalid */
};

/* Appends a tensor behind the others. NULL: the list has failed. The shape is copied. */
struct tensor_list_item *tensor_list_add(struct tensor_list *list, const char *name, const char *suffix,
                                         const char *dtype, uint64_t n_bytes, uint32_t n_dims, const uint64_t *shape);
void tensor_list_free(struct tensor_list *list);

/* Appends the 8 bytes of the length and the JSON, padded to 64 bytes, so that data is aligned. Order the items by
 * falling size of element: then every tensor lies on a boundary of its dtype. */
int tensor_list_header(const struct tensor_list *list, struct buffer *out, struct quire_error *err);

#endif
