#include "server/front/responses/reply_items.h"

#include "base/hash.h"
#include "server/front/output/reply.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void reply_items_free(struct reply_items *items)
{
    buffer_free(&items->done);
    buffer_free(&items->text);
    buffer_free(&items->logprobs);
    buffer_free(&items->name);
    buffer_free(&items->call_id);
    buffer_free(&items->waiting);
}

uint64_t reply_items_bytes(const struct reply_items *items)
{
    return items->done.n + items->text.n + items->logprobs.n + items->name.n + items->call_id.n + items->waiting.n;
}

/* The reply, and what is written of it. */
struct items_writer {
    struct reply *r;
    struct choice *c;
    const char *status; /* of an item that ends now */
    bool any; /* the piece has given an event */
};

static struct reply_items *items_of(const struct items_writer *w)
{
    return w->c->parts->items;
}

/* ---- one item ------------------------------------------------------------------------------- */

static void put_part(struct buffer *o, const struct reply_items *items)
{
    if (items->open == ITEM_REASONING) {
        json_out_raw(o, "{\"type\":\"reasoning_text\",\"text\":");
        json_out_string(o, items->text.data, items->text.n);
    } else {
        json_out_raw(o, "{\"type\":\"output_text\",\"annotations\":[],\"text\":");
        json_out_string(o, items->text.data, items->text.n);
        json_out_raw(o, ",\"logprobs\":[");
        buffer_append(o, items->logprobs.data, items->logprobs.n);
        json_out_raw(o, "]");
    }
    json_out_raw(o, "}");
}

/* is_begun: it has no parts yet. */
static void put_item(struct buffer *o, const struct reply_items *items, const char *status, bool is_begun)
{
    static const char *const heads[] = {
        [ITEM_NONE] = "",
        [ITEM_REASONING] = "{\"type\":\"reasoning\",\"summary\":[],\"id\":",
        [ITEM_MESSAGE] = "{\"type\":\"message\",\"role\":\"assistant\",\"id\":",
        [ITEM_CALL] = "{\"type\":\"function_call\",\"id\":",
    };
    json_out_raw(o, heads[items->open]);
    json_out_text(o, items->id);
    json_out_raw(o, ",\"status\":");
    json_out_text(o, status);
    if (items->open == ITEM_CALL) {
        json_out_raw(o, ",\"call_id\":");
        json_out_string(o, items->call_id.data, items->call_id.n);
        json_out_raw(o, ",\"name\":");
        json_out_string(o, items->name.data, items->name.n);
        json_out_raw(o, ",\"arguments\":");
        json_out_string(o, items->text.data, items->text.n);
        json_out_raw(o, "}");
        return;
    }
    json_out_raw(o, ",\"content\":[");
    if (!is_begun)
        put_part(o, items);
    json_out_raw(o, "]}");
}

/* ---- a stream's events ---- */

void responses_begin_event(struct reply *r, const char *type)
{
    reply_begin_event(r, type);
    json_out_raw(&r->event, ",\"sequence_number\":");
    json_out_u64(&r->event, r->n_events++);
}

static void begin_item_event(const struct items_writer *w, const char *type)
{
    const struct reply_items *items = items_of(w);
    struct buffer *o = &w->r->event;
    responses_begin_event(w->r, type);
    json_out_raw(o, ",\"item_id\":");
    json_out_text(o, items->id);
    json_out_raw(o, ",\"output_index\":");
    json_out_u64(o, items->n - 1);
    if (items->open != ITEM_CALL)
        json_out_raw(o, ",\"content_index\":0");
}

static void item_event(const struct items_writer *w, const char *type, const char *status, bool is_begun)
{
    struct buffer *o = &w->r->event;
    responses_begin_event(w->r, type);
    json_out_raw(o, ",\"output_index\":");
    json_out_u64(o, items_of(w)->n - 1);
    json_out_raw(o, ",\"item\":");
    put_item(o, items_of(w), status, is_begun);
    reply_end_event(w->r);
}

static void part_event(const struct items_writer *w, const char *type)
{
    begin_item_event(w, type);
    json_out_raw(&w->r->event, ",\"part\":");
    put_part(&w->r->event, items_of(w));
    reply_end_event(w->r);
}

