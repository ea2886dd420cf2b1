#include "tools/quantize/gguf/pairs.h"

#include "base/encoding/little_endian.h"
#include "files/gguf.h"

#include <string.h>

#define VERSION 3u

static void add_u32(struct buffer *b, uint32_t value)
{
    uint8_t bytes[4];
    le_store_u32(bytes, value);
    buffer_append(b, bytes, sizeof bytes);
}

static void add_u64(struct buffer *b, uint64_t value)
{
    uint8_t bytes[8];
    le_store_u64(bytes, value);
    buffer_append(b, bytes, sizeof bytes);
}

static void put_u32(struct gguf_pairs *p, uint32_t value)
{
    add_u32(&p->bytes, value);
}

static void put_u64(struct gguf_pairs *p, uint64_t value)
{
    add_u64(&p->bytes, value);
}

static void put_key(struct gguf_pairs *p, const char *key, uint32_t kind)
{
    const bool has_arch = key[0] == '*';
    const size_t n_arch = has_arch ? strlen(p->arch) : 0, n = strlen(key + has_arch);
    put_u64(p, n_arch + n);
    if (has_arch)
        buffer_append(&p->bytes, p->arch, n_arch);
    buffer_append(&p->bytes, key + has_arch, n);
    put_u32(p, kind);
    p->n++;
}

void gguf_pairs_u32(struct gguf_pairs *p, const char *key, uint32_t value)
{
    put_key(p, key, GGUF_U32);
    put_u32(p, value);
}

void gguf_pairs_f32(struct gguf_pairs *p, const char *key, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(p, key, GGUF_F32);
    put_u32(p, bits);
}

void gguf_pairs_bool(struct gguf_pairs *p, const char *key, bool value)
{
    put_key(p, key, GGUF_BOOL);
    buffer_append(&p->bytes, value ? "\1" : "\0", 1);
}

void gguf_pairs_text(struct gguf_pairs *p, const char *key, const char *value, size_t n)
{
    put_key(p, key, GGUF_STRING);
    gguf_pairs_add_text(p, value, n);
}

void gguf_pairs_array(struct gguf_pairs *p, const char *key, uint32_t kind, uint64_t n)
{
    put_key(p, key, GGUF_ARRAY);
    put_u32(p, kind);
    put_u64(p, n);
}

void gguf_pairs_add_text(struct gguf_pairs *p, const char *value, size_t n)
{
    put_u64(p, n);
    buffer_append(&p->bytes, value, n);
}

void gguf_pairs_add_i32(struct gguf_pairs *p, int32_t value)
{
    put_u32(p, (uint32_t)value);
}

/* ---- the file's head ---------------------------------------------------------------------------------------------- */

int gguf_pairs_head(const struct gguf_pairs *p, const struct tensor_list *list, const uint32_t *types,
                    uint32_t alignment, struct buffer *out, struct quire_error *err)
{
    buffer_append(out, "GGUF", 4);
    add_u32(out, VERSION);
    add_u64(out, list->n);
    add_u64(out, p->n);
    buffer_append(out, p->bytes.data, p->bytes.n);
    for (uint32_t i = 0; i < list->n; i++) {
        const struct tensor_list_item *item = &list->items[i];
        add_u64(out, strlen(item->name));
        buffer_append(out, item->name, strlen(item->name));
        add_u32(out, item->n_dims);
        for (uint32_t d = 0; d < item->n_dims; d++)
            add_u64(out, item->shape[item->n_dims - 1 - d]);
        add_u32(out, types ? types[i] : 0);
        add_u64(out, item->begin);
    }
    while (out->n % alignment != 0 && buffer_append(out, "", 1) == QUIRE_OK)
        ;
    return out->failed || p->bytes.failed ? quire_fail(err, QUIRE_NO_MEMORY, "out of memory") : QUIRE_OK;
}
