/* A Redis as a store. An answer is one string, written by one SET with its expiry, so that it exists completely or
 * not at all and expires by itself. A hash with a counter of hits is not used: incrementing the counter of an entry
 * that Redis has just expired or evicted would create a partial entry without an expiry.
 *
 * The key PREFIX "cleared" holds the second of the last clear. Answers created up to then are not served, even if
 * another server that computed one earlier writes it later. It is read together with each answer.
 *
 * The value, little endian: {u32 magic, u32 tokens, i64 created_s, i64 expires_s, domain, 8 bytes of SHA-256 over the key and all
 * of that}, the answer's bytes. */
#include "server/cache/answer.h"
#include "server/cache/redis/link.h"
#include "server/cache/store/store.h"

#include "base/clock.h"
#include "base/encoding/little_endian.h"
#include "base/log.h"

#include <event2/event_struct.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define MS UINT64_C(1000000) /* ns */
#define LOOKUP_MS 50
#define MAX_LOOKUPS 1024u /* on their way */
#define MAX_WAITING_BYTES ((size_t)64 << 20)
#define MAX_WAITING 4096u /* puts */
#define MAX_TOUCHES 64u /* on their way */
#define TOUCH_NS MS /* between two: what is given often is touched often enough */
#define SCAN_COUNT "256" /* places that Redis looks at in one go: some 50 µs of its time */
#define COUNT_STEP_MS 50 /* between two counts when nothing waits: a thousandth of the time */
#define COUNT_AGAIN_MS 1000
#define CLEAR_MS 60000
#define HIDE_MS 60000 /* interval between log lines about a Redis that comes and goes */

#define MAGIC 0x31525351u /* "QSR1" */
#define TAG_AT 56u
#define HEAD_BYTES 64u
#define PREFIX_BYTES (6 + 64 + 1)
#define NAME_BYTES (PREFIX_BYTES + 64)
#define MARK "cleared"
#define MARK_BYTES (PREFIX_BYTES + sizeof MARK - 1)

struct store_lookup {
    TAILQ_ENTRY(store_lookup) link;
    struct redis_store *store;
    struct key256 key;
    uint64_t asked_ns;
    struct event timer; /* uses the loop's clock, which may be 4 ms ahead of asked_ns */
    bool is_late; /* it has fired */
    store_answer answer; /* NULL once it was given or cancelled: then it waits for the Redis alone */
    void *context;
};

struct put {
    struct redis_store *store;
    size_t n;
};

/* One walk over all names: counts those of ours, or removes them. */
struct walk {
    struct redis_store *store;
    char cursor[24];
    uint64_t begun_ns /* of a clear */, n;
    bool is_asked; /* an answer is due */
    bool is_last;
    void (*done)(void *context, bool ok, uint64_t n_removed); /* NULL: it counts */
    void *context;
};

struct redis_store {
    struct answer_store base;
    struct event_base *loop;
    struct redis_link *link;
    char where[320]; /* for the log */
    char prefix[PREFIX_BYTES + 1], mark[MARK_BYTES + 1];
    TAILQ_HEAD(, store_lookup) lookups; /* in the order in which they are answered */
    uint32_t n_lookups, n_touches;
    uint64_t touched_ns;
    size_t n_put_bytes; /* bytes of pending writes */
    struct walk count;
    struct event count_timer;
    bool is_closing, was_ready, is_told;
    uint64_t told_ns;
    struct store_stats stats;
};

static struct redis_store *of(const struct answer_store *s)
{
    return (struct redis_store *)s;
}

static int64_t wall_s(void)
{
    return (int64_t)(quire_wall_ns() / 1000000000u);
}

struct name {
    char text[NAME_BYTES + 1];
};

static struct name name_of(const struct redis_store *s, const struct key256 *key)
{
    struct name name;
    memcpy(name.text, s->prefix, PREFIX_BYTES);
    quire_key256_hex(key, name.text + PREFIX_BYTES);
    return name;
}

