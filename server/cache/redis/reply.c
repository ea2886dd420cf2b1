#include "server/cache/redis/reply.h"

#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

struct redis_replies {
    redisReader *reader;
    size_t n_bytes, n_items; /* size of the reply that is being read */
    const char *trouble;
};

/* ---- objects -------------------------------------------------------------------------------- */

static void free_inside(struct redis_reply *reply)
{
    for (size_t i = 0; i < reply->n_items; i++)
        free_inside(&reply->items[i]); /* at most 9 deep with hiredis 0.14, 1,024 with 1.5 */
    free(reply->items);
    free(reply->text);
}

void redis_reply_free(struct redis_reply *reply)
{
    if (!reply)
        return;
    free_inside(reply);
    free(reply);
}

/* In its array, or the first. NULL: out of memory. */
static struct redis_reply *place(const redisReadTask *task, enum redis_type type)
{
    struct redis_reply *parent = task->parent ? task->parent->obj : NULL;
    struct redis_reply *reply = parent ? &parent->items[task->idx] : calloc(1, sizeof *reply);
    if (reply)
        reply->type = type;
    return reply;
}

static void *drop(const redisReadTask *task, struct redis_reply *reply)
{
    if (!task->parent)
        redis_reply_free(reply);
    return NULL; /* the elements of an array go with it */
}

static void *create_string(const redisReadTask *task, char *text, size_t n)
{
    struct redis_replies *r = task->privdata;
    const enum redis_type type = task->type == REDIS_REPLY_STRING   ? REDIS_TEXT
                                 : task->type == REDIS_REPLY_STATUS ? REDIS_STATUS
                                 : task->type == REDIS_REPLY_ERROR  ? REDIS_ERROR
                                                                    : REDIS_OTHER;
    if (n > REDIS_REPLY_MAX_BYTES - r->n_bytes) {
        r->trouble = "it has more bytes than any reply to our commands";
        return NULL;
    }
    struct redis_reply *reply = place(task, type);
    if (!reply)
        return NULL;
    reply->text = malloc(n + 1);
    if (!reply->text)
        return drop(task, reply);
    memcpy(reply->text, text, n);
    reply->text[n] = '\0';
    reply->n = n;
    r->n_bytes += n;
    return reply;
}

#if HIREDIS_MAJOR >= 1
typedef size_t item_count;
#else
typedef int item_count;
#endif

static void *create_array(const redisReadTask *task, item_count n)
{
    struct redis_replies *r = task->privdata;
    if ((size_t)n > REDIS_REPLY_MAX_ITEMS - r->n_items) {
        r->trouble = "it has more items than any reply to our commands";
        return NULL;
    }
    struct redis_reply *reply = place(task, REDIS_ARRAY);
    if (!reply)
        return NULL;
    if (n > 0) {
        reply->items = calloc((size_t)n, sizeof *reply->items);
        if (!reply->items)
            return drop(task, reply);
    }
    reply->n_items = (size_t)n;
    r->n_items += (size_t)n;
    return reply;
}

static void *create_integer(const redisReadTask *task, long long value)
{
    struct redis_reply *reply = place(task, REDIS_INTEGER);
    if (reply)
        reply->integer = value;
    return reply;
}

static void *create_nil(const redisReadTask *task)
{
    return place(task, REDIS_NIL);
}

#if HIREDIS_MAJOR >= 1
/* RESP3 only, which this client does not request. */
static void *create_double(const redisReadTask *task, double value, char *text, size_t n)
{
    (void)value, (void)text, (void)n;
    return place(task, REDIS_OTHER);
}

static void *create_bool(const redisReadTask *task, int value)
{
    (void)value;
    return place(task, REDIS_OTHER);
}
#endif

static void free_object(void *reply)
{
    redis_reply_free(reply);
}

static redisReplyObjectFunctions functions = {
    .createString = create_string,
    .createArray = create_array,
    .createInteger = create_integer,
    .createNil = create_nil,
#if HIREDIS_MAJOR >= 1
    .createDouble = create_double,
    .createBool = create_bool,
#endif
    .freeObject = free_object,
};

/* ---- reading -------------------------------------------------------------------------------- */

struct redis_replies *redis_replies_new(void)
{
    struct redis_replies *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->reader = redisReaderCreateWithFunctions(&functions);
    if (!r->reader) {
        free(r);
        return NULL;
    }
    r->reader->privdata = r;
    return r;
}

void redis_replies_free(struct redis_replies *r)
{
    if (!r)
        return;
    redisReaderFree(r->reader);
    free(r);
}

static int refuse(const struct redis_replies *r, struct quire_error *err)
{
    return quire_fail(err, QUIRE_INVALID, "an invalid reply: %s", r->trouble ? r->trouble : r->reader->errstr);
}

int redis_replies_feed(struct redis_replies *r, const void *bytes, size_t n, struct quire_error *err)
{
    return redisReaderFeed(r->reader, bytes, n) == REDIS_OK ? (int)QUIRE_OK : refuse(r, err);
}

int redis_replies_next(struct redis_replies *r, struct redis_reply **out, struct quire_error *err)
{
    void *reply = NULL;
    *out = NULL;
    if (redisReaderGetReply(r->reader, &reply) != REDIS_OK)
        return refuse(r, err);
    if (reply) {
        *out = reply;
        r->n_bytes = r->n_items = 0;
        return QUIRE_OK;
    }
    /* Limits the buffered part of a reply, whatever length its header announces. */
    if (r->reader->len - r->reader->pos > REDIS_REPLY_MAX_BYTES) {
        r->trouble = "it has more bytes than any reply to our commands";
        return refuse(r, err);
    }
    return QUIRE_OK;
}
