/* Two tokenizer.json, split at a NUL byte: their comparison ends for any content, and equal files compare as equal. */
#include "../fuzz.h"

#include "engine/model/draft.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct quire_error err;
    const char *first = (const char *)data, *split = n ? memchr(first, 0, n) : NULL;
    size_t n_first = split ? (size_t)(split - first) : n, n_second = split ? n - n_first - 1 : 0;
    const char *second = split ? split + 1 : "";
    bool same = model_same_tokens(first, n_first, second, n_second, &err) == QUIRE_OK;
    if (!same && err.text[0] == '\0')
        abort();
    /* Space around it makes other bytes of the same value, so that both are parsed. */
    char *padded = malloc(n_first + 1);
    if (!padded)
        return 0;
    memcpy(padded, first, n_first);
    padded[n_first] = ' ';
    if (same && n_first > 0 && model_same_tokens(padded, n_first + 1, second, n_second, &err) != QUIRE_OK &&
        (n_first != n_second || memcmp(first, second, n_first) != 0))
        abort();
    free(padded);
    return 0;
}
