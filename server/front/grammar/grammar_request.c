#include "server/front/grammar/grammar_request.h"

#include <stdio.h>
#include <stdlib.h>

static struct key256 digest_of(const struct quire_grammar_source *s)
{
    const uint8_t how[2] = {(uint8_t)s->form, (uint8_t)s->whitespace};
    struct quire_sha256_state state;
    quire_sha256_begin(&state);
    quire_sha256_add(&state, how, sizeof how);
    quire_sha256_add(&state, s->text, s->n_bytes);
    return quire_sha256_now(&state);
}

bool grammar_request_set(struct grammar_request **out, const struct quire_grammar_source *how, char *text, size_t n,
                         const char *field, struct api_error *e)
{
    if (*out) {
        free(text);
        return api_bad(e, field, "conflicts with %s: an answer has one form", (*out)->field);
    }
    struct grammar_request *r = calloc(1, sizeof *r);
    if (!r || !text) {
        free(r);
        free(text);
        return api_no_memory(e);
    }
    r->source = *how;
    r->source.text = r->text = text;
    r->source.n_bytes = n;
    snprintf(r->field, sizeof r->field, "%s", field);
    r->digest = digest_of(&r->source);
    *out = r;
    return true;
}

void grammar_request_free(struct grammar_request *r)
{
    if (!r)
        return;
    free(r->text);
    free(r);
}
