#include "server/front/grammar/grammar_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct key256 digest_of(const struct grammar_request *r)
{
    const struct quire_grammar_source *s = &r->source;
    const uint8_t how[5] = {(uint8_t)s->form, (uint8_t)s->whitespace, (uint8_t)r->reasoning_format,
                            s->reasoning != NULL, (uint8_t)r->reasoning.begins};
    struct quire_sha256_state state;
    quire_sha256_begin(&state);
    quire_sha256_add(&state, how, sizeof how);
    quire_sha256_add(&state, &r->reasoning.budget, sizeof r->reasoning.budget);
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
    r->digest = digest_of(r);
    *out = r;
    return true;
}

/* ---- the reasoning before the answer -------------------------------------------------------- */

/* What stands around a reasoning. then_…: what begins the message behind it, if it is a call or another form. */
static const struct frame {
    const char *open, *end, *force;
    const char *then_call, *then_text;
} think = {"<think>", "</think>", NULL, NULL, NULL},
  channels = {"<|channel|>analysis<|message|>", "<|end|>", "<|end|><|start|>assistant<|channel|>final<|message|>",
              "<|start|>assistant", "<|start|>assistant<|channel|>final<|message|>"};

bool grammar_request_reason(struct grammar_request **out, enum reasoning_format format, int64_t budget,
                            const char *field, struct api_error *e)
{
    const struct quire_grammar_source free_text = {.form = QUIRE_FORM_FREE};
    if (!*out && !grammar_request_set(out, &free_text, strdup(""), 0, field, e))
        return false;
    (*out)->reasoning_format = format;
    (*out)->reasoning.budget = budget;
    (*out)->digest = digest_of(*out);
    return true;
}

void grammar_request_place(struct grammar_request **out, enum reasoning_place place)
{
    struct grammar_request *r = *out;
    const bool is_free = r->source.form == QUIRE_FORM_FREE, is_call = r->source.form == QUIRE_FORM_TOOLS;
    const bool in_channels = r->reasoning_format == REASONING_OPENAI_GPTOSS;
    const struct frame *frame = in_channels ? &channels : &think;
    if (r->reasoning_format == REASONING_NONE)
        return;
    if (place == REASONING_IS_OVER) {
        if (is_free) {
            grammar_request_free(r);
            *out = NULL;
        }
        return;
    }
    r->source.reasoning = &r->reasoning;
    r->reasoning.begins = in_channels                    ? QUIRE_REASONING_MUST
                          : place == REASONING_IS_BEFORE ? QUIRE_REASONING_MAY
                                                         : QUIRE_REASONING_INSIDE;
    r->reasoning.open = place == REASONING_IS_BEFORE ? frame->open : NULL;
    r->reasoning.end = frame->end;
    r->reasoning.force = is_free ? frame->force : NULL;
    r->reasoning.then = is_free ? NULL : is_call ? frame->then_call : frame->then_text;
    r->digest = digest_of(r);
}

/* ---- names of errors ------------------------------------------------------------------------- */

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
