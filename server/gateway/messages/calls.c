#include "server/gateway/messages/calls.h"

#include "server/gateway/messages/parts.h"

#include <stdlib.h>
#include <string.h>

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* Follows the nesting, because servers do not report the end of a call. */
static void scan(struct translate_call *c, const char *text, size_t n)
{
    for (size_t i = 0; i < n && !c->is_complete; i++) {
        const char at = text[i];
        if (!c->has_begun && !is_blank(at)) {
            c->has_begun = true;
            c->is_object = at == '{';
        }
        if (c->in_string) {
            c->in_string = c->after_backslash || at != '"';
            c->after_backslash = !c->after_backslash && at == '\\';
        } else if (at == '"') {
            c->in_string = true;
        } else if (at == '{' || at == '[') {
            c->depth++;
        } else if ((at == '}' || at == ']') && c->depth > 0) {
            c->is_complete = --c->depth == 0 && c->is_object;
        }
    }
}

static bool is_text(const struct buffer *b, const char *text, size_t n)
{
    return b->n == n && (n == 0 || memcmp(b->data, text, n) == 0);
}

static struct translate_call *new_call(struct translate_stream *t, uint64_t index, struct api_error *e)
{
    if (t->n_calls == TRANSLATE_MAX_CALLS) {
        api_fail(e, 502, NULL, "upstream_error", "the upstream server sent more than %d tool calls",
                 TRANSLATE_MAX_CALLS);
        return NULL;
    }
    if (!t->calls)
        t->calls = calloc(TRANSLATE_MAX_CALLS, sizeof *t->calls);
    if (!t->calls) {
        api_no_memory(e);
        return NULL;
    }
    t->calls[t->n_calls].index = index;
    return &t->calls[t->n_calls++];
}

/* The call that an item continues, or a new one. Some servers number all calls 0, or do not number them: then a name
 * with another id, or after a complete call, begins a call. */
static struct translate_call *call_of(struct translate_stream *t, uint64_t index, const char *id, size_t n_id,
                                      bool has_name, struct api_error *e)
{
    struct translate_call *c = NULL;
    for (uint32_t i = t->n_calls; !c && i-- > 0;)
        if (index == UINT64_MAX || t->calls[i].index == index)
            c = &t->calls[i];
    const bool has_other_id = c && n_id > 0 && c->id.n > 0 && !is_text(&c->id, id, n_id);
    const bool is_other = has_name && (has_other_id || (c && index == UINT64_MAX && c->is_complete));
    return c && !is_other ? c : new_call(t, index, e);
}

static bool add_text(struct translate_stream *t, struct buffer *to, const char *text, size_t n, struct api_error *e)
{
    t->n_held += n;
    if (t->n_held > TRANSLATE_MAX_HELD_BYTES)
        return api_fail(e, 502, NULL, "upstream_error", "the upstream server sent tool calls of more than %u bytes",
                        TRANSLATE_MAX_HELD_BYTES);
    return buffer_append(to, text, n) == QUIRE_OK || api_no_memory(e);
}

static bool add_arguments(struct translate_stream *t, struct translate_call *c, const char *text, size_t n,
                          struct api_error *e)
{
    size_t n_blank = 0;
    if (c < t->calls + t->n_sent) {
        while (n_blank < n && is_blank(text[n_blank]))
            n_blank++;
        return n_blank == n ||
               api_fail(e, 502, NULL, "upstream_error", "the upstream server continued a tool call after its end");
    }
    scan(c, text, n);
    return add_text(t, &c->arguments, text, n, e);
}

/* The decoded content of a string, or another value as written; *out is malloc'd, or NULL for nothing. */
static bool take_text(struct quire_value value, char **out, size_t *n, struct api_error *e)
{
    *out = NULL;
    *n = 0;
    if (!value.n)
        return true;
    if (part_is(value, QUIRE_STRING))
        return quire_value_text(value, out, n, NULL) == QUIRE_OK || api_no_memory(e);
    *out = strndup(value.text, value.n);
    *n = value.n;
    return *out || api_no_memory(e);
}

bool calls_add(struct translate_stream *t, struct quire_value item, struct api_error *e)
{
    const struct quire_value function = part_member(item, "function");
    char *id = NULL, *name = NULL, *arguments = NULL;
    size_t n_id, n_name, n;
    bool is_negative;
    uint64_t index;
    if (quire_value_integer(part_member(item, "index"), &is_negative, &index) != QUIRE_INTEGER || is_negative)
        index = UINT64_MAX;
    bool ok = take_text(part_member(item, "id"), &id, &n_id, e) &&
              take_text(part_member(function, "name"), &name, &n_name, e) &&
              take_text(part_member(function, "arguments"), &arguments, &n, e);
    struct translate_call *c = ok ? call_of(t, index, id, n_id, n_name > 0, e) : NULL;
    ok = c && (c->id.n > 0 || add_text(t, &c->id, id, n_id, e)) &&
         (c->name.n > 0 || add_text(t, &c->name, name, n_name, e)) && (n == 0 || add_arguments(t, c, arguments, n, e));
    free(arguments);
    free(name);
    free(id);
    return ok;
}

static void free_call(struct translate_call *c)
{
    buffer_free(&c->id);
    buffer_free(&c->name);
    buffer_free(&c->arguments);
}

void calls_sent(struct translate_stream *t, struct translate_call *call)
{
    t->n_held -= call->name.n + call->arguments.n;
    buffer_free(&call->name);
    buffer_free(&call->arguments);
}

void calls_free(struct translate_stream *t)
{
    for (uint32_t i = 0; i < t->n_calls; i++)
        free_call(&t->calls[i]);
    free(t->calls);
    t->calls = NULL;
    t->n_calls = t->n_sent = 0;
}