/* The event with the whole text of the open item. */
static void text_done_event(const struct items_writer *w)
{
    static const char *const types[] = {[ITEM_NONE] = "",
                                        [ITEM_REASONING] = "response.reasoning_text.done",
                                        [ITEM_MESSAGE] = "response.output_text.done",
                                        [ITEM_CALL] = "response.function_call_arguments.done"};
    const struct reply_items *items = items_of(w);
    struct buffer *o = &w->r->event;
    begin_item_event(w, types[items->open]);
    if (items->open == ITEM_CALL) {
        json_out_raw(o, ",\"name\":");
        json_out_string(o, items->name.data, items->name.n);
    }
    json_out_raw(o, items->open == ITEM_CALL ? ",\"arguments\":" : ",\"text\":");
    json_out_string(o, items->text.data, items->text.n);
    if (items->open == ITEM_MESSAGE) {
        json_out_raw(o, ",\"logprobs\":[");
        buffer_append(o, items->logprobs.data, items->logprobs.n);
        json_out_raw(o, "]");
    }
    reply_end_event(w->r);
}

static void delta_event(const struct items_writer *w, const char *text, size_t n)
{
    static const char *const types[] = {[ITEM_NONE] = "",
                                        [ITEM_REASONING] = "response.reasoning_text.delta",
                                        [ITEM_MESSAGE] = "response.output_text.delta",
                                        [ITEM_CALL] = "response.function_call_arguments.delta"};
    const struct reply_items *items = items_of(w);
    struct buffer *o = &w->r->event;
    begin_item_event(w, types[items->open]);
    json_out_raw(o, ",\"delta\":");
    json_out_string(o, text, n);
    if (items->open == ITEM_MESSAGE) {
        json_out_raw(o, ",\"logprobs\":[");
        buffer_append(o, items->waiting.data, items->waiting.n);
        json_out_raw(o, "]");
    }
    reply_end_event(w->r);
}

/* ---- its beginning, text and end ---- */

static void begin_item(struct items_writer *w, enum item_kind kind)
{
    static const char *const prefixes[] = {
        [ITEM_NONE] = "", [ITEM_REASONING] = "rs", [ITEM_MESSAGE] = "msg", [ITEM_CALL] = "fc"};
    struct reply_items *items = items_of(w);
    uint64_t random[2];
    quire_random(random, sizeof random);
    snprintf(items->id, sizeof items->id, "%s_%016" PRIx64 "%08" PRIx64, prefixes[kind], random[0],
             random[1] & UINT32_MAX);
    items->open = kind;
    items->n++;
    if (!w->r->params->stream)
        return;
    item_event(w, "response.output_item.added", "in_progress", true);
    if (kind != ITEM_CALL)
        part_event(w, "response.content_part.added");
}

static void end_item(struct items_writer *w)
{
    struct reply_items *items = items_of(w);
    if (items->open == ITEM_NONE)
        return;
    if (w->r->params->stream) {
        text_done_event(w);
        if (items->open != ITEM_CALL)
            part_event(w, "response.content_part.done");
        item_event(w, "response.output_item.done", w->status, false);
    }
    if (items->done.n > 0)
        json_out_raw(&items->done, ",");
    put_item(&items->done, items, w->status, false);
    items->done.failed |= items->text.failed || items->logprobs.failed || items->name.failed || items->call_id.failed;
    buffer_clear(&items->text);
    buffer_clear(&items->logprobs);
    items->open = ITEM_NONE;
}

/* Adds to the open item, of which the waiting logprobs are, if it is a message. */
static void add_to_item(struct items_writer *w, const char *text, size_t n)
{
    struct reply_items *items = items_of(w);
    if (w->r->params->stream)
        delta_event(w, text, n);
    buffer_append(&items->text, text, n);
    if (items->open == ITEM_MESSAGE && items->waiting.n > 0) {
        if (items->logprobs.n > 0)
            json_out_raw(&items->logprobs, ",");
        buffer_append(&items->logprobs, items->waiting.data, items->waiting.n);
    }
    items->done.failed |= items->waiting.failed;
    buffer_clear(&items->waiting);
    w->any = true;
}

