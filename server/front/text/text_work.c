#include "text/quire_chat.h"
#include "server/front/text/text_work.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/encoding/utf8.h"

#include <stdlib.h>
#include <string.h>

/* Even with few digits, the ids take no more memory than the reply. */
#define MAX_LISTED_IDS (TEXT_MAX_REPLY_BYTES / 4)
#define IDS_A_LOOK 256 /* ids decoded between two readings of the clock */

struct text_work { /* all zero but the first two: not begun */
    struct text_task *task;
    struct api_error *error; /* of the current call */
    uint32_t mark; /* appears in the text inside special tokens that count as text; 0: not used (quire_text_chat()) */
    size_t n_items; /* finished items */
    size_t n_ids; /* finished ids of the item, or of its token strings */
    size_t n_chars; /* decoded characters of the item's text */
    size_t capacity; /* ids that fit the item */
    size_t n_reply_bytes;
    struct quire_encoder *encoder;
    struct quire_detok *detok;
    struct buffer text;
    bool has_strings;
};

/* ---- the task's data ------------------------------------------------------------------------ */

bool text_task_items(struct text_task *t, size_t n, struct api_error *e)
{
    t->items = calloc(n, sizeof *t->items);
    if (!t->items)
        return api_no_memory(e);
    t->n_items = n;
    return true;
}

void request_item_keep(struct request_item *item, size_t from, size_t n)
{
    memmove(item->ids, item->ids + from, n * sizeof *item->ids);
    if (item->places)
        memmove(item->places, item->places + from, n * sizeof *item->places);
    item->n_ids = n;
}

void request_item_free(struct request_item *item)
{
    free(item->text);
    free(item->ids);
    free(item->places);
    *item = (struct request_item){0};
}

/* After rendering: it may be as long as the request's body. */
static void drop_chat(struct text_chat *chat)
{
    free(chat->messages);
    free(chat->tools);
    free(chat->kwargs);
    chat->messages = chat->tools = chat->kwargs = NULL;
}

static void free_work(struct text_task *t)
{
    struct text_work *w = t->work;
    if (!w)
        return;
    quire_encoder_close(w->encoder);
    quire_detok_close(w->detok);
    buffer_free(&w->text);
    free(w);
    t->work = NULL;
}

void text_task_free(struct text_task *t)
{
    for (size_t i = 0; i < t->n_items; i++)
        request_item_free(&t->items[i]);
    free(t->items);
    request_item_free(&t->prediction);
    drop_chat(&t->chat);
    free(t->token_strings);
    free_work(t);
}

static bool checked(struct text_work *w, int status)
{
    return status == QUIRE_OK || api_fail_status(w->error, status, w->task->name);
}

static bool is_prediction(const struct text_work *w, const struct request_item *item)
{
    return item == &w->task->prediction;
}

static bool is_due(uint64_t until_us)
{
    return quire_now_us() >= until_us;
}

static void item_done(struct text_work *w)
{
    w->n_items++;
    w->n_ids = w->n_chars = w->capacity = 0;
}

/* ---- a template ----------------------------------------------------------------------------- */

static bool render(struct text_work *w)
{
    struct text_chat *c = &w->task->chat;
    const struct quire_chat chat = {
        .messages_json = c->messages,
        .tools_json = c->tools,
        .kwargs_json = c->kwargs,
        .add_generation_prompt = c->add_generation_prompt,
        .continue_final = c->continue_final,
        .specials = w->task->shows_chat && c->specials == QUIRE_SPECIALS_TEXT ? QUIRE_SPECIALS_REFUSE : c->specials,
    };
    struct request_item *item = &w->task->items[0];
    int status = quire_text_chat(w->task->tokenizer, &chat, &item->text, &item->n_text, &w->mark, &w->error->why);
    drop_chat(c);
    return checked(w, status);
}

/* ---- text → ids ----------------------------------------------------------------------------- */

/* Fails a prompt that does not fit the context. */
static bool too_long(struct text_work *w, size_t least)
{
    return api_fail(w->error, 400, w->task->name, "context_length_exceeded",
                    "%s: this model's maximum context length is %u tokens, the prompt has at least %zu", w->task->name,
                    w->task->max_tokens, least);
}

static bool too_much(struct text_work *w)
{
    return api_bad(w->error, w->task->name, "the reply would be more than %zu MiB: send less at once",
                   TEXT_MAX_REPLY_BYTES >> 20);
}

/* The length of each number and its comma. */
static size_t listed_bytes(const uint32_t *ids, size_t n)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        bytes += 2;
        for (uint32_t id = ids[i]; id >= 10; id /= 10)
            bytes++;
    }
    return bytes;
}

static bool grow(struct text_work *w, uint32_t **numbers, size_t capacity)
{
    uint32_t *grown = realloc(*numbers, capacity * sizeof *grown);
    if (!grown)
        return api_no_memory(w->error);
    *numbers = grown;
    return true;
}