static void note_error(struct redis_store *s, const char *what, const struct redis_reply *reply)
{
    redis_link_note(s->link, what, reply->type == REDIS_ERROR ? reply->text : "a reply of an unexpected type");
}

/* ---- the value ------------------------------------------------------------------------------ */

static void make_tag(const struct key256 *key, const uint8_t head[TAG_AT], uint8_t out[8])
{
    struct quire_sha256_state state;
    quire_sha256_begin(&state);
    quire_sha256_add(&state, key->bytes, sizeof key->bytes);
    quire_sha256_add(&state, head, TAG_AT);
    const struct key256 sum = quire_sha256_now(&state);
    memcpy(out, sum.bytes, 8);
}

static void write_head(uint8_t head[HEAD_BYTES], const struct key256 *key, int64_t created_s, int64_t expires_s,
                       uint32_t n_tokens, const struct key256 *domain)
{
    le_store_u32(head, MAGIC);
    le_store_u32(head + 4, n_tokens);
    le_store_u64(head + 8, (uint64_t)created_s);
    le_store_u64(head + 16, (uint64_t)expires_s);
    memcpy(head + 24, domain->bytes, sizeof domain->bytes);
    make_tag(key, head, head + TAG_AT);
}

/* Returns false if the value was not written under this key. */
static bool read_head(const uint8_t *bytes, size_t n, const struct key256 *key, int64_t *created_s, int64_t *expires_s)
{
    uint8_t tag[8];
    if (n <= HEAD_BYTES || le_load_u32(bytes) != MAGIC)
        return false;
    make_tag(key, bytes, tag);
    *created_s = (int64_t)le_load_u64(bytes + 8);
    *expires_s = (int64_t)le_load_u64(bytes + 16);
    return memcmp(tag, bytes + TAG_AT, sizeof tag) == 0;
}

/* ---- looking up ----------------------------------------------------------------------------- */

/* text: NULL if not found. cleared_s: answers created up to then are not served. */
static void give(struct store_lookup *l, enum store_found found, const struct redis_reply *text, int64_t cleared_s)
{
    struct redis_store *s = l->store;
    const store_answer answer = l->answer;
    int64_t created_s = 0, expires_s = 0;
    const uint8_t *bytes = NULL;
    size_t n = 0;
    if (!answer || s->is_closing)
        return;
    l->answer = NULL;
    event_del(&l->timer);
    if (found == STORE_FOUND) {
        bytes = (const uint8_t *)text->text;
        n = text->n;
        if (read_head(bytes, n, &l->key, &created_s, &expires_s)) {
            bytes += HEAD_BYTES;
            n -= HEAD_BYTES;
            if (expires_s <= wall_s() /* it has another clock */ || created_s <= cleared_s)
                found = STORE_MISS;
        } else {
            n = 0; /* the caller finds the answer invalid, counts it and removes it */
        }
    }
    s->stats.n_hits += found == STORE_FOUND;
    s->stats.n_misses += found == STORE_MISS;
    s->stats.n_away += found == STORE_AWAY;
    if (found == STORE_FOUND)
        answer(l->context, found, bytes, n, created_s, expires_s, 0);
    else
        answer(l->context, found, NULL, 0, 0, 0, 0);
}

static void on_late(evutil_socket_t fd, short what, void *context)
{
    struct store_lookup *l = context;
    (void)fd, (void)what;
    l->is_late = true;
    redis_link_note(l->store->link, "a lookup", "no answer in 50 ms");
    give(l, STORE_AWAY, NULL, 0); /* it is freed when the Redis answers, or is given up */
}

static void free_lookup(struct store_lookup *l)
{
    TAILQ_REMOVE(&l->store->lookups, l, link);
    l->store->n_lookups--;
    event_del(&l->timer);
    free(l);
}

