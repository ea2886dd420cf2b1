/* Layout, all little endian: the head {8 bytes magic, u32 version, u32 flags (1: unseeded), key, i64 created_s, u64 took_us,
 * u32 choices, u32 prompt tokens, u64 generated tokens, u64 bytes of events, u32 prompt tokens of the prefix cache, u32 bytes of
 * the question}, the question, the events, SHA-256 of all before.
 * An event: {u8 kind, u32 pause_us, u8 choice}, then of a token {u32 token, u8 n_top or 255: no logprob}, with a logprob
 * {f32, u32 rank}, n_top × {u32, f32}; of an end {u8 finish, u8 flags (1: last, 2: has a stop token), u32 stop token,
 * u32 prompt, u32 cached, u32 generated, u32 created}. 11 bytes for a plain token. */
#include "server/cache/answer.h"

#include "base/encoding/little_endian.h"
#include "request/spec.h"
#include "server/wire/frame.h"

#include <string.h>

static const char magic[8] = {'Q', 'U', 'I', 'R', 'E', 'A', 'N', 'S'};
#define HEAD_BYTES 96u
#define SUM_BYTES 32u
#define EVENT_BYTES 6u
#define TOKEN_BYTES 5u
#define DONE_BYTES 22u
#define NO_LOGPROB 255u
#define UNSEEDED 1u
#define LAST 1u
#define HAS_STOP_TOKEN 2u

static void store_float(uint8_t *p, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    le_store_u32(p, bits);
}