static bool append_ids(struct text_work *w, struct request_item *item, const uint32_t *ids, size_t n)
{
    bool placed = w->task->want_places && !is_prediction(w, item);
    if (!item->ids || n > w->capacity - item->n_ids) {
        /* Most prompts are one piece, and get exactly the space they need. */
        size_t capacity = item->ids ? (w->capacity + n) + (w->capacity + n) / 2 : n + (n == 0);
        if (!grow(w, &item->ids, capacity) || (placed && !grow(w, &item->places, capacity)))
            return false;
        w->capacity = capacity;
    }
    if (n > 0)
        memcpy(item->ids + item->n_ids, ids, n * sizeof *ids);
    const uint32_t *places = placed ? quire_encoder_places(w->encoder) : NULL;
    for (size_t i = 0; placed && i < n; i++)
        item->places[item->n_ids + i] = places ? places[i] : 0;
    item->n_ids += n;
    return true;
}

/* A prompt that will be truncated needs no more ids than the context allows. Returns false if the next would make it
 * too long. */
static bool make_space(const struct text_work *w, struct request_item *item)
{
    size_t most = w->task->max_tokens;
    if (item->n_ids <= most)
        return true;
    if (!w->task->truncates)
        return false;
    if (item->n_ids > 2 * most) {
        request_item_keep(item, item->n_ids - most, most);
    }
    return true;
}

/* Takes over the ids of a piece. */
static bool take_ids(struct text_work *w, struct request_item *item, const uint32_t *ids, size_t n)
{
    if (is_prediction(w, item))
        return append_ids(w, item, ids, n);
    if (w->task->counts_only) {
        item->n_ids += n;
        return true;
    }
    if (!w->task->is_reply)
        return make_space(w, item) ? append_ids(w, item, ids, n) : too_long(w, item->n_ids + n);
    w->n_reply_bytes += listed_bytes(ids, n);
    bool fits = w->n_reply_bytes <= TEXT_MAX_REPLY_BYTES && item->n_ids + n <= MAX_LISTED_IDS;
    return fits ? append_ids(w, item, ids, n) : too_much(w);
}

/* Encodes it as an answer's text, without BOS. Special tokens in it count as tokens, since a wrong guess costs only
 * time. */
static bool begin_prediction(struct text_work *w)
{
    int status = quire_encoder_open(w->task->tokenizer, w->task->prediction.text, w->task->prediction.n_text, false,
                                    &w->encoder, &w->error->why);
    return status == QUIRE_OK || api_fail_status(w->error, status, "prediction");
}

static bool begin_encoding(struct text_work *w, struct request_item *item)
{
    const struct quire_text *text = w->task->tokenizer;
    if (is_prediction(w, item))
        return begin_prediction(w);
    /* Marks would be counted too. */
    if (!w->task->is_reply && !w->task->truncates && !w->mark) {
        size_t least = quire_text_least_tokens(text, item->text, item->n_text);
        if (least > w->task->max_tokens)
            return too_long(w, least);
    }
    if (!checked(w,
                 quire_encoder_open(text, item->text, item->n_text, w->task->add_special, &w->encoder, &w->error->why)))
        return false;
    if (w->task->want_places)
        quire_encoder_place(w->encoder);
    if (w->mark)
        quire_encoder_mark(w->encoder, w->mark);
    return true;
}

static bool encode(struct text_work *w, struct request_item *item, uint64_t until_us)
{
    const uint32_t *ids = NULL;
    size_t n;
    if (!w->encoder && !begin_encoding(w, item))
        return false;
    for (;;) {
        if (!checked(w, quire_encoder_next(w->encoder, &ids, &n, &w->error->why)))
            return false;
        if (!ids)
            break;
        if (!take_ids(w, item, ids, n))
            return false;
        if ((w->task->truncate_end || is_prediction(w, item)) && item->n_ids > w->task->max_tokens)
            break; /* only its beginning is kept */
        if (is_due(until_us))
            return true;
    }
    quire_encoder_close(w->encoder);
    w->encoder = NULL;
    if (!w->task->want_text || is_prediction(w, item)) {
        free(item->text);
        item->text = NULL;
    }
    if (is_prediction(w, item))
        w->capacity = 0;
    else
        item_done(w);
    return true;
}

/* ---- ids → text ----------------------------------------------------------------------------- */

static bool append_text(struct text_work *w, const char *piece, size_t n)
{
    /* The quotes are counted once, for the whole text. A reply has it under two names. */
    w->n_reply_bytes += (w->task->is_reply ? 2 : 1) * (json_out_string_bytes(piece, n) - 2);
    if (w->n_reply_bytes > TEXT_MAX_REPLY_BYTES)
        return too_much(w);
    if (w->task->want_places)
        w->n_chars += utf8_count(piece, n);
    return buffer_append(&w->text, piece, n) == QUIRE_OK || api_no_memory(w->error);
}

