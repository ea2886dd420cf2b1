#include "server/front/body/text_work.h"

#include "base/clock.h"
#include "server/front/front_internal.h"

#include <stdlib.h>
#include <string.h>

#define SLICE_US 5000 /* plus the rest of the current piece: 5 to 10 ms */
/* Even with few digits, the ids take no more memory than the reply. */
#define MAX_LISTED_IDS (TEXT_MAX_REPLY_BYTES / 4)
#define IDS_A_LOOK 256 /* ids decoded between two readings of the clock */

void text_work_free(struct text_work *w)
{
    quire_encoder_close(w->encoder);
    quire_detok_close(w->detok);
    buffer_free(&w->text);
    *w = (struct text_work){0};
}

static bool checked(struct request_job *j, int status)
{
    return status == QUIRE_OK || api_fail_status(&j->error, status, j->prompt_name);
}

static bool is_prediction(const struct request_job *j, const struct request_item *item)
{
    return item == &j->prediction;
}

static bool no_memory(struct request_job *j)
{
    return api_fail(&j->error, 503, NULL, "out_of_memory", "out of memory");
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

static bool render(struct request_job *j)
{
    const struct quire_chat chat = {
        .messages_json = j->messages,
        .tools_json = j->tools,
        .kwargs_json = j->kwargs,
        .add_generation_prompt = j->add_generation_prompt,
        .continue_final = j->continue_final,
        .specials = j->served->config->specials_in_messages,
    };
    struct request_item *item = &j->items[0];
    j->work.rendered = true;
    int status = quire_text_chat(j->served->config->text, &chat, &item->text, &item->n_text, &j->mark, &j->error.why);
    request_job_drop_chat(j);
    return checked(j, status);
}

/* ---- text → ids ----------------------------------------------------------------------------- */

/* Fails a prompt that does not fit the context. */
static bool too_long(struct request_job *j, size_t least)
{
    return api_fail(&j->error, 400, j->prompt_name, "context_length_exceeded",
                    "%s: this model's maximum context length is %u tokens, the prompt has at least %zu", j->prompt_name,
                    j->served->facts->max_model_len, least);
}

static bool too_much(struct request_job *j)
{
    return api_bad(&j->error, j->prompt_name, "the reply would be more than %zu MiB: send less at once",
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

static bool grow(struct request_job *j, uint32_t **numbers, size_t capacity)
{
    uint32_t *grown = realloc(*numbers, capacity * sizeof *grown);
    if (!grown)
        return no_memory(j);
    *numbers = grown;
    return true;
}

static bool append_ids(struct request_job *j, struct request_item *item, const uint32_t *ids, size_t n)
{
    struct text_work *w = &j->work;
    bool placed = j->want_places && !is_prediction(j, item);
    if (!item->ids || n > w->capacity - item->n_ids) {
        /* Most prompts are one piece, and get exactly the space they need. */
        size_t capacity = item->ids ? (w->capacity + n) + (w->capacity + n) / 2 : n + (n == 0);
        if (!grow(j, &item->ids, capacity) || (placed && !grow(j, &item->places, capacity)))
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
static bool make_room(const struct request_job *j, struct request_item *item)
{
    size_t most = j->served->facts->max_model_len;
    if (item->n_ids <= most)
        return true;
    if (j->params.truncate == 0)
        return false;
    if (item->n_ids > 2 * most) {
        request_item_keep(item, item->n_ids - most, most);
    }
    return true;
}

/* Takes over the ids of a piece. */
static bool take_ids(struct request_job *j, struct request_item *item, const uint32_t *ids, size_t n)
{
    if (is_prediction(j, item))
        return append_ids(j, item, ids, n);
    if (j->counts_only) {
        item->n_ids += n;
        return true;
    }
    if (!j->put)
        return make_room(j, item) ? append_ids(j, item, ids, n) : too_long(j, item->n_ids + n);
    j->work.n_reply_bytes += listed_bytes(ids, n);
    bool fits = j->work.n_reply_bytes <= TEXT_MAX_REPLY_BYTES && item->n_ids + n <= MAX_LISTED_IDS;
    return fits ? append_ids(j, item, ids, n) : too_much(j);
}

/* Encodes it as an answer's text, without BOS. Special tokens in it count as tokens, since a wrong guess costs only
 * time. */
static bool begin_prediction(struct request_job *j)
{
    int status = quire_encoder_open(j->served->config->text, j->prediction.text, j->prediction.n_text, false,
                                    &j->work.encoder, &j->error.why);
    return status == QUIRE_OK || api_fail_status(&j->error, status, "prediction");
}

static bool begin_encoding(struct request_job *j, struct request_item *item)
{
    const struct quire_text *text = j->served->config->text;
    if (is_prediction(j, item))
        return begin_prediction(j);
    /* Marks would be counted too. */
    if (!j->put && j->params.truncate == 0 && !j->mark) {
        size_t least = quire_text_least_tokens(text, item->text, item->n_text);
        if (least > j->served->facts->max_model_len)
            return too_long(j, least);
    }
    if (!checked(j,
                 quire_encoder_open(text, item->text, item->n_text, j->add_special, &j->work.encoder, &j->error.why)))
        return false;
    if (j->want_places)
        quire_encoder_place(j->work.encoder);
    if (j->mark)
        quire_encoder_mark(j->work.encoder, j->mark);
    return true;
}

static bool encode(struct request_job *j, struct request_item *item, uint64_t until_us)
{
    struct text_work *w = &j->work;
    const uint32_t *ids = NULL;
    size_t n;
    if (!w->encoder && !begin_encoding(j, item))
        return false;
    for (;;) {
        if (!checked(j, quire_encoder_next(w->encoder, &ids, &n, &j->error.why)))
            return false;
        if (!ids)
            break;
        if (!take_ids(j, item, ids, n))
            return false;
        if ((j->params.truncate_end || is_prediction(j, item)) && item->n_ids > j->served->facts->max_model_len)
            break; /* only its beginning is kept */
        if (is_due(until_us))
            return true;
    }
    quire_encoder_close(w->encoder);
    w->encoder = NULL;
    if (!j->want_text || is_prediction(j, item)) {
        free(item->text);
        item->text = NULL;
    }
    if (is_prediction(j, item))
        w->capacity = 0;
    else
        item_done(w);
    return true;
}

/* ---- ids → text ----------------------------------------------------------------------------- */

static bool append_text(struct request_job *j, const char *piece, size_t n)
{
    struct text_work *w = &j->work;
    w->n_reply_bytes += json_out_string_bytes(piece, n) - 2; /* the quotes are counted once, for the whole text */
    if (w->n_reply_bytes > TEXT_MAX_REPLY_BYTES)
        return too_much(j);
    if (j->want_places)
        w->n_chars += utf8_count(piece, n);
    return buffer_append(&w->text, piece, n) == QUIRE_OK || no_memory(j);
}

static bool decode(struct request_job *j, struct request_item *item, uint64_t until_us)
{
    struct text_work *w = &j->work;
    const struct quire_text *text = j->served->config->text;
    const char *piece;
    size_t n;
    if (!w->detok && !checked(j, quire_detok_open(text, NULL, 0, j->skip_special, &w->detok, &j->error.why)))
        return false;
    if (j->want_places && !item->places && !grow(j, &item->places, item->n_ids + 1))
        return false;
    while (w->n_ids < item->n_ids) {
        if (j->want_places)
            item->places[w->n_ids] = (uint32_t)(w->n_chars + quire_detok_held(w->detok, item->ids[w->n_ids]));
        if (!checked(j, quire_detok_push(w->detok, item->ids[w->n_ids++], &piece, &n, &j->error.why)) ||
            !append_text(j, piece, n))
            return false;
        if (w->n_ids % IDS_A_LOOK == 0 && is_due(until_us))
            return true;
    }
    if (!checked(j, quire_detok_finish(w->detok, &piece, &n, &j->error.why)) || !append_text(j, piece, n))
        return false;
    quire_detok_close(w->detok);
    w->detok = NULL;
    item->n_text = w->text.n;
    if (!buffer_text(&w->text))
        return no_memory(j);
    item->text = w->text.data;
    w->text = (struct buffer){0};
    item_done(w);
    return true;
}

/* ---- contents of a reply ---- */

static bool make_strings(struct request_job *j, uint64_t until_us)
{
    struct text_work *w = &j->work;
    const struct request_item *item = &j->items[0];
    while (w->n_ids < item->n_ids) {
        uint8_t *bytes;
        size_t n;
        if (!checked(j,
                     quire_text_token_bytes(j->served->config->text, item->ids[w->n_ids], &bytes, &n, &j->error.why)))
            return false;
        if (w->n_ids++ > 0)
            buffer_append(&w->text, ",", 1);
        json_out_string(&w->text, (const char *)bytes, n);
        free(bytes);
        if (w->text.failed)
            return no_memory(j);
        if (w->n_reply_bytes + w->text.n > TEXT_MAX_REPLY_BYTES)
            return too_much(j);
        if (w->n_ids % IDS_A_LOOK == 0 && is_due(until_us))
            return true;
    }
    j->token_strings = w->text.data;
    j->n_token_strings = w->text.n;
    w->text = (struct buffer){0};
    w->has_strings = true;
    return true;
}

static bool put_reply(struct request_job *j)
{
    j->work.has_reply = true;
    j->put(&j->reply, j);
    return !j->reply.failed || no_memory(j);
}

/* ---- slices --------------------------------------------------------------------------------- */

/* Does the next task, or a part of it. Returns false if it failed. */
static bool step(struct request_job *j, uint64_t until_us)
{
    struct text_work *w = &j->work;
    if (j->messages && !w->rendered)
        return render(j);
    if (w->n_items < j->n_items) {
        struct request_item *item = &j->items[w->n_items];
        if (w->encoder || !item->ids)
            return encode(j, item, until_us);
        /* A prompt that does not fit its context is rejected with its exact length. */
        bool fits = j->put || j->params.truncate != 0 || item->n_ids <= j->served->facts->max_model_len;
        if (!item->text && j->want_text && fits)
            return decode(j, item, until_us);
        item_done(w);
        return true;
    }
    if (j->prediction.text)
        return encode(j, &j->prediction, until_us);
    if (j->want_strings && !w->has_strings)
        return make_strings(j, until_us);
    return put_reply(j);
}

static bool is_done(const struct request_job *j)
{
    const struct text_work *w = &j->work;
    return w->n_items == j->n_items && !j->prediction.text && (w->has_strings || !j->want_strings) &&
           (w->has_reply || !j->put);
}

bool text_work_some(struct request_job *j, bool *more)
{
    uint64_t until_us = quire_now_us() + SLICE_US;
    bool ok = true;
    while (ok && !is_done(j)) {
        ok = step(j, until_us);
        if (ok && is_due(until_us))
            break;
    }
    *more = ok && !is_done(j);
    if (!*more)
        text_work_free(&j->work);
    return ok;
}
