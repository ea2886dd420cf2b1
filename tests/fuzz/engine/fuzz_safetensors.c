/* A safetensors image: whatever is accepted must lie inside the input. */
#include "../fuzz.h"

#include "engine/checkpoint/checkpoint.h"

#include <stdlib.h>

static void check(const struct checkpoint *st, const char *name, const uint8_t *data, size_t n)
{
    struct checkpoint_tensor t;
    struct quire_error err;
    if (checkpoint_find(st, name, &t, &err) != QUIRE_OK)
        return;
    const uint8_t *begin = t.data;
    if (begin < data || begin > data + n || t.n_bytes > (size_t)(data + n - begin))
        abort();
    uint64_t n_elements = 1;
    for (uint32_t i = 0; i < t.n_dims; i++)
        n_elements *= t.shape[i];
    if (k_format_bytes(t.format, n_elements) != t.n_bytes)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct checkpoint *st;
    struct quire_error err;
    if (checkpoint_open_memory(data, n, &st, &err) != QUIRE_OK)
        return 0;
    if (checkpoint_total_bytes(st) > n || checkpoint_n_files(st) != 1)
        abort();
    check(st, "a", data, n);
    check(st, "b", data, n);
    check(st, "model.norm.weight", data, n);
    checkpoint_digest(st); /* reads every tensor */
    checkpoint_close(st);
    return 0;
}
