/* A tenants file: it is taken, or the error says why in plain text. */
#include "fuzz.h"

#include "server/front/tenant/tenants.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct quire_error err = {.text = ""};
    if (tenants_check((const char *)data, n, &err) == QUIRE_OK)
        return 0;
    if (!err.text[0])
        abort();
    for (const char *c = err.text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            abort();
    return 0;
}
