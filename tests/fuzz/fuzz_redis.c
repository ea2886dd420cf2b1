/* Bytes from a Redis: replies, or an error, whatever pieces they come in, each read as what XREAD says, too. The first byte says
 * how large the pieces are. */
#include "fuzz.h"

#include "server/cache/redis/reply.h"
#include "server/cache/redis/stream.h"

#include <stdlib.h>
#include <string.h>

struct sum {
    size_t n_items, n_bytes;
};

static void look(const struct redis_reply *reply, struct sum *sum)
{
    if ((reply->type == REDIS_ARRAY ? reply->text != NULL : reply->items != NULL) || reply->type > REDIS_OTHER)
        abort();
    if ((reply->type == REDIS_TEXT || reply->type == REDIS_STATUS || reply->type == REDIS_ERROR) &&
        (!reply->text || reply->text[reply->n] != '\0'))
        abort();
    sum->n_items += reply->n_items;
    sum->n_bytes += reply->n;
    for (size_t i = 0; i < reply->n_items; i++)
        look(&reply->items[i], sum);
}

static void look_as_stream(const struct redis_reply *reply)
{
    const struct redis_reply *entries, *value;
    struct redis_stream_id last = {0}, before;
    char text[REDIS_STREAM_ID_BYTES];
    size_t n;
    if (!redis_stream_entries(reply, &entries, &n))
        return;
    for (size_t i = 0; i < n; i++) {
        before = last;
        if (!redis_stream_next(&entries[i], &last))
            return;
        if (last.ms < before.ms || (last.ms == before.ms && last.number <= before.number))
            abort();
        redis_stream_id_text(&last, text);
        value = redis_stream_value(&entries[i], "v1");
        if (value && (value->type != REDIS_TEXT || value->text[value->n] != '\0'))
            abort();
    }
}

/* False: nothing more can be read. */
static int take(struct redis_replies *r, const uint8_t *bytes, size_t n)
{
    struct quire_error err = {.text = ""};
    struct redis_reply *reply = NULL;
    int status = redis_replies_feed(r, bytes, n, &err);
    while (status == QUIRE_OK && (status = redis_replies_next(r, &reply, &err)) == QUIRE_OK && reply) {
        struct sum sum = {0};
        look(reply, &sum);
        if (sum.n_items > REDIS_REPLY_MAX_ITEMS || sum.n_bytes > REDIS_REPLY_MAX_BYTES)
            abort();
        look_as_stream(reply);
        redis_reply_free(reply);
    }
    if (status != QUIRE_OK && !err.text[0])
        abort();
    return status == QUIRE_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct redis_replies *r = n > 0 ? redis_replies_new() : NULL;
    if (!r)
        return 0;
    const size_t piece = data[0] ? data[0] : n;
    for (size_t at = 1; at < n; at += piece)
        if (!take(r, data + at, n - at < piece ? n - at : piece))
            break;
    redis_replies_free(r);
    return 0;
}
