#include "server/cache/vector_stream.h"

#include "base/clock.h"
#include "server/cache/answer.h"
#include "server/cache/redis/link.h"
#include "server/cache/redis/stream.h"
#include "server/similar/vector_index.h"
#include "server/similar/vector_records.h"

#include <event2/event_struct.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000) /* ns */
#define POLL_MS 200
#define MORE_MS 4 /* between two batches of what waits there: others on the loop have their turn */
#define TROUBLE_MS 5000 /* pause after an invalid reply */
#define MOST_ENTRIES 64u /* entries per batch: less than 1 ms of the loop's time */
#define MOST_BYTES ((size_t)256 << 10)
#define MOST_WAITING ((size_t)16 << 20)
#define LIVES_S "2592060" /* ANSWER_MAX_TTL_S + ANSWER_CLOCKS_DIFFER_S: nothing in it is younger */
#define LIVES_AGAIN_NS (UINT64_C(3600000) * MS)
#define BY_BYTES 32u
#define NAME_BYTES (6u + 64 + 9 + 64)

struct vector_stream {
    struct vector_stream_events events;
    struct redis_link *link;
    struct event timer;
    char name[NAME_BYTES + 1], by[BY_BYTES + 1], max_entries[12], count[12];
    uint32_t n_numbers, n_count;
    struct redis_stream_id last;
    uint64_t lives_ns; /* when the expiry was last set; 0: not on this link */
    size_t n_waiting; /* bytes that are not acknowledged */
    bool is_asked, is_closing;
    bool is_clearing; /* true until our own mark has been read; entries are not delivered meanwhile */
    float *vector;
    struct vector_stream_stats stats;
};

struct append {
    struct vector_stream *stream;
    size_t n;
    bool is_clear;
};

static void poll_in(struct vector_stream *s, uint32_t ms)
{
    const struct timeval wait = {.tv_sec = ms / 1000, .tv_usec = (suseconds_t)(ms % 1000) * 1000};
    evtimer_add(&s->timer, &wait);
}

static void note(struct vector_stream *s, const char *what, const struct redis_reply *reply)
{
    redis_link_note(s->link, what, reply->type == REDIS_ERROR ? reply->text : "a reply of an unexpected type");
}

/* ---- reading -------------------------------------------------------------------------------- */

static bool has_length_1(const float *vector, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)vector[i] * (double)vector[i];
    return fabs(sum - 1) <= VECTOR_SQUARES_SLACK; /* false for NaN too */
}

/* False: it is no record, or says what cannot be. */
static bool take_record(struct vector_stream *s, const struct redis_reply *bytes)
{
    const int64_t now_ms = (int64_t)(quire_wall_ns() / MS),
                  most_ms = (int64_t)(ANSWER_MAX_TTL_S + ANSWER_CLOCKS_DIFFER_S) * 1000;
    struct vector_record r;
    if (!vector_record_check((const uint8_t *)bytes->text, bytes->n, s->n_numbers, &r))
        return false;
    if (!r.vector) {
        s->events.told(s->events.context, &r.context, NULL, &r.answer, 0);
        return true;
    }
    vector_record_numbers(&r, s->n_numbers, s->vector);
    if (!has_length_1(s->vector, s->n_numbers) || r.expires_ms > now_ms + most_ms)
        return false;
    if (r.expires_ms > now_ms)
        s->events.told(s->events.context, &r.context, s->vector, &r.answer, r.expires_ms);
    return true;
}

static void take(struct vector_stream *s, const struct redis_reply *entry)
{
    const struct redis_reply *by = redis_stream_value(entry, "by"), *record = redis_stream_value(entry, "v1");
    const bool is_own = by && by->n == BY_BYTES && memcmp(by->text, s->by, BY_BYTES) == 0;
    if (redis_stream_value(entry, "clear")) {
        if (is_own)
            s->is_clearing = false;
        else if (!s->is_clearing)
            s->events.cleared(s->events.context);
        return;
    }
    if (is_own || s->is_clearing)
        return;
    *(record && take_record(s, record) ? &s->stats.n_taken : &s->stats.n_refused) += 1;
}

static void on_read(void *context, const struct redis_reply *reply)
{
    struct vector_stream *s = context;
    const struct redis_reply *entries;
    size_t n;
    s->is_asked = false;
    if (!reply || s->is_closing)
        return;
    bool ok = redis_stream_entries(reply, &entries, &n) && n <= s->n_count;
    if (!ok)
        note(s, "XREAD", reply);
    for (size_t i = 0; ok && i < n; i++) {
        ok = redis_stream_next(&entries[i], &s->last);
        if (ok)
            take(s, &entries[i]);
        else
            redis_link_note(s->link, "XREAD", "invalid entries, or entries in another order");
    }
    s->stats.n_refused += !ok;
    poll_in(s, !ok ? TROUBLE_MS : n == s->n_count ? MORE_MS : POLL_MS);
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    struct vector_stream *s = context;
    char id[REDIS_STREAM_ID_BYTES];
    (void)fd, (void)what;
    if (s->is_asked || !redis_link_is_ready(s->link))
        return; /* continues when the link is ready */
    redis_stream_id_text(&s->last, id);
    const char *const words[] = {"XREAD", "COUNT", s->count, "STREAMS", s->name, id};
    const size_t lengths[] = {5, 5, strlen(s->count), 7, NAME_BYTES, strlen(id)};
    s->is_asked = redis_link_ask(s->link, REDIS_LATER, 6, words, lengths, on_read, s);
    if (!s->is_asked)
        poll_in(s, POLL_MS);
}

/* ---- appending ------------------------------------------------------------------------------ */

