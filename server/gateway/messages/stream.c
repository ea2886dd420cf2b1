/* A stream: chunks of chat completions → events of Messages.
 *
 * Anthropic's clients fail on a tool_use block whose input is not a JSON object. So a call is held back until it is
 * complete, and becomes text if its arguments are not an object. A client that chose it (eager_input_streaming)
 * receives the arguments as they come. */
#include "server/gateway/messages/calls.h"
#include "server/gateway/messages/parts.h"
#include "server/gateway/upstream_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- events --------------------------------------------------------------------------------- */

static void begin_event(struct buffer *o, const char *type)
{
    json_out_raw(o, "event: ");
    json_out_raw(o, type);
    json_out_raw(o, "\ndata: {\"type\":\"");
    json_out_raw(o, type);
    json_out_raw(o, "\"");
}

static void end_event(struct buffer *o)
{
    json_out_raw(o, "}\n\n");
}

static void begin_block_event(struct translate_stream *t, struct buffer *o, const char *type)
{
    begin_event(o, type);
    json_out_raw(o, ",\"index\":");
    json_out_u64(o, t->n_blocks - 1);
}

static struct part_usage usage_of(const struct translate_stream *t)
{
    return (struct part_usage){t->input, t->cached_input, t->output};
}

/* The first event, as late as possible: until it, another server may answer. */
static void begin_message(struct translate_stream *t, struct buffer *o)
{
    const struct part_usage usage = usage_of(t);
    if (t->has_begun)
        return;
    t->has_begun = true;
    begin_event(o, "message_start");
    json_out_raw(o, ",\"message\":");
    part_put_head(o, t->id, t->model);
    json_out_raw(o, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,");
    part_put_usage(o, &usage, NULL);
    json_out_raw(o, "}");
    end_event(o);
    begin_event(o, "ping");
    end_event(o);
}

/* ---- blocks --------------------------------------------------------------------------------- */

static void end_block(struct translate_stream *t, struct buffer *o)
{
    if (t->open == BLOCK_NONE)
        return;
    if (t->open == BLOCK_THINKING) {
        begin_block_event(t, o, "content_block_delta");
        json_out_raw(o, ",\"delta\":{\"type\":\"signature_delta\",\"signature\":\"" PART_SIGNATURE "\"}");
        end_event(o);
    }
    begin_block_event(t, o, "content_block_stop");
    end_event(o);
    t->open = BLOCK_NONE;
}

/* call: of BLOCK_CALL. */
static void begin_block(struct translate_stream *t, struct buffer *o, enum block_kind kind,
                        const struct translate_call *call)
{
    begin_message(t, o);
    end_block(t, o);
    t->open = kind;
    t->n_blocks++;
    begin_block_event(t, o, "content_block_start");
    json_out_raw(o, ",\"content_block\":");
    if (call) {
        part_put_call_head(o, call->id.data, call->id.n, call->name.data, call->name.n, t->id, t->n_tool_blocks++);
        json_out_raw(o, "{}}");
    } else {
        json_out_raw(o, kind == BLOCK_TEXT ? "{\"type\":\"text\",\"text\":\"\"}"
                                           : "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    }
    end_event(o);
}

/* Begins the event of a piece of the open block; its text follows as a JSON string, then end_piece(). */
static void begin_piece(struct translate_stream *t, struct buffer *o)
{
    static const char *const deltas[] = {[BLOCK_TEXT] = "\"text_delta\",\"text\":",
                                         [BLOCK_THINKING] = "\"thinking_delta\",\"thinking\":",
                                         [BLOCK_CALL] = "\"input_json_delta\",\"partial_json\":"};
    begin_block_event(t, o, "content_block_delta");
    json_out_raw(o, ",\"delta\":{\"type\":");
    json_out_raw(o, deltas[t->open]);
}

static void end_piece(struct buffer *o)
{
    json_out_raw(o, "}");
    end_event(o);
}

/* ---- calls ---------------------------------------------------------------------------------- */

static void put_arguments(struct translate_stream *t, struct buffer *o, const char *text, size_t n)
{
    begin_piece(t, o);
    json_out_string(o, text, n);
    end_piece(o);
}

static void end_call(struct translate_stream *t, struct buffer *o)
{
    if (t->open == BLOCK_CALL)
        end_block(t, o);
    calls_sent(t, &t->calls[t->n_sent++]);
}

static void put_malformed(struct translate_stream *t, const struct translate_call *c, struct buffer *o)
{
    struct buffer text = {0};
    part_put_malformed(&text, c->name.data, c->name.n, c->arguments.data, c->arguments.n);
    if (t->open != BLOCK_TEXT)
        begin_block(t, o, BLOCK_TEXT, NULL);
    begin_piece(t, o);
    json_out_string(o, text.data, text.failed ? 0 : text.n);
    end_piece(o);
    o->failed |= text.failed;
    buffer_free(&text);
}

/* The next call, of which all has arrived. */
static void put_whole_call(struct translate_stream *t, struct buffer *o)
{
    const struct translate_call *c = &t->calls[t->n_sent];
    if (part_is_object(c->arguments.data, c->arguments.n)) {
        begin_block(t, o, BLOCK_CALL, c);
        put_arguments(t, o, c->arguments.n ? c->arguments.data : "{}", c->arguments.n ? c->arguments.n : 2);
    } else {
        put_malformed(t, c, o);
    }
    end_call(t, o);
}

/* Sends the new part of the next call. */
static void put_eagerly(struct translate_stream *t, struct translate_call *c, struct buffer *o)
{
    if (c->name.n == 0)
        return;
    if (!c->is_open)
        begin_block(t, o, BLOCK_CALL, c);
    c->is_open = true;
    if (c->arguments.n > 0)
        put_arguments(t, o, c->arguments.data, c->arguments.n);
    t->n_held -= c->arguments.n;
    buffer_clear(&c->arguments);
    if (c->is_complete)
        end_call(t, o);
}

/* Sends what may be sent of the calls. is_end: no more of them comes. */
static void put_calls(struct translate_stream *t, bool is_end, struct buffer *o)
{
    while (t->n_sent < t->n_calls) {
        const uint32_t n_sent = t->n_sent;
        struct translate_call *c = &t->calls[n_sent];
        if (t->is_eager)
            put_eagerly(t, c, o);
        if (t->n_sent == n_sent && c->is_open && is_end)
            end_call(t, o);
        else if (t->n_sent == n_sent && !c->is_open && (is_end || c->is_complete))
            put_whole_call(t, o);
        if (t->n_sent == n_sent)
            return;
    }
}

/* ---- chunks --------------------------------------------------------------------------------- */

static void put_text(struct translate_stream *t, enum block_kind kind, struct quire_value text, struct buffer *o)
{
    if (t->open == BLOCK_CALL)
        end_call(t, o);
    if (t->open != (int)kind)
        begin_block(t, o, kind, NULL);
    begin_piece(t, o);
    part_put(o, text);
    end_piece(o);
}

static bool put_delta(struct translate_stream *t, struct quire_value delta, struct buffer *o, struct api_error *e)
{
    const struct quire_value calls = part_member(delta, "tool_calls");
    struct quire_value rest = calls, item, text;
    struct part_texts texts = {0};
    enum block_kind kind;
    while (part_next_text(delta, &texts, &kind, &text))
        put_text(t, kind, text, o);
    while (part_is(calls, QUIRE_ARRAY) && quire_value_next(&rest, NULL, &item)) {
        if (!calls_add(t, item, e))
            return false;
        put_calls(t, false, o);
    }
    return true;
}

static bool finish(struct translate_stream *t, struct quire_value choice, struct buffer *o, struct api_error *e)
{
    const struct quire_value stop = part_member(choice, "stop_reason"), reason = part_member(choice, "finish_reason");
    const char *word;
    put_calls(t, true, o);
    word = part_stop_reason(reason, t->n_tool_blocks > 0);
    if (part_is(stop, QUIRE_STRING) && t->n_tool_blocks == 0) {
        word = "stop_sequence";
        t->stop_sequence = strndup(stop.text, stop.n);
        if (!t->stop_sequence)
            return api_no_memory(e);
    }
    snprintf(t->stop_reason, sizeof t->stop_reason, "%s", word);
    return true;
}

/* The first choice of a chunk; requests ask for one. */
static bool put_choice(struct translate_stream *t, struct quire_value choices, struct buffer *o, struct api_error *e)
{
    struct quire_value choice;
    if (t->stop_reason[0] || !part_is(choices, QUIRE_ARRAY) || !quire_value_next(&choices, NULL, &choice))
        return true;
    return put_delta(t, part_member(choice, "delta"), o, e) &&
           (!part_is(part_member(choice, "finish_reason"), QUIRE_STRING) || finish(t, choice, o, e));
}

void translate_stream_begin(struct translate_stream *t, const char *id, const char *model, bool is_eager)
{
    *t = (struct translate_stream){.id = id, .model = model, .is_eager = is_eager};
}

bool translate_stream_event(struct translate_stream *t, const char *data, size_t n, struct buffer *o,
                            struct api_error *e)
{
    struct upstream_json j;
    int status = upstream_json_open(data, n, "event", &j, NULL);
    if (status == QUIRE_NO_MEMORY)
        return api_no_memory(e);
    if (status != QUIRE_OK)
        return api_fail(e, 502, NULL, "upstream_error", "the upstream server sent an event that is not JSON");
    const struct quire_value root = quire_doc_root(j.doc), error = part_error_of(root);
    const struct quire_value usage = part_member(root, "usage");
    bool ok = part_is(root, QUIRE_OBJECT) ||
              api_fail(e, 502, NULL, "upstream_error", "the upstream server sent an event that is not an object");
    ok = ok && (error.n == 0 || part_fail(e, error));
    if (ok && usage.n > 0) {
        struct part_usage u = usage_of(t);
        part_read_usage(usage, &u);
        t->input = u.input;
        t->cached_input = u.cached_input;
        t->output = u.output;
    }
    ok = ok && (t->has_ended || put_choice(t, part_member(root, "choices"), o, e));
    upstream_json_close(&j);
    return ok && (!o->failed || api_no_memory(e));
}

bool translate_stream_end(struct translate_stream *t, bool is_done, const char *cost, struct buffer *o,
                          struct api_error *e)
{
    const struct part_usage usage = usage_of(t);
    if (t->has_ended)
        return true;
    if (!is_done && !t->stop_reason[0])
        return api_fail(e, 502, NULL, "upstream_error",
                        "the upstream server ended its stream in the middle of the answer");
    put_calls(t, true, o);
    if (t->n_blocks == 0)
        begin_block(t, o, BLOCK_TEXT, NULL);
    end_block(t, o);
    begin_event(o, "message_delta");
    json_out_raw(o, ",\"delta\":{");
    part_put_stop(o,
                  t->stop_reason[0] ? t->stop_reason : part_stop_reason((struct quire_value){0}, t->n_tool_blocks > 0),
                  (struct quire_value){t->stop_sequence, t->stop_sequence ? strlen(t->stop_sequence) : 0});
    json_out_raw(o, "},");
    part_put_usage(o, &usage, cost);
    end_event(o);
    begin_event(o, "message_stop");
    end_event(o);
    t->has_ended = true;
    return !o->failed || api_no_memory(e);
}

void translate_stream_error(const struct translate_stream *t, const struct api_error *why, struct buffer *o)
{
    json_out_raw(o, "event: error\ndata: ");
    api_error_json_anthropic(o, why, t->id);
    json_out_raw(o, "\n\n");
}

void translate_stream_free(struct translate_stream *t)
{
    calls_free(t);
    free(t->stop_sequence);
    t->stop_sequence = NULL;
}
