#include "server/cache/redis/stream.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void redis_stream_id_text(const struct redis_stream_id *id, char out[REDIS_STREAM_ID_BYTES])
{
    snprintf(out, REDIS_STREAM_ID_BYTES, "%" PRIu64 "-%" PRIu64, id->ms, id->number);
}

bool redis_stream_entries(const struct redis_reply *reply, const struct redis_reply **entries, size_t *n)
{
    *entries = NULL;
    *n = 0;
    if (reply->type == REDIS_NIL)
        return true;
    const struct redis_reply *stream = reply->type == REDIS_ARRAY && reply->n_items == 1 ? reply->items : NULL;
    if (!stream || stream->type != REDIS_ARRAY || stream->n_items != 2 || stream->items[1].type != REDIS_ARRAY)
        return false;
    *entries = stream->items[1].items;
    *n = stream->items[1].n_items;
    return true;
}

/* The whole text is read: 64 bits, in digits. */
static bool read_number(const char **at, uint64_t *out)
{
    const char *p = *at;
    uint64_t value = 0;
    for (; *p >= '0' && *p <= '9'; p++) {
        const uint64_t digit = (uint64_t)(*p - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    const bool any = p > *at;
    *at = p;
    *out = value;
    return any;
}

static bool read_id(const struct redis_reply *text, struct redis_stream_id *out)
{
    const char *at = text->text;
    return text->type == REDIS_TEXT && read_number(&at, &out->ms) && *at++ == '-' && read_number(&at, &out->number) &&
           at == text->text + text->n;
}

bool redis_stream_next(const struct redis_reply *entry, struct redis_stream_id *last)
{
    struct redis_stream_id id;
    if (entry->type != REDIS_ARRAY || entry->n_items != 2 || entry->items[1].type != REDIS_ARRAY ||
        !read_id(&entry->items[0], &id) || id.ms < last->ms || (id.ms == last->ms && id.number <= last->number))
        return false;
    *last = id;
    return true;
}

const struct redis_reply *redis_stream_value(const struct redis_reply *entry, const char *field)
{
    const struct redis_reply *fields = &entry->items[1];
    const size_t n = strlen(field);
    for (size_t i = 0; i + 1 < fields->n_items; i += 2) {
        const struct redis_reply *name = &fields->items[i], *value = name + 1;
        if (name->type == REDIS_TEXT && name->n == n && memcmp(name->text, field, n) == 0)
            return value->type == REDIS_TEXT ? value : NULL;
    }
    return NULL;
}
