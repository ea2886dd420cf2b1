/* Builds the metadata of a GGUF file: keys with values, one after the other. The numbers of kinds are those of
 * files/gguf.h. One thread at a time. */
#ifndef QUIRE_TOOLS_QUANTIZE_GGUF_PAIRS_H
#define QUIRE_TOOLS_QUANTIZE_GGUF_PAIRS_H

#include "base/buffer.h"
#include "base/status.h"
#include "tools/quantize/writer/tensor_list.h"

#include <stdbool.h>
#include <stdint.h>

struct gguf_pairs {
    struct buffer bytes;
    uint64_t n;
    const char *arch; /* replaces "*" at the start of a key: "*.block_count" */
};

void gguf_pairs_u32(struct gguf_pairs *p, const char *key, uint32_t value);
void gguf_pairs_f32(struct gguf_pairs *p, const char *key, float value);
void gguf_pairs_bool(struct gguf_pairs *p, const char *key, bool value);
void gguf_pairs_text(struct gguf_pairs *p, const char *key, const char *value, size_t n);

/* Begins an array; the caller then appends n elements. kind: enum gguf_kind. */
void gguf_pairs_array(struct gguf_pairs *p, const char *key, uint32_t kind, uint64_t n);
void gguf_pairs_add_text(struct gguf_pairs *p, const char *value, size_t n);
void gguf_pairs_add_i32(struct gguf_pairs *p, int32_t value);

/* Appends everything of a file that comes before its data: the metadata and the list of tensors. types: GGUF's number of
 * each tensor's type; NULL: all are F32. */
int gguf_pairs_head(const struct gguf_pairs *p, const struct tensor_list *list, const uint32_t *types,
                    uint32_t alignment, struct buffer *out, struct quire_error *err);

#endif
