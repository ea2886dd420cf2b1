#include "tools/quantize/writer/tensor_list.h"

#include "base/encoding/little_endian.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define ALIGNMENT 64u

struct tensor_list_item *tensor_list_add(struct tensor_list *list, const char *name, const char *suffix,
                                         const char *dtype, uint64_t n_bytes, uint32_t n_dims, const uint64_t *shape)
{
    if (!list->failed && list->n == list->capacity) {
        const uint32_t capacity = list->capacity ? list->capacity * 2 : 256;
        struct tensor_list_item *items = realloc(list->items, capacity * sizeof *items);
        list->failed = !items;
        if (items) {
            list->items = items;
            list->capacity = capacity;
        }
    }
    if (list->failed)
        return NULL;
    struct tensor_list_item *item = &list->items[list->n];
    memset(item, 0, sizeof *item);
    const int n = snprintf(item->name, sizeof item->name, "%s%s", name, suffix);
    list->failed = n < 0 || (size_t)n >= sizeof item->name || n_dims > 8;
    if (list->failed)
        return NULL;
    item->dtype = dtype;
    item->n_dims = n_dims;
    memcpy(item->shape, shape, n_dims * sizeof *shape);
    item->n_bytes = n_bytes;
    if (list->alignment)
        list->n_bytes = (list->n_bytes + list->alignment - 1) / list->alignment * list->alignment;
    item->begin = list->n_bytes;
    list->n_bytes += n_bytes;
    list->n++;
    return item;
}

void tensor_list_free(struct tensor_list *list)
{
    free(list->items);
    *list = (struct tensor_list){0};
}

static json_t *item_json(const struct tensor_list_item *item)
{
    json_t *shape = json_array(), *offsets = json_array();
    for (uint32_t i = 0; i < item->n_dims; i++)
        json_array_append_new(shape, json_integer((json_int_t)item->shape[i]));
    json_array_append_new(offsets, json_integer((json_int_t)item->begin));
    json_array_append_new(offsets, json_integer((json_int_t)(item->begin + item->n_bytes)));
    return json_pack("{s:s, s:o, s:o}", "dtype", item->dtype, "shape", shape, "data_offsets", offsets);
}

int tensor_list_header(const struct tensor_list *list, struct buffer *out, struct quire_error *err)
{
    json_t *root = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    for (uint32_t i = 0; root && i < list->n; i++)
        if (json_object_set_new(root, list->items[i].name, item_json(&list->items[i])) != 0) {
            json_decref(root);
            root = NULL;
        }
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    uint8_t length[8];
    const size_t n = text ? strlen(text) : 0, padded = (n + 8 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    le_store_u64(length, padded - 8);
    buffer_append(out, length, sizeof length);
    buffer_append(out, text, n);
    for (size_t i = n + 8; i < padded; i++)
        buffer_append(out, " ", 1);
    free(text);
    return text && !out->failed ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
}
