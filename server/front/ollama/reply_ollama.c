/* Writes the replies of Ollama's /api/chat and /api/generate: objects, one a line in a stream. */
#include "server/front/ollama/ollama.h"

#include "server/front/output/reply.h"

static bool is_chat(const struct reply *r)
{
    return r->dialect == &api_ollama_chat;
}

/* The beginning of every object. */
static void begin(struct reply *r, const struct generation_job *j)
{
    json_out_raw(&r->head, "{\"model\":");
    json_out_text(&r->head, j->job.model);
}

/* ---- the members of an object -------------------------------------------------------------------- */

/* The parts of the answer that came since the last object. */
struct said {
    struct reply *r;
    struct choice *c;
    struct buffer content, thinking, calls;
};

static void said_free(struct said *s)
{
    buffer_free(&s->content);
    buffer_free(&s->thinking);
    buffer_free(&s->calls);
}

/* Ollama's clients need an object. A call with other arguments is text, as the model wrote it. */
static void put_call(struct said *s, const struct answer_part *call, uint32_t index)
{
    struct quire_doc *doc = NULL;
    const char *text = call->text.n > 0 ? call->text.data : "{}";
    const size_t n = call->text.n > 0 ? call->text.n : 2;
    const bool is_object = quire_doc_open(text, n, REQUEST_MAX_DEPTH - 8, "arguments", &doc, NULL) == QUIRE_OK &&
                           json_is(quire_doc_root(doc), QUIRE_OBJECT);
    struct buffer *o = is_object ? &s->calls : &s->content;
    if (is_object) {
        json_out_raw(o, o->n > 0 ? ",{\"function\":{\"index\":" : "{\"function\":{\"index\":");
        json_out_u64(o, index);
        json_out_raw(o, ",\"name\":");
    } else {
        json_out_raw(o, "{\"name\": ");
    }
    json_out_text(o, call->name);
    json_out_raw(o, is_object ? ",\"arguments\":" : ", \"arguments\": ");
    buffer_append(o, text, n);
    json_out_raw(o, is_object ? "}}" : "}");
    quire_doc_close(doc);
}

static void put_message(struct buffer *o, const struct said *s)
{
    const bool chat = is_chat(s->r);
    json_out_raw(o, chat ? ",\"message\":{\"role\":\"assistant\",\"content\":" : ",\"response\":");
    json_out_string(o, s->content.data, s->content.n);
    if (s->thinking.n > 0) {
        json_out_raw(o, ",\"thinking\":");
        json_out_string(o, s->thinking.data, s->thinking.n);
    }
    if (s->calls.n > 0) {
        json_out_raw(o, ",\"tool_calls\":[");
        buffer_append(o, s->calls.data, s->calls.n);
        json_out_raw(o, "]");
    }
    json_out_raw(o, chat ? "}" : "");
    o->failed |= s->content.failed || s->thinking.failed || s->calls.failed;
}

static void begin_object(struct reply *r, struct buffer *o)
{
    char now[OLLAMA_TIME_BYTES];
    ollama_time(now);
    buffer_append(o, r->head.data, r->head.n);
    json_out_raw(o, ",\"created_at\":");
    json_out_text(o, now);
}

static void put_ns(struct buffer *o, const char *name, uint64_t us)
{
    json_out_raw(o, ",");
    json_out_text(o, name);
    json_out_raw(o, ":");
    json_out_u64(o, us * 1000);
}

/* The last fields of an answer. The model was loaded before. */
static void put_end(struct buffer *o, const struct reply *r)
{
    const struct reply_usage u = reply_usage(r);
    const struct reply_times times = reply_times(r, &r->prompts[0].choices[0]);
    json_out_raw(o, ",\"done\":true,\"done_reason\":");
    json_out_raw(o, r->prompts[0].choices[0].finish == CHOICE_STOP ? "\"stop\"" : "\"length\"");
    put_ns(o, "total_duration", times.total_us);
    put_ns(o, "load_duration", 0);
    json_out_raw(o, ",\"prompt_eval_count\":");
    json_out_u64(o, u.n_prompt);
    put_ns(o, "prompt_eval_duration", times.prompt_us);
    json_out_raw(o, ",\"eval_count\":");
    json_out_u64(o, u.n_generated);
    put_ns(o, "eval_duration", times.generated_us);
    if (r->params->wants_timing)
        reply_put_timing(o, r);
}

/* ---- the model's text ----------------------------------------------------------------------- */

static struct answer_parts *parts_of(struct said *s)
{
    return &s->c->parts->chat->shown;
}

static void on_reasoning(void *context, const char *text, size_t n)
{
    buffer_append(&((struct said *)context)->thinking, text, n);
}

static void on_text(void *context, const char *text, size_t n)
{
    buffer_append(&((struct said *)context)->content, text, n);
}

/* A call is kept until it is complete. */
static void on_call(void *context, const struct tool_call *call)
{
    const struct answer_sink sink = answer_parts_sink(parts_of(context));
    sink.tools.call_begin(sink.tools.context, call);
}

static void on_arguments(void *context, const char *text, size_t n)
{
    const struct answer_sink sink = answer_parts_sink(parts_of(context));
    sink.tools.call_arguments(sink.tools.context, text, n);
}