/* False: there is no memory, or it cannot be asked. */
static bool mark(struct redis_store *s, redis_answered answered, void *context)
{
    char now[24], ttl[24];
    const int n_now = snprintf(now, sizeof now, "%lld", (long long)wall_s());
    const int n_ttl = snprintf(ttl, sizeof ttl, "%d",
                               ANSWER_MAX_TTL_S + ANSWER_CLOCKS_DIFFER_S); /* it outlives what it is about */
    const char *const words[] = {"SET", s->mark, now, "EX", ttl};
    const size_t lengths[] = {3, MARK_BYTES, (size_t)n_now, 2, (size_t)n_ttl};
    return redis_link_ask(s->link, REDIS_LATER, 5, words, lengths, answered, context);
}

/* An invalid mark counts as a clear in this second, and a new one is written. */
static int64_t read_mark(struct redis_store *s, const struct redis_reply *text)
{
    const int64_t now = wall_s();
    int64_t value = 0;
    if (text->type == REDIS_NIL)
        return 0;
    const bool is_number = text->type == REDIS_TEXT && text->n > 0 && text->n <= 12 &&
                           strspn(text->text, "0123456789") == text->n;
    if (is_number)
        value = strtoll(text->text, NULL, 10);
    if (is_number && value <= now + ANSWER_CLOCKS_DIFFER_S)
        return value;
    redis_link_note(s->link, "the time of the last clear", "it is invalid and was set again");
    mark(s, NULL, NULL);
    return now;
}

static void on_found(void *context, const struct redis_reply *reply)
{
    struct store_lookup *l = context;
    const struct redis_reply *both = reply && reply->type == REDIS_ARRAY && reply->n_items == 2 ? reply->items : NULL;
    if (reply && !both)
        note_error(l->store, "MGET", reply);
    const enum store_found found = !both                        ? STORE_AWAY
                                   : both[0].type == REDIS_TEXT ? STORE_FOUND
                                   : both[0].type == REDIS_NIL  ? STORE_MISS
                                                                : STORE_AWAY;
    give(l, found, both, found == STORE_FOUND ? read_mark(l->store, &both[1]) : 0);
    free_lookup(l);
}

/* While one is late no other is asked. */
static bool is_late(const struct redis_store *s)
{
    const struct store_lookup *first = TAILQ_FIRST(&s->lookups);
    return first && (first->is_late || quire_now_ns() - first->asked_ns > LOOKUP_MS * MS);
}

static struct store_lookup *redis_get(struct answer_store *base, struct key256 key, store_answer answer, void *context)
{
    struct redis_store *s = of(base);
    const struct name name = name_of(s, &key);
    const char *const words[] = {"MGET", name.text, s->mark};
    const size_t lengths[] = {4, NAME_BYTES, MARK_BYTES};
    struct store_lookup *l = s->n_lookups < MAX_LOOKUPS && redis_link_is_ready(s->link) && !is_late(s)
                                 ? calloc(1, sizeof *l)
                                 : NULL;
    s->stats.n_lookups++;
    if (!l || !redis_link_ask(s->link, REDIS_URGENT, 3, words, lengths, on_found, l)) {
        free(l);
        s->stats.n_away++;
        return NULL;
    }
    const struct timeval soon = {.tv_usec = LOOKUP_MS * 1000};
    l->store = s;
    l->key = key;
    l->asked_ns = quire_now_ns();
    l->answer = answer;
    l->context = context;
    evtimer_assign(&l->timer, s->loop, on_late, l);
    evtimer_add(&l->timer, &soon);
    TAILQ_INSERT_TAIL(&s->lookups, l, link);
    s->n_lookups++;
    return l;
}

static void redis_cancel(struct answer_store *base, struct store_lookup *l)
{
    (void)base;
    l->answer = NULL;
    event_del(&l->timer);
}

/* ---- writing -------------------------------------------------------------------------------- */

static void on_put(void *context, const struct redis_reply *reply)
{
    struct put *p = context;
    struct redis_store *s = p->store;
    s->stats.n_waiting--;
    s->n_put_bytes -= p->n;
    if (!reply || reply->type != REDIS_STATUS)
        s->stats.n_put_failed++;
    if (reply && reply->type != REDIS_STATUS)
        note_error(s, "SET", reply);
    free(p);
}