static void add_piece(struct items_writer *w, enum item_kind kind, const char *text, size_t n)
{
    if (n == 0)
        return;
    if (items_of(w)->open != kind) {
        end_item(w);
        begin_item(w, kind);
    }
    add_to_item(w, text, n);
}

/* ---- the model's text ----------------------------------------------------------------------- */

static void on_text(void *context, const char *text, size_t n)
{
    add_piece(context, ITEM_MESSAGE, text, n);
}

static void on_reasoning(void *context, const char *text, size_t n)
{
    add_piece(context, ITEM_REASONING, text, n);
}

static void set_call_id(struct items_writer *w, const struct tool_call *call)
{
    struct buffer *o = &items_of(w)->call_id;
    char id[TOOL_CALL_ID_BYTES];
    buffer_clear(o);
    tool_call_id(w->r->params->tool_format, "call_", id);
    if (call->id)
        buffer_append(o, call->id, call->n_id);
    else
        json_out_raw(o, id);
}

static void on_begin(void *context, const struct tool_call *call)
{
    struct items_writer *w = context;
    struct reply_items *items = items_of(w);
    end_item(w);
    set_call_id(w, call);
    buffer_clear(&items->name);
    buffer_append(&items->name, call->name, call->n_name);
    begin_item(w, ITEM_CALL);
}

static void on_arguments(void *context, const char *text, size_t n)
{
    if (n > 0)
        add_to_item(context, text, n);
}

static void on_end(void *context)
{
    end_item(context);
}

static struct answer_sink sink_of(struct items_writer *w)
{
    return (struct answer_sink){on_reasoning, {on_text, on_begin, on_arguments, on_end, w}};
}

/* Logprobs whose tokens have no text belong to the open message. */
static void show_waiting(struct items_writer *w)
{
    if (items_of(w)->open == ITEM_MESSAGE && items_of(w)->waiting.n > 0)
        add_to_item(w, "", 0);
}

static void add_waiting(struct items_writer *w, const struct gen_piece *piece)
{
    struct buffer *waiting = &items_of(w)->waiting;
    if (piece->n_tokens == 0 || w->r->params->spec->n_logprobs < 0)
        return;
    if (waiting->n > 0)
        json_out_raw(waiting, ",");
    reply_put_logprobs(waiting, w->r, piece);
}

/* The parser holds text back: it may be part of a message, or the tag of a call, whose tokens are not shown. After
 * reasoning or in a call it is a tag. */
static bool parse(struct items_writer *w, const struct gen_piece *piece)
{
    const struct answer_sink sink = sink_of(w);
    const bool ok = answer_parser_push(&w->c->parts->answer, piece->text, piece->n_text, &sink);
    const enum item_kind open = items_of(w)->open;
    if (!w->any && (open == ITEM_REASONING || open == ITEM_CALL))
        buffer_clear(&items_of(w)->waiting);
    return ok;
}

bool reply_items_add(struct reply *r, struct choice *c, const struct gen_piece *piece)
{
    struct items_writer w = {.r = r, .c = c, .status = "completed"};
    bool ok = true;
    add_waiting(&w, piece);
    if (answer_parser_is_needed(&c->parts->answer)) {
        ok = parse(&w, piece);
    } else {
        on_text(&w, piece->text, piece->n_text);
        show_waiting(&w);
    }
    return ok && !items_of(&w)->done.failed;
}

bool reply_items_end(struct reply *r, struct choice *c)
{
    struct items_writer w = {.r = r, .c = c, .status = c->finish == CHOICE_STOP ? "completed" : "incomplete"};
    const struct answer_sink sink = sink_of(&w);
    bool ok = !answer_parser_is_needed(&c->parts->answer) || answer_parser_finish(&c->parts->answer, &sink);
    if (items_of(&w)->n == 0)
        begin_item(&w, ITEM_MESSAGE);
    show_waiting(&w);
    end_item(&w);
    return ok && !items_of(&w)->done.failed;
}
