/* --speculative-config: an accepted value keeps the bounds of drafters, and an error is one line. */
#include "fuzz.h"

#include "speculation/config.h"
#include "speculation/drafter.h"

#include <stdlib.h>
#include <string.h>

static void check(const struct speculative_config *c)
{
    if (c->method >= DRAFT_N_METHODS || draft_method_find(draft_method_name(c->method)) != c->method)
        abort();
    if (c->num_speculative_tokens < 1 || c->num_speculative_tokens > DRAFT_MAX)
        abort();
    if (c->prompt_lookup_min < 1 || c->prompt_lookup_min > c->prompt_lookup_max ||
        c->prompt_lookup_max > SPECULATIVE_MAX_LOOKUP)
        abort();
    if (!memchr(c->model, 0, sizeof c->model) || (c->method == DRAFT_MODEL) != (c->model[0] != 0))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct speculative_config config;
    struct quire_error err;
    if (speculative_config_parse((const char *)data, n, &config, &err) == QUIRE_OK) {
        check(&config);
        return 0;
    }
    for (const char *c = err.text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            abort();
    return 0;
}