static bool decode(struct text_work *w, struct request_item *item, uint64_t until_us)
{
    const struct quire_text *text = w->task->tokenizer;
    const char *piece;
    size_t n;
    if (!w->detok && !checked(w, quire_detok_open(text, NULL, 0, w->task->skip_special, &w->detok, &w->error->why)))
        return false;
    if (w->task->want_places && !item->places && !grow(w, &item->places, item->n_ids + 1))
        return false;
    while (w->n_ids < item->n_ids) {
        if (w->task->want_places)
            item->places[w->n_ids] = (uint32_t)(w->n_chars + quire_detok_held(w->detok, item->ids[w->n_ids]));
        if (!checked(w, quire_detok_push(w->detok, item->ids[w->n_ids++], &piece, &n, &w->error->why)) ||
            !append_text(w, piece, n))
            return false;
        if (w->n_ids % IDS_A_LOOK == 0 && is_due(until_us))
            return true;
    }
    if (!checked(w, quire_detok_finish(w->detok, &piece, &n, &w->error->why)) || !append_text(w, piece, n))
        return false;
    quire_detok_close(w->detok);
    w->detok = NULL;
    item->n_text = w->text.n;
    if (!buffer_text(&w->text))
        return api_no_memory(w->error);
    item->text = w->text.data;
    w->text = (struct buffer){0};
    item_done(w);
    return true;
}

/* ---- contents of a reply ------------------------------------------------------------------- */

static bool is_text(const uint8_t *bytes, size_t n)
{
    size_t length = 1, at = 0;
    while (at < n && (length = utf8_character(bytes + at, n - at)) > 0)
        at += length;
    return at == n;
}

/* As in llama.cpp's /tokenize. */
static void put_piece(struct buffer *o, uint32_t id, const uint8_t *bytes, size_t n)
{
    json_out_raw(o, "{\"id\":");
    json_out_u64(o, id);
    json_out_raw(o, ",\"piece\":");
    if (is_text(bytes, n))
        json_out_string(o, (const char *)bytes, n);
    else
        json_out_byte_array(o, bytes, n);
    json_out_raw(o, "}");
}

static bool make_strings(struct text_work *w, uint64_t until_us)
{
    const struct request_item *item = &w->task->items[0];
    while (w->n_ids < item->n_ids) {
        uint8_t *bytes;
        size_t n;
        if (!checked(w, quire_text_token_bytes(w->task->tokenizer, item->ids[w->n_ids], &bytes, &n, &w->error->why)))
            return false;
        if (w->n_ids > 0)
            buffer_append(&w->text, ",", 1);
        if (w->task->want_pieces)
            put_piece(&w->text, item->ids[w->n_ids], bytes, n);
        else
            json_out_string(&w->text, (const char *)bytes, n);
        w->n_ids++;
        free(bytes);
        if (w->text.failed)
            return api_no_memory(w->error);
        if (w->n_reply_bytes + w->text.n > TEXT_MAX_REPLY_BYTES)
            return too_much(w);
        if (w->n_ids % IDS_A_LOOK == 0 && is_due(until_us))
            return true;
    }
    w->task->token_strings = w->text.data;
    w->task->n_token_strings = w->text.n;
    w->text = (struct buffer){0};
    w->has_strings = true;
    return true;
}

/* ---- slices --------------------------------------------------------------------------------- */

/* Does the next part of the task. Returns false if it failed. */
static bool step(struct text_work *w, uint64_t until_us)
{
    struct text_task *t = w->task;
    if (t->chat.messages)
        return render(w);
    if (w->n_items < t->n_items) {
        struct request_item *item = &t->items[w->n_items];
        if (w->encoder || !item->ids)
            return encode(w, item, until_us);
        /* A prompt that does not fit its context is rejected with its exact length. */
        bool fits = t->is_reply || t->truncates || item->n_ids <= t->max_tokens;
        if (!item->text && t->want_text && fits)
            return decode(w, item, until_us);
        item_done(w);
        return true;
    }
    if (t->prediction.text)
        return encode(w, &t->prediction, until_us);
    return make_strings(w, until_us);
}

static bool is_done(const struct text_work *w)
{
    const struct text_task *t = w->task;
    return w->n_items == t->n_items && !t->prediction.text && (w->has_strings || !t->want_strings);
}

bool text_work_some(struct text_task *t, uint64_t until_us, bool *more, struct api_error *e)
{
    struct text_work *w = t->work ? t->work : calloc(1, sizeof *w);
    bool ok = w != NULL || api_no_memory(e);
    *more = false;
    if (!ok)
        return false;
    t->work = w;
    w->task = t;
    w->error = e;
    while (ok && !is_done(w)) {
        ok = step(w, until_us);
        if (ok && is_due(until_us))
            break;
    }
    *more = ok && !is_done(w);
    if (!*more)
        free_work(t);
    return ok;
}