static float load_float(const uint8_t *p)
{
    uint32_t bits = le_load_u32(p);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- writing -------------------------------------------------------------------------------- */

void answer_begin(struct answer_writer *w, struct key256 key, uint32_t n_choices, struct answer_question question,
                  uint64_t now_us)
{
    const uint32_t n = question.n > ANSWER_MAX_QUESTION ? 0 : (uint32_t)question.n;
    *w = (struct answer_writer){
        .key = key, .n_choices = n_choices, .n_question = n, .begun_us = now_us, .last_us = now_us};
    if (buffer_reserve(&w->bytes, HEAD_BYTES + n))
        w->bytes.n = HEAD_BYTES;
    if (n > 0)
        buffer_append(&w->bytes, question.text, n);
}

/* Makes space for an event's head and n bytes more, and returns those bytes. Returns NULL if the space cannot be
 * made. */
static uint8_t *put_event(struct answer_writer *w, enum answer_kind kind, uint32_t choice, size_t n, uint64_t now_us)
{
    uint8_t *p = buffer_reserve(&w->bytes, EVENT_BYTES + n);
    uint64_t pause = now_us - w->last_us;
    if (!p)
        return NULL;
    w->bytes.n += EVENT_BYTES + n;
    w->last_us = now_us;
    p[0] = (uint8_t)kind;
    le_store_u32(p + 1, pause > UINT32_MAX ? UINT32_MAX : (uint32_t)pause);
    p[5] = (uint8_t)choice;
    return p + EVENT_BYTES;
}

static void put_token(struct answer_writer *w, enum answer_kind kind, const struct wire_token *t, uint64_t now_us)
{
    uint32_t n_top = t->has_logprob ? t->n_top : 0;
    uint8_t *p = put_event(w, kind, t->choice, TOKEN_BYTES + (t->has_logprob ? 8 + 8 * (size_t)n_top : 0), now_us);
    if (!p)
        return;
    le_store_u32(p, t->token);
    p[4] = t->has_logprob ? (uint8_t)n_top : NO_LOGPROB;
    if (!t->has_logprob)
        return;
    store_float(p + 5, t->logprob);
    le_store_u32(p + 9, t->rank);
    for (uint32_t i = 0; i < n_top; i++) {
        le_store_u32(p + 13 + 8 * i, t->top_ids[i]);
        store_float(p + 17 + 8 * i, t->top_logprobs[i]);
    }
}

void answer_token(struct answer_writer *w, const struct wire_token *token, uint64_t now_us)
{
    put_token(w, ANSWER_TOKEN, token, now_us);
    w->n_generated++;
}

void answer_prompt_logprob(struct answer_writer *w, const struct wire_token *token, uint64_t now_us)
{
    put_token(w, ANSWER_PROMPT_LOGPROB, token, now_us);
}

void answer_done(struct answer_writer *w, const struct wire_done *done, uint64_t now_us)
{
    uint8_t *p = put_event(w, ANSWER_DONE, done->choice, DONE_BYTES, now_us);
    w->n_done++;
    w->n_prompt = done->n_prompt;
    if (done->choice == 0)
        w->n_cached = done->n_cached;
    if (!p)
        return;
    p[0] = (uint8_t)done->finish;
    p[1] = (uint8_t)((done->last ? LAST : 0) | (done->has_stop_token ? HAS_STOP_TOKEN : 0));
    le_store_u32(p + 2, done->stop_token);
    le_store_u32(p + 6, done->n_prompt);
    le_store_u32(p + 10, done->n_cached);
    le_store_u32(p + 14, done->n_generated);
    le_store_u32(p + 18, done->n_created);
}

/* Its question is no longer than the bytes. */
static void read_head(const uint8_t *p, size_t n, struct answer *out)
{
    const uint32_t n_question = le_load_u32(p + 92), begin = HEAD_BYTES + n_question;
    *out = (struct answer){
        .created_s = (int64_t)le_load_u64(p + 48),
        .took_us = le_load_u64(p + 56),
        .n_choices = le_load_u32(p + 64),
        .n_prompt = le_load_u32(p + 68),
        .n_generated = le_load_u64(p + 72),
        .n_cached = le_load_u32(p + 88),
        .unseeded = le_load_u32(p + 12) == UNSEEDED,
        .question = {n_question > 0 ? (const char *)p + HEAD_BYTES : NULL, n_question},
        .events = {p + begin, n - begin - SUM_BYTES},
    };
    memcpy(out->key.bytes, p + 16, sizeof out->key.bytes);
}

bool answer_end(struct answer_writer *w, int64_t created_s, bool unseeded, struct buffer *out, struct answer *answer)
{
    *out = (struct buffer){0};
    uint8_t *sum = buffer_reserve(&w->bytes, SUM_BYTES);
    if (!sum || w->bytes.n + SUM_BYTES > ANSWER_MAX_BYTES) {
        answer_drop(w);
        return false;
    }
    uint8_t *p = (uint8_t *)w->bytes.data;
    memcpy(p, magic, sizeof magic);
    le_store_u32(p + 8, ANSWER_VERSION);
    le_store_u32(p + 12, unseeded ? UNSEEDED : 0);
    memcpy(p + 16, w->key.bytes, sizeof w->key.bytes);
    le_store_u64(p + 48, (uint64_t)created_s);
    le_store_u64(p + 56, w->last_us - w->begun_us);
    le_store_u32(p + 64, w->n_choices);
    le_store_u32(p + 68, w->n_prompt);
    le_store_u64(p + 72, w->n_generated);
    le_store_u64(p + 80, w->bytes.n - HEAD_BYTES - w->n_question);
    le_store_u32(p + 88, w->n_cached);
    le_store_u32(p + 92, w->n_question);
    const struct key256 hash = quire_sha256(p, w->bytes.n);
    memcpy(sum, hash.bytes, SUM_BYTES);
    w->bytes.n += SUM_BYTES;
    read_head(p, w->bytes.n, answer);
    *out = w->bytes;
    w->bytes = (struct buffer){0};
    return true;
}

void answer_drop(struct answer_writer *w)
{
    buffer_free(&w->bytes);
}

struct answer_events answer_so_far(const struct answer_writer *w)
{
    const size_t begin = HEAD_BYTES + w->n_question;
    if (w->bytes.failed || w->bytes.n < begin)
        return (struct answer_events){0};
    return (struct answer_events){(const uint8_t *)w->bytes.data + begin, w->bytes.n - begin};
}

/* ---- reading -------------------------------------------------------------------------------- */

static bool read_token(const uint8_t *p, size_t n, struct wire_token *t, size_t *n_read)
{
    if (n < TOKEN_BYTES)
        return false;
    t->token = le_load_u32(p);
    t->has_logprob = p[4] != NO_LOGPROB;
    t->n_top = t->has_logprob ? p[4] : 0;
    t->logprob = 0;
    t->rank = 0;
    *n_read = TOKEN_BYTES;
    if (!t->has_logprob)
        return true;
    *n_read += 8 + 8 * (size_t)t->n_top;
    if (t->n_top > WIRE_MAX_TOP || n < *n_read)
        return false;
    t->logprob = load_float(p + 5);
    t->rank = le_load_u32(p + 9);
    for (uint32_t i = 0; i < t->n_top; i++) {
        t->top_ids[i] = le_load_u32(p + 13 + 8 * i);
        t->top_logprobs[i] = load_float(p + 17 + 8 * i);
    }
    return true;
}

static bool read_done(const uint8_t *p, size_t n, struct answer_ending *d)
{
    if (n < DONE_BYTES || p[0] > WIRE_FINISH_CANCELLED || p[1] > (LAST | HAS_STOP_TOKEN))
        return false;
    *d = (struct answer_ending){
        .finish = p[0],
        .last = p[1] & LAST,
        .has_stop_token = p[1] & HAS_STOP_TOKEN,
        .stop_token = le_load_u32(p + 2),
        .n_prompt = le_load_u32(p + 6),
        .n_cached = le_load_u32(p + 10),
        .n_generated = le_load_u32(p + 14),
        .n_created = le_load_u32(p + 18),
    };
    return true;
}

bool answer_next(struct answer_events events, size_t *cursor, struct answer_event *out)
{
    size_t left = events.n > *cursor ? events.n - *cursor : 0, n_read = DONE_BYTES;
    if (left < EVENT_BYTES)
        return false;
    const uint8_t *p = events.bytes + *cursor;
    left -= EVENT_BYTES;
    if (p[0] > ANSWER_DONE)
        return false;
    out->kind = (enum answer_kind)p[0];
    out->pause_us = le_load_u32(p + 1);
    if (out->kind == ANSWER_DONE ? !read_done(p + EVENT_BYTES, left, &out->done)
                                 : !read_token(p + EVENT_BYTES, left, &out->token, &n_read))
        return false;
    if (out->kind == ANSWER_DONE)
        out->done.choice = p[5];
    else
        out->token.choice = p[5];
    *cursor += EVENT_BYTES + n_read;
    return true;
}

struct checked {
    bool over[REQUEST_MAX_CHOICES], last;
    uint32_t n_tokens[REQUEST_MAX_CHOICES], n_over;
    uint64_t n_generated;
};

static const char *check_token(const struct answer *a, const struct answer_event *e, uint32_t n_vocab,
                               struct checked *c)
{
    const struct wire_token *t = &e->token;
    if (t->token >= n_vocab)
        return "a token outside the vocabulary";
    for (uint32_t i = 0; i < t->n_top; i++)
        if (t->top_ids[i] >= n_vocab)
            return "a token outside the vocabulary";
    if (e->kind == ANSWER_PROMPT_LOGPROB)
        return t->choice != 0 || c->n_over == a->n_choices ? "a prompt's token out of place" : NULL;
    if (t->choice >= a->n_choices || c->over[t->choice])
        return "a token of an unknown or finished choice";
    c->n_tokens[t->choice]++;
    c->n_generated++;
    return NULL;
}

static const char *check_done(const struct answer *a, const struct answer_ending *d, struct checked *c)
{
    if (d->choice >= a->n_choices || c->over[d->choice] || c->last)
        return "the end of an unknown or finished choice";
    if (d->n_prompt != a->n_prompt || d->n_generated != c->n_tokens[d->choice] || d->n_cached > d->n_prompt ||
        d->n_created > d->n_prompt)
        return "numbers that do not fit the tokens";
    c->over[d->choice] = true;
    c->n_over++;
    c->last = d->last;
    return d->last == (c->n_over == a->n_choices) ? NULL : "the last end is not the last";
}

static const char *check_events(const struct answer *a, uint32_t n_vocab)
{
    struct checked c = {.n_over = 0};
    struct answer_event e;
    size_t cursor = 0;
    while (answer_next(a->events, &cursor, &e)) {
        const char *wrong = e.kind == ANSWER_DONE ? check_done(a, &e.done, &c) : check_token(a, &e, n_vocab, &c);
        if (wrong)
            return wrong;
    }
    if (cursor != a->events.n)
        return "an unknown event";
    return c.last && c.n_generated == a->n_generated ? NULL : "it does not end, or its count is wrong";
}

void answer_moved(struct answer *a, const void *from, const void *to)
{
    a->events.bytes = (const uint8_t *)to + (a->events.bytes - (const uint8_t *)from);
    if (a->question.text)
        a->question.text = (const char *)to + (a->question.text - (const char *)from);
}

bool answer_key(const void *bytes, size_t n, struct key256 *out)
{
    if (n < HEAD_BYTES)
        return false;
    memcpy(out->bytes, (const uint8_t *)bytes + 16, sizeof out->bytes);
    return true;
}

int answer_check(const void *bytes, size_t n, const struct key256 *key, uint32_t n_vocab, struct answer *out,
                 struct quire_error *err)
{
    const uint8_t *p = bytes;
    if (n < HEAD_BYTES + SUM_BYTES || n > ANSWER_MAX_BYTES || memcmp(p, magic, sizeof magic) != 0)
        return quire_fail(err, QUIRE_INVALID, "cached response: is invalid or cut short");
    if (le_load_u32(p + 8) != ANSWER_VERSION)
        return quire_fail(err, QUIRE_INVALID, "cached response: has version %u, this server has %u", le_load_u32(p + 8),
                          ANSWER_VERSION);
    if (memcmp(p + 16, key->bytes, sizeof key->bytes) != 0)
        return quire_fail(err, QUIRE_INVALID, "cached response: belongs to another request");
    const struct key256 sum = quire_sha256(p, n - SUM_BYTES);
    const uint32_t n_question = le_load_u32(p + 92);
    if (n_question > ANSWER_MAX_QUESTION || n_question > n - HEAD_BYTES - SUM_BYTES ||
        le_load_u64(p + 80) != n - HEAD_BYTES - n_question - SUM_BYTES ||
        memcmp(p + n - SUM_BYTES, sum.bytes, SUM_BYTES) != 0)
        return quire_fail(err, QUIRE_INVALID, "cached response: its length or checksum is wrong");
    read_head(p, n, out);
    if (le_load_u32(p + 12) > UNSEEDED || out->n_choices == 0 || out->n_choices > REQUEST_MAX_CHOICES ||
        out->n_prompt > REQUEST_MAX_PROMPT || out->n_cached > out->n_prompt || out->created_s < 0)
        return quire_fail(err, QUIRE_INVALID, "cached response: a number of its head is out of range");
    const char *wrong = check_events(out, n_vocab);
    return wrong ? quire_fail(err, QUIRE_INVALID, "cached response: %s", wrong) : QUIRE_OK;
}

bool answer_same(struct answer_events a, struct answer_events b)
{
    struct answer_event x, y;
    size_t at = 0, bt = 0;
    while (at < a.n && bt < b.n) {
        const size_t a0 = at, b0 = bt;
        if (!answer_next(a, &at, &x) || !answer_next(b, &bt, &y) || x.kind != y.kind || at - a0 != bt - b0 ||
            a.bytes[a0 + 5] != b.bytes[b0 + 5])
            return false;
        const uint8_t *p = a.bytes + a0 + EVENT_BYTES, *q = b.bytes + b0 + EVENT_BYTES;
        if (x.kind != ANSWER_DONE ? memcmp(p, q, at - a0 - EVENT_BYTES) != 0
                                  : memcmp(p, q, 10) != 0 || memcmp(p + 14, q + 14, 4) != 0)
            return false;
    }
    return at == a.n && bt == b.n;
}

uint32_t answer_tokens(const struct answer *a, uint32_t choice, uint32_t *out, uint32_t most)
{
    struct answer_event e;
    size_t cursor = 0;
    uint32_t n = 0;
    while (n < most && answer_next(a->events, &cursor, &e))
        if (e.kind == ANSWER_TOKEN && e.token.choice == choice)
            out[n++] = e.token.token;
    return n;
}

bool answer_was_cut(const struct answer *a)
{
    struct answer_event e;
    size_t cursor = 0;
    while (answer_next(a->events, &cursor, &e))
        if (e.kind == ANSWER_DONE && e.done.finish == WIRE_FINISH_LENGTH)
            return true;
    return false;
}
