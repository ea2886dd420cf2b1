/* A whole reply: chat completions → Messages. */
#include "server/gateway/messages/translate.h"

#include "server/gateway/messages/parts.h"
#include "server/gateway/upstream_json.h"

#include <stdlib.h>

struct blocks {
    struct buffer *o;
    const char *request;
    uint32_t n, n_calls;
};

static void begin_block(struct blocks *b)
{
    if (b->n++ > 0)
        json_out_raw(b->o, ",");
}

static void put_text(struct blocks *b, enum block_kind kind, struct quire_value text)
{
    begin_block(b);
    json_out_raw(b->o, kind == BLOCK_TEXT ? "{\"type\":\"text\",\"text\":"
                                          : "{\"type\":\"thinking\",\"signature\":\"" PART_SIGNATURE
                                            "\",\"thinking\":");
    part_put(b->o, text);
    json_out_raw(b->o, "}");
}

static void put_malformed(struct blocks *b, const char *name, size_t n_name, const char *arguments, size_t n)
{
    struct buffer text = {0};
    part_put_malformed(&text, name, n_name, arguments, n);
    begin_block(b);
    json_out_raw(b->o, "{\"type\":\"text\",\"text\":");
    json_out_string(b->o, text.data, text.failed ? 0 : text.n);
    json_out_raw(b->o, "}");
    b->o->failed |= text.failed;
    buffer_free(&text);
}

/* A string's content; a value of another kind as written, which some servers send for arguments. */
static char *text_of(struct quire_value value, size_t *n)
{
    char *text = NULL;
    if (part_is(value, QUIRE_STRING))
        return quire_value_text(value, &text, n, NULL) == QUIRE_OK ? text : NULL;
    text = malloc(value.n + 1);
    *n = value.n;
    if (text && value.n > 0)
        memcpy(text, value.text, value.n);
    return text;
}

static void put_call(struct blocks *b, struct quire_value call)
{
    const struct quire_value function = part_member(call, "function");
    size_t n_id = 0, n_name = 0, n = 0;
    char *id = text_of(part_member(call, "id"), &n_id), *name = text_of(part_member(function, "name"), &n_name);
    char *arguments = text_of(part_member(function, "arguments"), &n);
    if (!id || !name || !arguments) {
        b->o->failed = true;
    } else if (part_is_object(arguments, n)) {
        begin_block(b);
        part_put_call_head(b->o, id, n_id, name, n_name, b->request, b->n_calls++);
        buffer_append(b->o, n > 0 ? arguments : "{}", n > 0 ? n : 2);
        json_out_raw(b->o, "}");
    } else {
        put_malformed(b, name, n_name, arguments, n);
    }
    free(arguments);
    free(name);
    free(id);
}

static void put_message(struct buffer *o, struct quire_value root, struct quire_value choice, const char *model,
                        const char *id)
{
    const struct quire_value message = part_member(choice, "message"), stop = part_member(choice, "stop_reason");
    const struct quire_value calls = part_member(message, "tool_calls");
    struct quire_value rest = calls, call, text;
    struct blocks b = {.o = o, .request = id};
    struct part_texts texts = {0};
    struct part_usage usage = {0};
    enum block_kind kind;
    part_put_head(o, id, model);
    json_out_raw(o, ",\"content\":[");
    while (part_next_text(message, &texts, &kind, &text))
        put_text(&b, kind, text);
    while (part_is(calls, QUIRE_ARRAY) && quire_value_next(&rest, NULL, &call))
        put_call(&b, call);
    if (b.n == 0)
        put_text(&b, BLOCK_TEXT, (struct quire_value){"\"\"", 2});
    json_out_raw(o, "],");
    const bool stopped = part_is(stop, QUIRE_STRING) && b.n_calls == 0;
    part_put_stop(o, stopped ? "stop_sequence" : part_stop_reason(part_member(choice, "finish_reason"), b.n_calls > 0),
                  stopped ? stop : (struct quire_value){0});
    json_out_raw(o, ",");
    part_read_usage(part_member(root, "usage"), &usage);
    part_put_usage(o, &usage, NULL);
    json_out_raw(o, "}");
}

bool translate_reply(struct buffer *o, const char *text, size_t n, const char *model, const char *id,
                     struct api_error *e)
{
    struct upstream_json j;
    int status = upstream_json_open(text, n, "reply", &j, &e->why);
    if (status == QUIRE_NO_MEMORY)
        return api_no_memory(e);
    if (status != QUIRE_OK)
        return api_fail(e, 502, NULL, "upstream_error", "the upstream server's reply is not JSON");
    const struct quire_value root = quire_doc_root(j.doc), error = part_error_of(root);
    struct quire_value choices = part_member(root, "choices"), choice;
    bool ok = error.n == 0 || part_fail(e, error);
    if (ok && !(part_is(choices, QUIRE_ARRAY) && quire_value_next(&choices, NULL, &choice) &&
                part_is(part_member(choice, "message"), QUIRE_OBJECT)))
        ok = api_fail(e, 502, NULL, "upstream_error", "the upstream server's reply has no choices[0].message");
    if (ok)
        put_message(o, root, choice, model, id);
    upstream_json_close(&j);
    return ok && (!o->failed || api_no_memory(e));
}