/* False: it was not sent. */
static bool send_put(struct redis_store *s, struct key256 key, const void *value, size_t n, int64_t seconds)
{
    const struct name name = name_of(s, &key);
    char ttl[24];
    const int n_ttl = snprintf(ttl, sizeof ttl, "%lld", (long long)seconds);
    const char *const words[] = {"SET", name.text, value, "EX", ttl};
    const size_t lengths[] = {3, NAME_BYTES, n, 2, (size_t)n_ttl};
    struct put *p = malloc(sizeof *p);
    if (!p)
        return false;
    *p = (struct put){.store = s, .n = n};
    if (!redis_link_ask(s->link, REDIS_LATER, 5, words, lengths, on_put, p)) {
        free(p);
        return false;
    }
    s->stats.n_waiting++;
    s->n_put_bytes += n;
    return true;
}

static void redis_put(struct answer_store *base, struct key256 key, const uint8_t *bytes, size_t n, int64_t created_s,
                      uint32_t ttl_s, uint32_t n_tokens, struct key256 domain)
{
    struct redis_store *s = of(base);
    const int64_t now = wall_s(), expires_s = (created_s < now ? created_s : now) + ttl_s, seconds = expires_s - now;
    s->stats.n_puts++;
    const bool fits = n > 0 && n <= ANSWER_MAX_BYTES && seconds > 0 && seconds <= ANSWER_MAX_TTL_S + 1 &&
                      s->stats.n_waiting < MAX_WAITING && s->n_put_bytes + n <= MAX_WAITING_BYTES;
    uint8_t *value = fits ? malloc(HEAD_BYTES + n) : NULL;
    if (value) {
        write_head(value, &key, created_s, expires_s, n_tokens, &domain);
        memcpy(value + HEAD_BYTES, bytes, n);
    }
    if (!value || !send_put(s, key, value, HEAD_BYTES + n, seconds))
        s->stats.n_put_failed++;
    free(value);
}

static void redis_remove(struct answer_store *base, struct key256 key)
{
    struct redis_store *s = of(base);
    const struct name name = name_of(s, &key);
    const char *const words[] = {"UNLINK", name.text};
    const size_t lengths[] = {6, NAME_BYTES};
    redis_link_ask(s->link, REDIS_LATER, 2, words, lengths, NULL, NULL);
}

static void on_touched(void *context, const struct redis_reply *reply)
{
    struct redis_store *s = context;
    (void)reply;
    s->n_touches--;
}

/* Reports a hit in this process's memory to Redis, so that eviction there counts it as used. */
static void redis_hit(struct answer_store *base, struct key256 key)
{
    struct redis_store *s = of(base);
    const uint64_t now = quire_now_ns();
    if (s->n_touches >= MAX_TOUCHES || now - s->touched_ns < TOUCH_NS)
        return;
    s->touched_ns = now;
    const struct name name = name_of(s, &key);
    const char *const words[] = {"TOUCH", name.text};
    const size_t lengths[] = {5, NAME_BYTES};
    if (redis_link_ask(s->link, REDIS_LATER, 2, words, lengths, on_touched, s))
        s->n_touches++;
}

/* ---- walking over the names ----------------------------------------------------------------- */

static bool step(struct walk *w);

static void clear_end(struct walk *w, bool ok)
{
    struct redis_store *s = w->store;
    if (ok)
        s->stats.n_entries = 0;
    if (!s->is_closing)
        w->done(w->context, ok, w->n);
    free(w);
}

static void on_removed(void *context, const struct redis_reply *reply)
{
    struct walk *w = context;
    const bool ok = reply && reply->type == REDIS_INTEGER && reply->integer >= 0;
    if (reply && !ok)
        note_error(w->store, "UNLINK", reply);
    w->n += ok ? (uint64_t)reply->integer : 0;
    if (ok && !w->is_last && quire_now_ns() - w->begun_ns < CLEAR_MS * MS && step(w))
        return;
    clear_end(w, ok && w->is_last);
}

