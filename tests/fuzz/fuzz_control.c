/* A CONTROL command: every value that reaches the engine is in range, and every error is one line of text. */
#include "fuzz.h"

#include "engine/engine.h"
#include "server/daemon/internal.h"

#include <stdlib.h>
#include <string.h>

/* The engine's part. */
int engine_set_policy(struct engine *e, const char *name, const struct engine_policy_options *options, uint64_t *order,
                      struct quire_error *err)
{
    (void)e;
    (void)order;
    (void)err;
    if (!*name || strchr(name, ' ') || (options && options->prefill_share > 100))
        abort();
    return QUIRE_OK;
}

uint64_t engine_unpin(struct engine *e, uint32_t tenant)
{
    (void)e;
    if (tenant >= ENGINE_MAX_TENANTS)
        abort();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct daemon d;
    struct quire_error err = {.text = ""};
    uint64_t order = 0;
    /* A copy of the exact size: a read past its end is seen. */
    char *copy = malloc(n ? n : 1);
    if (!copy)
        return 0;
    if (n)
        memcpy(copy, data, n);
    int status = control_run(&d, copy, n, &order, &err);
    if ((status == QUIRE_OK) != !err.text[0])
        abort();
    free(copy);
    return 0;
}
