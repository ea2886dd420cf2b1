#include "server/front/messages/reply_blocks.h"

#include "server/front/output/reply.h"

/* Levels of nesting of a call's arguments: a request that repeats the call must stay below REQUEST_MAX_DEPTH. */
#define ARGUMENTS_MAX_DEPTH (REQUEST_MAX_DEPTH - 8)

/* Clients send thinking blocks back only with a signature. Quire signs nothing and checks nothing. */
#define SIGNATURE "quire"

void reply_blocks_free(struct reply_blocks *b)
{
    buffer_free(&b->text);
    buffer_free(&b->name);
    buffer_free(&b->arguments);
}

uint64_t reply_blocks_bytes(const struct reply_blocks *b)
{
    return b->text.n + b->name.n + b->arguments.n;
}

static struct reply_blocks *blocks_of(struct blocks_writer *w)
{
    return w->c->parts->blocks;
}

/* ---- one block ------------------------------------------------------------------------------ */

static void put_call_head(const struct blocks_writer *w, struct buffer *o, const struct buffer *name)
{
    char id[TOOL_CALL_ID_BYTES];
    tool_call_id(w->r->params->tool_format, "toolu_", id);
    json_out_raw(o, "{\"type\":\"tool_use\",\"id\":");
    json_out_text(o, id);
    json_out_raw(o, ",\"name\":");
    json_out_string(o, name->data, name->n);
    json_out_raw(o, ",\"input\":");
}

static void begin_event(struct blocks_writer *w, const char *type)
{
    reply_begin_event(w->r, type);
    json_out_raw(&w->r->event, ",\"index\":");
    json_out_u64(&w->r->event, blocks_of(w)->n - 1);
}

