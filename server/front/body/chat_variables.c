/* The variables of a body for the chat template, in all APIs. */
#include "server/front/front_internal.h"

#include <string.h>

static void put(struct buffer *o, const char *name, struct quire_value value)
{
    json_out_raw(o, o->n == 0 ? "{" : ",");
    json_out_text(o, name);
    json_out_raw(o, ":");
    buffer_append(o, value.text, value.n);
}

/* Puts the fields that a body may have in every API, unless `more` has the variable. */
static bool put_fields(struct buffer *o, const struct quire_doc *body, struct quire_value kwargs,
                       const struct chat_variable *more, size_t n_more, struct api_error *e)
{
    static const struct {
        const char *name;
        enum quire_kind kind;
        const char *what;
    } fields[] = {{"reasoning_effort", QUIRE_STRING, "a string"}, {"enable_thinking", QUIRE_BOOL, "true or false"}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const struct quire_value value = json_field_get(body, fields[i].name);
        bool is_set = quire_value_member(kwargs, fields[i].name).n > 0;
        if (value.n && !json_is(value, fields[i].kind))
            return api_bad(e, fields[i].name, "must be %s", fields[i].what);
        for (size_t k = 0; k < n_more; k++)
            is_set |= strcmp(more[k].name, fields[i].name) == 0;
        if (value.n && !is_set)
            put(o, fields[i].name, value);
    }
    return true;
}

bool chat_variables_add(struct buffer *o, const struct quire_doc *body, const struct chat_variable *more, size_t n_more,
                        struct api_error *e)
{
    const struct quire_value kwargs = json_field_get(body, "chat_template_kwargs");
    struct quire_value rest = kwargs, key, value;
    if (kwargs.n && !json_is(kwargs, QUIRE_OBJECT))
        return api_bad(e, "chat_template_kwargs", "must be an object");
    for (size_t i = 0; i < n_more; i++)
        if (!quire_value_member(kwargs, more[i].name).n)
            put(o, more[i].name, (struct quire_value){more[i].json, strlen(more[i].json)});
    if (!put_fields(o, body, kwargs, more, n_more, e))
        return false;
    while (kwargs.n && quire_value_next(&rest, &key, &value)) {
        json_out_raw(o, o->n == 0 ? "{" : ",");
        buffer_append(o, key.text, key.n);
        json_out_raw(o, ":");
        buffer_append(o, value.text, value.n);
    }
    if (o->n > 0)
        json_out_raw(o, "}");
    return !o->failed || api_no_memory(e);
}

bool chat_read_variables(struct request_job *j, const struct quire_doc *body, const struct chat_variable *more,
                         size_t n_more)
{
    struct buffer o = {0};
    bool ok = chat_variables_add(&o, body, more, n_more, &j->error);
    if (ok && o.n > 0)
        ok = buffer_text(&o) || api_no_memory(&j->error);
    if (!ok)
        buffer_free(&o);
    j->text->chat.kwargs = o.data;
    return ok;
}