/* A Redis may name what it likes: only names of ours are removed. */
static bool is_ours(const struct redis_store *s, const struct redis_reply *name)
{
    return name->type == REDIS_TEXT && name->n == NAME_BYTES && memcmp(name->text, s->prefix, PREFIX_BYTES) == 0;
}

enum removal { REMOVE_NONE, REMOVE_ASKED, REMOVE_FAILED };
static enum removal remove_all(struct walk *w, const struct redis_reply *names)
{
    const char **words = calloc(names->n_items + 1, sizeof *words);
    size_t *lengths = calloc(names->n_items + 1, sizeof *lengths);
    enum removal how = REMOVE_FAILED;
    if (words && lengths) {
        int n = 1;
        words[0] = "UNLINK";
        lengths[0] = 6;
        for (size_t i = 0; i < names->n_items; i++) {
            if (!is_ours(w->store, &names->items[i]))
                continue;
            words[n] = names->items[i].text;
            lengths[n++] = NAME_BYTES;
        }
        if (n == 1)
            how = REMOVE_NONE;
        else if (redis_link_ask(w->store->link, REDIS_LATER, n, words, lengths, on_removed, w))
            how = REMOVE_ASKED;
    }
    free(words);
    free(lengths);
    return how;
}

static void set_count_timer(struct redis_store *s, uint64_t ms)
{
    const struct timeval wait = {.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000) * 1000};
    evtimer_add(&s->count_timer, &wait);
}

static void counted(struct redis_store *s, const struct walk *w, const struct redis_reply *names)
{
    for (size_t i = 0; i < names->n_items; i++)
        s->count.n += is_ours(s, &names->items[i]);
    if (!w->is_last) {
        set_count_timer(s, COUNT_STEP_MS);
        return;
    }
    s->stats.n_entries = s->count.n;
    set_count_timer(s, COUNT_AGAIN_MS);
    s->count = (struct walk){.store = s};
}

static void on_names(void *context, const struct redis_reply *reply)
{
    struct walk *w = context;
    struct redis_store *s = w->store;
    const struct redis_reply *at = reply && reply->type == REDIS_ARRAY && reply->n_items == 2 ? reply->items : NULL;
    const bool ok = at && at[0].type == REDIS_TEXT && at[0].n < sizeof w->cursor && at[1].type == REDIS_ARRAY;
    w->is_asked = false;
    if (reply && !ok)
        note_error(s, "SCAN", reply);
    if (ok) {
        memcpy(w->cursor, at[0].text, at[0].n + 1);
        w->is_last = strcmp(w->cursor, "0") == 0;
    }
    if (w->done) {
        const struct redis_reply nothing = {.type = REDIS_INTEGER};
        const enum removal how = ok ? remove_all(w, &at[1]) : REMOVE_FAILED;
        if (how != REMOVE_ASKED)
            on_removed(w, how == REMOVE_NONE ? &nothing : NULL);
    } else if (ok) {
        counted(s, w, &at[1]);
    } else {
        *w = (struct walk){.store = s};
        set_count_timer(s, COUNT_AGAIN_MS);
    }
}

/* The next places. False: it cannot be asked. */
static bool step(struct walk *w)
{
    char pattern[PREFIX_BYTES + 2];
    memcpy(pattern, w->store->prefix, PREFIX_BYTES); /* hex digits and colons: nothing in it is a wildcard */
    memcpy(pattern + PREFIX_BYTES, "*", 2);
    if (!w->cursor[0])
        memcpy(w->cursor, "0", 2);
    const char *const words[] = {"SCAN", w->cursor, "MATCH", pattern, "COUNT", SCAN_COUNT};
    const size_t lengths[] = {4, strlen(w->cursor), 5, PREFIX_BYTES + 1, 5, sizeof SCAN_COUNT - 1};
    w->is_asked = redis_link_ask(w->store->link, REDIS_LATER, 6, words, lengths, on_names, w);
    return w->is_asked;
}

