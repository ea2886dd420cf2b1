#include "server/bulk/page.h"

#include "server/bulk/call.h"
#include "server/http/query.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool bad(struct http_exchange *x, struct bulk_call *c, struct buffer *value, const char *why)
{
    struct api_error e;
    api_fail(&e, 400, NULL, "invalid_value", "%s", why);
    api_error_reply(x, &e);
    buffer_free(value);
    bulk_call_free(c);
    return false;
}

/* The text of a field; NULL: absent. *wrong: it is no text. */
static const char *field(struct http_exchange *x, const char *name, struct buffer *value, bool *wrong)
{
    buffer_clear(value);
    const enum query_result got = query_value(http_query(x), name, value);
    const char *text = got == QUERY_FOUND ? buffer_text(value) : NULL;
    *wrong = got == QUERY_INVALID || (got == QUERY_FOUND && !text);
    return text;
}

static bool read_limit(const char *text, uint32_t most, uint32_t *out)
{
    if (!text)
        return true;
    if (strspn(text, "0123456789") != strlen(text) || strlen(text) > 6)
        return false;
    *out = (uint32_t)strtoul(text, NULL, 10);
    return *out >= 1 && *out <= most;
}

bool page_read(struct http_exchange *x, struct bulk_call *c, uint32_t usual, uint32_t most)
{
    const bool is_messages = c->page.dialect == BULK_ANTHROPIC;
    struct buffer value = {0};
    bool wrong;
    char why[64];
    c->page.limit = usual;
    if (!read_limit(field(x, "limit", &value, &wrong), most, &c->page.limit) || wrong) {
        snprintf(why, sizeof why, "limit: must be a number from 1 to %u", most);
        return bad(x, c, &value, why);
    }
    const char *after = field(x, is_messages ? "after_id" : "after", &value, &wrong);
    if (wrong || (after && strlen(after) >= BULK_ID_BYTES))
        return bad(x, c, &value, is_messages ? "after_id: is not an id" : "after: is not an id");
    if (after && after[0]) {
        snprintf(c->other, sizeof c->other, "%s", after);
        c->page.after = c->other;
    }
    const char *before = is_messages ? field(x, "before_id", &value, &wrong) : NULL;
    if (wrong || (before && (strlen(before) >= BULK_ID_BYTES || c->page.after)))
        return bad(x, c, &value, "before_id: is not an id, or is there together with after_id");
    if (before && before[0]) {
        snprintf(c->other, sizeof c->other, "%s", before);
        c->page.before = c->other;
    }
    const char *order = is_messages ? NULL : field(x, "order", &value, &wrong);
    c->page.ascending = order && strcmp(order, "asc") == 0;
    if (wrong || (order && !c->page.ascending && strcmp(order, "desc") != 0))
        return bad(x, c, &value, "order: must be asc or desc");
    const char *purpose = is_messages ? NULL : field(x, "purpose", &value, &wrong);
    c->page.purpose = !purpose ? -1 : strcmp(purpose, "batch_output") == 0 ? BULK_OUTPUT : BULK_INPUT;
    if (wrong || (purpose && c->page.purpose == BULK_INPUT && strcmp(purpose, "batch") != 0))
        return bad(x, c, &value, "purpose: must be batch or batch_output");
    buffer_free(&value);
    return true;
}
