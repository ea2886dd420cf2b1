/* A GGUF image. Everything accepted lies inside it, the text made from its metadata is JSON, and a usable tensor has
 * the number of bytes of its format. */
#include "../fuzz.h"

#include "engine/checkpoint/checkpoint_table.h"
#include "files/gguf.h"
#include "files/gguf_made.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static void check_tensor(const struct gguf_tensor *t, const uint8_t *data, size_t n)
{
    if (t->data < data || t->data > data + n || t->n_bytes > (size_t)(data + n - t->data) || !gguf_type_name(t->type) ||
        t->n_dims > GGUF_MAX_DIMS || t->name[sizeof t->name - 1])
        abort();
}

static void check_made(const struct gguf *g,
                       int (*make)(const struct gguf *g, struct buffer *out, struct quire_error *err))
{
    struct buffer text = {0};
    struct quire_error err;
    err.text[0] = 0;
    if (make(g, &text, &err) == QUIRE_OK) {
        json_error_t why;
        json_t *json = text.failed ? NULL : json_loadb(text.data, text.n, JSON_ALLOW_NUL, &why);
        /* A token may have a NUL, which text/ reads; this library has no such keys. */
        if (!json_is_object(json) && !text.failed && json_error_code(&why) != json_error_null_byte_in_key)
            abort();
        json_decref(json);
    } else if (!err.text[0] || strchr(err.text, '\n')) {
        abort(); /* one line */
    }
    buffer_free(&text);
}

static void check_table(const struct gguf *g)
{
    struct checkpoint_table table = {0};
    struct quire_error err;
    if (checkpoint_add_gguf(&table, g, g, 0, &err) == QUIRE_OK && table.n != gguf_n_tensors(g))
        abort();
    for (size_t i = 0; i < table.n; i++) {
        const struct checkpoint_entry *e = &table.entries[i];
        uint64_t n = 1;
        for (uint32_t k = 0; k < e->n_dims; k++)
            n *= e->shape[k];
        if (!checkpoint_is_printable(e->name) || (e->usable && k_format_bytes(e->format, n) != e->end - e->begin))
            abort();
    }
    checkpoint_table_free(&table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct gguf *g;
    struct quire_error err;
    uint32_t number, n_files;
    if (gguf_open_memory(data, n, "fuzzed.gguf", &g, &err) != QUIRE_OK)
        return 0;
    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        check_tensor(gguf_tensor(g, i), data, n);
    if (gguf_split(g, &number, &n_files, &err) == QUIRE_OK && number >= n_files)
        abort();
    check_table(g);
    check_made(g, gguf_make_config);
    check_made(g, gguf_make_generation);
    check_made(g, gguf_make_tokenizer);
    check_made(g, gguf_make_tokenizer_config);
    gguf_close(g);
    return 0;
}
