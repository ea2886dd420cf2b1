#include "server/front/grammar/grammar_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* "/calls/2/schema/properties/a: why" becomes "item 2: function.parameters: /properties/a: why". */
static void name_tool(const struct grammar_request *r, char *text, size_t size)
{
    static const char calls[] = "/calls/", schema[] = "/schema";
    char *end, why[QUIRE_ERROR_BYTES];
    if (strncmp(text, calls, strlen(calls)) != 0)
        return;
    const unsigned long i = strtoul(text + strlen(calls), &end, 10);
    if (strncmp(end, schema, strlen(schema)) != 0)
        return;
    end += strlen(schema);
    snprintf(why, sizeof why, "%s%s", *end == '/' ? ": " : "", end);
    snprintf(text, size, "item %lu: function.parameters%.400s", i + r->first_tool, why);
}

void grammar_request_name(const struct grammar_request *r, struct api_error *e)
{
    if (r->source.form == QUIRE_FORM_TOOLS)
        name_tool(r, e->why.text, sizeof e->why.text);
    snprintf(e->param, sizeof e->param, "%s", r->field);
    quire_error_prefix(&e->why, "%s", r->field);
}

void grammar_request_free(struct grammar_request *r)
{
    if (!r)
        return;
    free(r->text);
    free(r);
}
