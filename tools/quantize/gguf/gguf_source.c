#include "tools/quantize/gguf/gguf_source.h"

#include "files/gguf.h"
#include "files/model_files.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_ALIGNMENT 32u

static bool is_key(struct gguf_text key, const char *name)
{
    return key.n == strlen(name) && memcmp(key.data, name, key.n) == 0;
}

struct pair_place {
    const char *data;
    size_t n;
};

static int by_place(const void *a, const void *b)
{
    const struct pair_place *x = a, *y = b;
    return (x->data > y->data) - (x->data < y->data);
}

/* The pairs in the order of the file, without those that describe the output. */
static int copy_pairs(struct gguf_source *s, struct quire_error *err)
{
    static const char *const dropped[] = {"general.file_type", "general.quantization_version", "split.no",
                                          "split.count", "split.tensors.count"};
    struct gguf_text key, bytes;
    size_t n = 0;
    while (gguf_pair(s->gguf, n, &key, &bytes))
        n++;
    struct pair_place *places = calloc(n + 1, sizeof *places);
    if (!places)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    size_t n_kept = 0;
    for (size_t i = 0; i < n; i++) {
        bool is_dropped = false;
        gguf_pair(s->gguf, i, &key, &bytes);
        for (size_t d = 0; d < sizeof dropped / sizeof *dropped; d++)
            is_dropped |= is_key(key, dropped[d]);
        if (!is_dropped)
            places[n_kept++] = (struct pair_place){bytes.data, bytes.n};
    }
    qsort(places, n_kept, sizeof *places, by_place);
    for (size_t i = 0; i < n_kept; i++)
        buffer_append(&s->pairs.bytes, places[i].data, places[i].n);
    s->pairs.n = n_kept;
    free(places);
    return QUIRE_OK;
}

/* Plain types, and the MXFP4 in which gpt-oss was trained. Returns false for others. */
static bool source_type(uint32_t type, struct k_format *out)
{
    *out = type == 39 ? k_format_of_blocks(K_PACKING_MXFP4)
                      : k_format_of(type == 0   ? K_F32
                                    : type == 1 ? K_F16
                                                : K_BF16);
    return type == 0 || type == 1 || type == 30 || type == 39;
}

static int take_tensor(struct gguf_source *s, const struct gguf *g, const struct gguf_tensor *t,
                       struct quire_error *err)
{
    struct gguf_source_tensor *to = &s->tensors[s->n_tensors];
    struct k_format format;
    if (!source_type(t->type, &format))
        return quire_fail(err, QUIRE_INVALID,
                          "%.100s: tensor '%s' is already quantized (%s): use the file in F16, BF16 or F32",
                          gguf_name(g), t->name, gguf_type_name(t->type));
    memcpy(to->name, t->name, sizeof to->name);
    to->data = (struct checkpoint_tensor){.name = t->name,
                                          .file = gguf_name(g),
                                          .dtype = gguf_type_name(t->type),
                                          .format = format,
                                          .n_dims = t->n_dims,
                                          .data = t->data,
                                          .n_bytes = t->n_bytes};
    for (uint32_t i = 0; i < t->n_dims; i++)
        to->data.shape[i] = t->size[t->n_dims - 1 - i];
    s->n_tensors++;
    return QUIRE_OK;
}

static int from_gguf(const char *model, struct gguf_source *s, struct quire_error *err)
{
    uint64_t alignment = DEFAULT_ALIGNMENT;
    size_t n = 0;
    int status = gguf_open_model(model, &s->gguf, err);
    if (status == QUIRE_OK)
        status = gguf_u64(s->gguf, "general.alignment", &alignment, err);
    if (status == QUIRE_OK)
        status = copy_pairs(s, err);
    for (const struct gguf *g = s->gguf; status == QUIRE_OK && g; g = gguf_next(g))
        n += gguf_n_tensors(g);
    s->alignment = (uint32_t)alignment;
    s->tensors = calloc(n + 1, sizeof *s->tensors);
    if (status == QUIRE_OK && !s->tensors)
        status = quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    for (const struct gguf *g = s->gguf; status == QUIRE_OK && g; g = gguf_next(g))
        for (size_t i = 0; status == QUIRE_OK && i < gguf_n_tensors(g); i++)
            status = take_tensor(s, g, gguf_tensor(g, i), err);
    return status;
}

static int layer_of(const char *name)
{
    unsigned layer;
    return sscanf(name, "blk.%5u.", &layer) == 1 ? (int)layer : -1;
}

/* Orders tensors outside the layers first, then by layer, each by name, as llama-quantize does. */
static int by_layer(const void *a, const void *b)
{
    const struct gguf_source_tensor *x = a, *y = b;
    const int order = layer_of(x->name) - layer_of(y->name);
    return order ? order : strcmp(x->name, y->name);
}

int gguf_source_open(const char *model, struct gguf_source *out, struct quire_error *err)
{
    *out = (struct gguf_source){.alignment = DEFAULT_ALIGNMENT};
    int status = checkpoint_open(model, &out->checkpoint, err);
    if (status == QUIRE_OK)
        status = model_is_gguf(model) ? from_gguf(model, out, err) : gguf_source_convert(model, out, err);
    if (status == QUIRE_OK && out->pairs.bytes.failed)
        status = quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (status != QUIRE_OK) {
        gguf_source_close(out);
        return status;
    }
    qsort(out->tensors, out->n_tensors, sizeof *out->tensors, by_layer);
    for (uint32_t i = 0; i < out->n_tensors; i++) {
        const int layer = layer_of(out->tensors[i].name);
        out->n_layers = layer >= (int)out->n_layers ? (uint32_t)layer + 1 : out->n_layers;
    }
    return QUIRE_OK;
}

void gguf_source_close(struct gguf_source *s)
{
    for (uint32_t i = 0; i < s->n_tensors; i++)
        free(s->tensors[i].made);
    free(s->tensors);
    buffer_free(&s->pairs.bytes);
    gguf_close(s->gguf);
    checkpoint_close(s->checkpoint);
    *s = (struct gguf_source){0};
}