static void begin_block(struct blocks_writer *w, enum block_kind kind)
{
    struct reply_blocks *b = blocks_of(w);
    b->open = kind;
    b->n++;
    b->n_calls += kind == BLOCK_CALL;
    if (w->whole)
        return;
    begin_event(w, "content_block_start");
    json_out_raw(&w->r->event, ",\"content_block\":");
    if (kind == BLOCK_CALL) {
        put_call_head(w, &w->r->event, &b->name);
        json_out_raw(&w->r->event, "{}}");
    } else {
        json_out_raw(&w->r->event, kind == BLOCK_TEXT ? "{\"type\":\"text\",\"text\":\"\"}"
                                                      : "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    }
    reply_end_event(w->r);
}

static void add_to_block(struct blocks_writer *w, const char *text, size_t n)
{
    static const char *const deltas[] = {[BLOCK_NONE] = "",
                                         [BLOCK_TEXT] = "\"text_delta\",\"text\":",
                                         [BLOCK_THINKING] = "\"thinking_delta\",\"thinking\":",
                                         [BLOCK_CALL] = "\"input_json_delta\",\"partial_json\":"};
    if (w->whole) {
        buffer_append(&blocks_of(w)->text, text, n);
        return;
    }
    begin_event(w, "content_block_delta");
    json_out_raw(&w->r->event, ",\"delta\":{\"type\":");
    json_out_raw(&w->r->event, deltas[blocks_of(w)->open]);
    json_out_string(&w->r->event, text, n);
    json_out_raw(&w->r->event, "}");
    reply_end_event(w->r);
}

static void put_whole(struct blocks_writer *w)
{
    struct reply_blocks *b = blocks_of(w);
    struct buffer *o = w->whole;
    if (b->n > 1)
        json_out_raw(o, ",");
    if (b->open == BLOCK_CALL) {
        put_call_head(w, o, &b->name);
        buffer_append(o, b->text.data, b->text.n);
    } else {
        json_out_raw(o, b->open == BLOCK_TEXT ? "{\"type\":\"text\",\"text\":"
                                              : "{\"type\":\"thinking\",\"signature\":\"" SIGNATURE "\",\"thinking\":");
        json_out_string(o, b->text.data, b->text.n);
    }
    json_out_raw(o, "}");
    o->failed |= b->text.failed;
    buffer_clear(&b->text);
}

static void end_block(struct blocks_writer *w)
{
    struct reply_blocks *b = blocks_of(w);
    if (b->open == BLOCK_NONE)
        return;
    if (w->whole) {
        put_whole(w);
    } else {
        if (b->open == BLOCK_THINKING) {
            begin_event(w, "content_block_delta");
            json_out_raw(&w->r->event, ",\"delta\":{\"type\":\"signature_delta\",\"signature\":\"" SIGNATURE "\"}");
            reply_end_event(w->r);
        }
        begin_event(w, "content_block_stop");
        reply_end_event(w->r);
    }
    b->open = BLOCK_NONE;
}

/* ---- pieces of the answer ------------------------------------------------------------------- */

static void add_piece(struct blocks_writer *w, enum block_kind kind, const char *text, size_t n)
{
    if (n == 0)
        return;
    if (blocks_of(w)->open != kind) {
        end_block(w);
        begin_block(w, kind);
    }
    add_to_block(w, text, n);
}

void blocks_text(struct blocks_writer *w, const char *text, size_t n)
{
    add_piece(w, BLOCK_TEXT, text, n);
}

void blocks_thinking(struct blocks_writer *w, const char *text, size_t n)
{
    add_piece(w, BLOCK_THINKING, text, n);
}

static bool passes_on(const struct blocks_writer *w)
{
    return !w->whole && w->r->params->streams_raw_calls;
}

void blocks_call_begin(struct blocks_writer *w, const char *name, size_t n)
{
    struct reply_blocks *b = blocks_of(w);
    buffer_clear(&b->name);
    buffer_clear(&b->arguments);
    buffer_append(&b->name, name, n);
    if (!passes_on(w))
        return;
    end_block(w);
    begin_block(w, BLOCK_CALL);
}

void blocks_call_arguments(struct blocks_writer *w, const char *text, size_t n)
{
    if (passes_on(w))
        add_piece(w, BLOCK_CALL, text, n);
    else
        buffer_append(&blocks_of(w)->arguments, text, n);
}

/* The object in the text of a call's arguments, which may be empty. Its n is 0 if it is not an object. */
static struct quire_value object_of(const struct buffer *arguments, struct quire_doc **doc)
{
    if (arguments->n == 0)
        return (struct quire_value){"{}", 2};
    if (quire_doc_open(arguments->data, arguments->n, ARGUMENTS_MAX_DEPTH, "arguments", doc, NULL) != QUIRE_OK)
        return (struct quire_value){0};
    const struct quire_value root = quire_doc_root(*doc);
    return json_is(root, QUIRE_OBJECT) ? root : (struct quire_value){0};
}

static void add_malformed(struct blocks_writer *w)
{
    const struct reply_blocks *b = blocks_of(w);
    struct buffer text = {0};
    blocks_of(w)->n_malformed++;
    json_out_raw(&text, "{\"name\": ");
    json_out_string(&text, b->name.data, b->name.n);
    json_out_raw(&text, ", \"arguments\": ");
    buffer_append(&text, b->arguments.data, b->arguments.n);
    json_out_raw(&text, "}");
    if (text.failed)
        http_cut_off(w->r->x);
    else
        add_piece(w, BLOCK_TEXT, text.data, text.n);
    buffer_free(&text);
}

void blocks_call_end(struct blocks_writer *w)
{
    struct reply_blocks *b = blocks_of(w);
    struct quire_doc *doc = NULL;
    if (passes_on(w)) {
        end_block(w);
        return;
    }
    if (b->name.failed || b->arguments.failed) {
        http_cut_off(w->r->x);
        return;
    }
    const struct quire_value input = object_of(&b->arguments, &doc);
    if (input.n > 0) {
        end_block(w);
        begin_block(w, BLOCK_CALL);
        add_to_block(w, input.text, input.n);
        end_block(w);
    } else {
        add_malformed(w);
    }
    quire_doc_close(doc);
    buffer_clear(&b->arguments);
}

void blocks_end(struct blocks_writer *w)
{
    if (blocks_of(w)->n == 0)
        begin_block(w, BLOCK_TEXT);
    end_block(w);
}
