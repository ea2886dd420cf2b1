#include "server/front/body/open_calls.h"

#include "server/front/body/json_field.h"

#include <stdlib.h>
#include <string.h>

void open_calls_free(struct open_calls *o)
{
    free(o->calls);
    *o = (struct open_calls){0};
}

void open_calls_clear(struct open_calls *o)
{
    o->n = o->first_open = 0;
}

static bool is_same(struct quire_value a, struct quire_value b)
{
    return a.n == b.n && memcmp(a.text, b.text, a.n) == 0;
}

bool open_calls_add(struct open_calls *o, struct quire_value id, size_t message, size_t part, const char *path,
                    struct api_error *e)
{
    if (o->n == OPEN_CALLS_MAX)
        return api_bad(e, path, "more than %d calls in one turn", OPEN_CALLS_MAX);
    if (id.n > OPEN_CALLS_MAX_ID)
        return api_bad(e, path, "an id of a call has at most %d bytes", OPEN_CALLS_MAX_ID);
    for (size_t k = 0; k < o->n; k++)
        if (id.n && is_same(o->calls[k].id, id))
            return api_bad(e, path, "two calls of one turn have the id %.*s: ids must differ", JSON_SHOWN(id));
    if (!o->calls)
        o->calls = malloc(OPEN_CALLS_MAX * sizeof *o->calls);
    if (!o->calls)
        return api_no_memory(e);
    o->calls[o->n++] = (struct open_call){id, message, part, false};
    return true;
}

bool open_calls_answer(struct open_calls *o, struct quire_value id)
{
    for (size_t k = o->first_open; k < o->n; k++) {
        const struct open_call *call = &o->calls[k];
        if (call->is_answered || (call->id.n && id.n && !is_same(call->id, id)))
            continue;
        o->calls[k].is_answered = true;
        while (o->first_open < o->n && o->calls[o->first_open].is_answered)
            o->first_open++;
        return true;
    }
    return false;
}

const struct open_call *open_calls_first(const struct open_calls *o)
{
    return o->first_open < o->n ? &o->calls[o->first_open] : NULL;
}
