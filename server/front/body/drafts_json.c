#include "server/front/body/drafts_json.h"

#include "base/buffer.h"
#include "server/front/body/json_field.h"
#include "speculation/config.h"
#include "speculation/drafter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- speculative ---------------------------------------------------------------------------- */

#define METHOD "speculative.method"
#define MOST "speculative.num_speculative_tokens"

static bool read_method(struct request_spec *spec, struct quire_value value, struct api_error *e)
{
    enum draft_method m = DRAFT_NONE;
    if (!json_is(value, QUIRE_STRING))
        return api_bad(e, METHOD, "must be a string");
    while (m < DRAFT_N_METHODS && !quire_value_is(value, draft_method_name(m)))
        m++;
    if (m == DRAFT_N_METHODS)
        return api_bad(e, METHOD, "there is no method %.*s; there are none, ngram, suffix and draft_model",
                       JSON_SHOWN(value));
    if (m == DRAFT_NONE)
        spec->max_drafts = 0;
    spec->draft_method = m;
    return true;
}

static bool read_most(struct request_spec *spec, struct quire_value value, struct api_error *e)
{
    uint64_t most = DRAFT_MAX;
    if (!json_value_whole(value, MOST, 0, DRAFT_MAX, &most, e))
        return false;
    if (most < spec->max_drafts)
        spec->max_drafts = (uint32_t)most;
    return true;
}

bool speculative_json_read(struct request_spec *spec, const struct quire_doc *body, struct api_error *e)
{
    struct quire_value value = json_field_get(body, "speculative"), key, member;
    if (json_is(value, QUIRE_BOOL) && value.text[0] == 'f')
        spec->max_drafts = 0;
    if (!value.n || json_is(value, QUIRE_BOOL))
        return true;
    if (!json_is(value, QUIRE_OBJECT))
        return api_bad(e, "speculative", "must be true, false or an object");
    while (quire_value_next(&value, &key, &member)) {
        bool ok = true;
        if (json_is(member, QUIRE_NULL))
            continue;
        if (quire_value_is(key, "method"))
            ok = read_method(spec, member, e);
        else if (quire_value_is(key, "num_speculative_tokens"))
            ok = read_most(spec, member, e);
        else
            ok = api_bad(e, "speculative", "there is no member %.*s; there are method and num_speculative_tokens",
                         JSON_SHOWN(key));
        if (!ok)
            return false;
    }
    return true;
}

/* ---- prediction ----------------------------------------------------------------------------- */

static bool add_part(struct buffer *o, struct quire_value part, size_t index, struct api_error *e)
{
    struct quire_value text = quire_value_member(part, "text");
    char field[64], *bytes;
    size_t n;
    snprintf(field, sizeof field, "prediction.content[%zu]", index);
    if (!quire_value_is(quire_value_member(part, "type"), "text") || !json_is(text, QUIRE_STRING))
        return api_bad(e, field, "must be {\"type\":\"text\",\"text\":...}");
    if (!json_value_text(text, field, &bytes, &n, e))
        return false;
    buffer_append(o, bytes, n);
    free(bytes);
    return !o->failed || api_fail(e, 503, field, "out_of_memory", "%s: out of memory", field);
}

static bool read_parts(struct quire_value parts, char **text, size_t *n_text, struct api_error *e)
{
    struct quire_value part;
    struct buffer o = {0};
    bool ok = true;
    for (size_t i = 0; ok && quire_value_next(&parts, NULL, &part); i++)
        ok = add_part(&o, part, i, e);
    if (ok && !buffer_text(&o))
        ok = api_fail(e, 503, "prediction", "out_of_memory", "prediction: out of memory");
    if (!ok) {
        buffer_free(&o);
        return false;
    }
    *n_text = o.n;
    *text = o.data;
    return true;
}

bool prediction_json_read(const struct quire_doc *body, char **text, size_t *n_text, bool *given, struct api_error *e)
{
    struct quire_value value = json_field_get(body, "prediction");
    if (!value.n)
        return true;
    if (!json_is(value, QUIRE_OBJECT))
        return api_bad(e, "prediction", "must be {\"type\":\"content\",\"content\":...}");
    if (!quire_value_is(quire_value_member(value, "type"), "content"))
        return api_bad(e, "prediction.type", "must be \"content\"");
    struct quire_value content = quire_value_member(value, "content");
    *given = true;
    if (json_is(content, QUIRE_ARRAY))
        return read_parts(content, text, n_text, e);
    if (!json_is(content, QUIRE_STRING))
        return api_bad(e, "prediction.content", "must be a string or an array of text parts");
    return json_value_text(content, "prediction.content", text, n_text, e);
}