static void on_appended(void *context, const struct redis_reply *reply)
{
    struct append *a = context;
    struct vector_stream *s = a->stream;
    const bool ok = reply && reply->type == REDIS_TEXT;
    s->n_waiting -= a->n;
    if (!a->is_clear)
        *(ok ? &s->stats.n_appended : &s->stats.n_dropped) += 1;
    else if (reply && !ok)
        s->is_clearing = false; /* no mark will come; one that was lost is set again */
    if (reply && !ok)
        note(s, "XADD", reply);
    free(a);
}

/* False: it was not sent. */
static bool append(struct vector_stream *s, const char *field, const void *value, size_t n)
{
    const char *const words[] = {"XADD", s->name, "MAXLEN", "~", s->max_entries, "*", "by", s->by, field, value};
    const size_t lengths[] = {4, NAME_BYTES, 6, 1, strlen(s->max_entries), 1, 2, BY_BYTES, strlen(field), n};
    struct append *a = s->n_waiting + n <= MOST_WAITING ? malloc(sizeof *a) : NULL;
    if (!a)
        return false;
    *a = (struct append){.stream = s, .n = n, .is_clear = n == 0};
    if (!redis_link_ask(s->link, REDIS_LATER, 10, words, lengths, on_appended, a)) {
        free(a);
        return false;
    }
    s->n_waiting += n;
    const uint64_t now_ns = quire_now_ns();
    if (s->lives_ns == 0 || now_ns - s->lives_ns > LIVES_AGAIN_NS) {
        const char *const expire[] = {"EXPIRE", s->name, LIVES_S};
        const size_t n_expire[] = {6, NAME_BYTES, sizeof LIVES_S - 1};
        if (redis_link_ask(s->link, REDIS_LATER, 3, expire, n_expire, NULL, NULL))
            s->lives_ns = now_ns;
    }
    return true;
}

static void append_record(struct vector_stream *s, struct buffer *record)
{
    if (record->failed || !append(s, "v1", record->data, record->n))
        s->stats.n_dropped++;
    buffer_free(record);
}

void vector_stream_add(struct vector_stream *s, const struct key256 *around, const float *vector,
                       const struct key256 *answer, int64_t expires_ms)
{
    struct buffer record = {0};
    vector_records_add(&record, around, vector, s->n_numbers, answer, expires_ms);
    append_record(s, &record);
}

void vector_stream_remove(struct vector_stream *s, const struct key256 *answer)
{
    struct buffer record = {0};
    vector_records_gone(&record, answer);
    append_record(s, &record);
}

void vector_stream_clear(struct vector_stream *s)
{
    const char *const words[] = {"UNLINK", s->name};
    const size_t lengths[] = {6, NAME_BYTES};
    s->is_clearing = true;
    s->lives_ns = 0;
    if (redis_link_ask(s->link, REDIS_LATER, 2, words, lengths, NULL, NULL))
        append(s, "clear", "", 0);
}

/* ---- opening and closing -------------------------------------------------------------------- */

/* The new connection may lead to another Redis or stream, so the stream is read from its beginning. */
static void on_change(void *context, bool is_ready)
{
    struct vector_stream *s = context;
    if (!is_ready || s->is_closing)
        return;
    s->last = (struct redis_stream_id){0};
    s->lives_ns = 0;
    if (s->is_clearing)
        vector_stream_clear(s);
    poll_in(s, 0);
}

void vector_stream_close(struct vector_stream *s, uint32_t wait_ms)
{
    if (!s)
        return;
    s->is_closing = true;
    if (s->link && s->n_waiting > 0)
        redis_link_drain(s->link, quire_now_ns() + wait_ms * MS);
    if (s->link)
        redis_link_close(s->link);
    event_del(&s->timer);
    free(s->vector);
    free(s);
}

int vector_stream_open(struct event_base *base, const struct redis_url *url, const struct key256 *identity,
                       const struct key256 *embedder, uint32_t n_numbers, uint32_t max_entries,
                       struct vector_stream_events events, struct vector_stream **out, struct quire_error *err)
{
    struct vector_stream *s = calloc(1, sizeof *s);
    char hex[65], embedder_hex[65];
    *out = NULL;
    if (!s)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    evtimer_assign(&s->timer, base, on_timer, s);
    s->events = events;
    s->n_numbers = n_numbers;
    s->vector = malloc(n_numbers * sizeof *s->vector);
    const size_t fit = MOST_BYTES / (vector_record_bytes(n_numbers) + 256);
    s->n_count = fit < 1 ? 1 : fit < MOST_ENTRIES ? (uint32_t)fit : MOST_ENTRIES;
    snprintf(s->count, sizeof s->count, "%u", s->n_count);
    snprintf(s->max_entries, sizeof s->max_entries, "%u", max_entries);
    quire_key256_hex(identity, hex);
    quire_key256_hex(embedder, embedder_hex);
    snprintf(s->name, sizeof s->name, "quire:%.64s:vectors-%.64s", hex, embedder_hex);
    struct key256 by;
    evutil_secure_rng_get_bytes(&by, sizeof by);
    quire_key256_hex(&by, hex);
    memcpy(s->by, hex, BY_BYTES);
    const struct redis_link_events link_events = {.on_change = on_change, .context = s};
    const int status = s->vector ? redis_link_open(base, url, link_events, &s->link, err)
                                 : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (status != QUIRE_OK) {
        s->link = NULL;
        vector_stream_close(s, 0);
        return status;
    }
    *out = s;
    return QUIRE_OK;
}

void vector_stream_stats(const struct vector_stream *s, struct vector_stream_stats *out)
{
    *out = s->stats;
    out->connected = redis_link_is_ready(s->link);
}
