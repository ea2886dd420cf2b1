/* Two questions, separated by a NUL: nothing outside them is read, their order does not matter, and a text equals
 * itself. */
#include "fuzz.h"

#include "server/similar/guards.h"

#include <stdlib.h>
#include <string.h>

/* A copy of the text's own size, so that a byte too many is noticed. */
static char *copy(const uint8_t *data, size_t n, const char *before)
{
    size_t k = strlen(before);
    char *text = malloc(n + k + (n + k == 0));
    if (!text)
        abort();
    memcpy(text, before, k);
    memcpy(text + k, data, n);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const uint8_t *nul = n > 0 ? memchr(data, 0, n) : NULL;
    size_t n_a = nul ? (size_t)(nul - data) : n, n_b = nul ? n - n_a - 1 : 0;
    char *a = copy(data, n_a, ""), *b = copy(nul ? nul + 1 : data, n_b, ""), *c = copy(data, n_a, " ");
    enum guard guard = guard_differs(a, n_a, b, n_b);
    if (guard >= N_GUARDS || guard != guard_differs(b, n_b, a, n_a) ||
        guard_differs(a, n_a, c, n_a + 1) != GUARD_NONE || !*guard_name(guard))
        abort();
    free(a);
    free(b);
    free(c);
    return 0;
}