static void on_count(evutil_socket_t fd, short what, void *context)
{
    struct redis_store *s = context;
    (void)fd, (void)what;
    if (s->count.is_asked || !redis_link_is_ready(s->link))
        return;
    if (!step(&s->count))
        set_count_timer(s, COUNT_AGAIN_MS);
}

static void on_marked(void *context, const struct redis_reply *reply)
{
    struct walk *w = context;
    const bool ok = reply && reply->type == REDIS_STATUS;
    if (reply && !ok)
        note_error(w->store, "SET", reply);
    if (!ok || !step(w))
        clear_end(w, false);
}

static void redis_clear(struct answer_store *base, void (*done)(void *context, bool ok, uint64_t n_removed),
                        void *context)
{
    struct redis_store *s = of(base);
    struct walk *w = malloc(sizeof *w);
    if (w)
        *w = (struct walk){.store = s, .begun_ns = quire_now_ns(), .done = done, .context = context};
    if (w && mark(s, on_marked, w))
        return;
    free(w);
    done(context, false, 0);
}

/* ---- opening and closing -------------------------------------------------------------------- */

static void on_change(void *context, bool is_ready)
{
    struct redis_store *s = context;
    const uint64_t now = quire_now_ns();
    if (s->is_closing)
        return;
    if (is_ready) {
        s->stats.n_reconnects += s->was_ready;
        s->was_ready = true;
        if (s->is_told)
            quire_log(QUIRE_LOG_INFO, "server", "%s: answers are cached there again", s->where);
        s->is_told = false;
        set_count_timer(s, 0);
        return;
    }
    if (s->is_told || (s->told_ns && now - s->told_ns < HIDE_MS * MS))
        return;
    s->is_told = true;
    s->told_ns = now;
    quire_log(QUIRE_LOG_WARN, "server", "%s: %s; until it is back, answers are cached in memory only", s->where,
              redis_link_trouble(s->link));
}

static void redis_stats(const struct answer_store *base, struct store_stats *out)
{
    const struct redis_store *s = of(base);
    *out = s->stats;
    out->connected = redis_link_is_ready(s->link);
    snprintf(out->trouble, sizeof out->trouble, "%s", redis_link_trouble(s->link));
}

static void redis_close(struct answer_store *base, uint32_t wait_ms)
{
    struct redis_store *s = of(base);
    s->is_closing = true;
    if (s->stats.n_waiting > 0)
        redis_link_drain(s->link, quire_now_ns() + wait_ms * MS);
    redis_link_close(s->link);
    event_del(&s->count_timer);
    free(s);
}

static const struct answer_store_ops ops = {
    .name = "redis",
    .get = redis_get,
    .cancel = redis_cancel,
    .put = redis_put,
    .remove = redis_remove,
    .hit = redis_hit,
    .clear = redis_clear,
    .stats = redis_stats,
    .close = redis_close,
};

int store_open_redis(struct event_base *base, const struct redis_url *url, struct key256 identity,
                     struct answer_store **out, struct quire_error *err)
{
    struct redis_store *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    s->base.ops = &ops;
    s->loop = base;
    TAILQ_INIT(&s->lookups);
    s->count.store = s;
    redis_url_text(url, s->where, sizeof s->where);
    memcpy(s->prefix, "quire:", 6);
    quire_key256_hex(&identity, s->prefix + 6);
    memcpy(s->prefix + 6 + 64, ":", 2);
    memcpy(s->mark, s->prefix, PREFIX_BYTES);
    memcpy(s->mark + PREFIX_BYTES, MARK, sizeof MARK);
    evtimer_assign(&s->count_timer, base, on_count, s);
    const struct redis_link_events events = {.on_change = on_change, .context = s};
    int status = redis_link_open(base, url, events, &s->link, err);
    if (status != QUIRE_OK) {
        free(s);
        return status;
    }
    *out = &s->base;
    return QUIRE_OK;
}