static void on_call_end(void *context)
{
    struct said *s = context;
    const struct answer_parts *parts = parts_of(s);
    if (!parts->failed && parts->n > 0)
        put_call(s, &parts->items[parts->n - 1], parts->n - 1);
    s->calls.failed |= parts->failed;
}

static void add_text(struct said *s, const char *text, size_t n, bool is_end)
{
    const struct answer_sink sink = {on_reasoning, {on_text, on_call, on_arguments, on_call_end, s}};
    struct answer_parser *parser = &s->c->parts->answer;
    if (!answer_parser_is_needed(parser)) {
        buffer_append(&s->content, text, n);
        return;
    }
    bool ok = n == 0 || answer_parser_push(parser, text, n, &sink);
    if (ok && is_end)
        ok = answer_parser_finish(parser, &sink);
    s->content.failed |= !ok;
}

/* ---- a stream's objects --------------------------------------------------------------------- */

static void open_choice(struct reply *r, struct reply_prompt *p, struct choice *c)
{
    (void)r;
    (void)p;
    c->parts->opened = true;
}

static void emit(struct said *s, const struct gen_piece *piece)
{
    struct reply *r = s->r;
    struct buffer *o = &r->event;
    const bool shows_tokens = r->params->spec->n_logprobs >= 0 && piece->n_tokens > 0;
    if (s->content.n + s->thinking.n + s->calls.n > 0 || shows_tokens) {
        buffer_clear(o);
        begin_object(r, o);
        put_message(o, s);
        if (shows_tokens) {
            json_out_raw(o, ",\"logprobs\":[");
            reply_put_logprobs(o, r, piece);
            json_out_raw(o, "]");
        }
        json_out_raw(o, ",\"done\":false}\n");
        reply_emit(r);
    } else if (s->content.failed || s->thinking.failed || s->calls.failed) {
        http_cut_off(r->x);
    }
    said_free(s);
}

static void put_token(struct reply *r, struct reply_prompt *p, struct choice *c, const struct gen_piece *piece)
{
    struct said s = {.r = r, .c = c};
    (void)p;
    add_text(&s, piece->text, piece->n_text, false);
    emit(&s, piece);
}

static void finish(struct reply *r, struct reply_prompt *p, struct choice *c)
{
    static const struct gen_piece none;
    struct said s = {.r = r, .c = c};
    (void)p;
    add_text(&s, NULL, 0, true);
    emit(&s, &none);
}

static void end(struct reply *r)
{
    const struct said nothing = {.r = r};
    buffer_clear(&r->event);
    begin_object(r, &r->event);
    put_message(&r->event, &nothing);
    put_end(&r->event, r);
    json_out_raw(&r->event, "}\n");
    reply_emit(r);
}

static void error(struct reply *r, const struct api_error *e)
{
    buffer_clear(&r->event);
    api_error_json_ollama(&r->event, e);
    json_out_raw(&r->event, "\n");
    reply_emit(r);
}

/* An object without text: a comment, as in a stream of events, would not be JSON. */
static void ping(struct reply *r)
{
    const struct said nothing = {.r = r};
    buffer_clear(&r->event);
    begin_object(r, &r->event);
    put_message(&r->event, &nothing);
    json_out_raw(&r->event, ",\"done\":false}\n");
    reply_emit(r);
}

/* ---- a whole reply -------------------------------------------------------------------------- */

static void collect(struct reply *r, struct choice *c, const struct gen_piece *piece)
{
    struct buffer *logprobs = &c->parts->chat->logprobs;
    buffer_append(&c->parts->text, piece->text, piece->n_text);
    if (piece->n_tokens == 0 || r->params->spec->n_logprobs < 0)
        return;
    if (logprobs->n > 0)
        json_out_raw(logprobs, ",");
    reply_put_logprobs(logprobs, r, piece);
}

static void whole(struct reply *r, struct buffer *o)
{
    struct choice *c = &r->prompts[0].choices[0];
    struct said s = {.r = r, .c = c};
    add_text(&s, c->parts->text.data, c->parts->text.n, true);
    begin_object(r, o);
    put_message(o, &s);
    if (r->params->spec->n_logprobs >= 0) {
        json_out_raw(o, ",\"logprobs\":[");
        buffer_append(o, c->parts->chat->logprobs.data, c->parts->chat->logprobs.n);
        json_out_raw(o, "]");
    }
    put_end(o, r);
    json_out_raw(o, "}");
    o->failed |= c->parts->text.failed || c->parts->chat->logprobs.failed;
    said_free(&s);
}

/* ---- the dialects --------------------------------------------------------------------------- */

#define OLLAMA_DIALECT(READ, SHAPE) \
    {.form = CHOICE_CHAT, \
     .id_prefix = "ollama-", \
     .stream_type = "application/x-ndjson", \
     .read = READ, \
     .shape = SHAPE, \
     .begin = begin, \
     .open = open_choice, \
     .token = put_token, \
     .finish = finish, \
     .end = end, \
     .error = error, \
     .ping = ping, \
     .collect = collect, \
     .whole = whole}

const struct api_dialect api_ollama_chat = OLLAMA_DIALECT(ollama_chat_read, &field_shape_ollama_chat);
const struct api_dialect api_ollama_generate = OLLAMA_DIALECT(ollama_generate_read, &field_shape_ollama_generate);
