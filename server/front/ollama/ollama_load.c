/* The start of requests for answers, and the reply to those without a prompt. */
#include "server/front/ollama/ollama.h"

#include "server/front/fields/field_shape.h"
#include "server/front/front_internal.h"

/* A request without a prompt loads a model, or with "keep_alive": 0 unloads it: there is nothing to do. Returns whether
 * this was one, and then it was answered. */
static bool answer_load(struct served_model *m, struct http_exchange *x, bool is_chat)
{
    const struct field_shape *shape = is_chat ? &field_shape_ollama_chat : &field_shape_ollama_generate;
    struct api_error e;
    struct quire_doc *body = NULL;
    struct buffer o = {0};
    char now[OLLAMA_TIME_BYTES];
    const char *asked = NULL, *name = NULL;
    size_t n;
    const char *text = http_body(x, &n);
    if (n > OLLAMA_SMALL_BODY || !request_body_parse(text, n, &body, &e)) {
        quire_doc_close(body);
        return false;
    }
    const struct quire_value said = json_field_get(body, is_chat ? "messages" : "prompt");
    const struct quire_value keep = json_field_get(body, "keep_alive");
    const bool is_load = !said.n || quire_value_is(said, "") ||
                         (json_is(said, QUIRE_ARRAY) && quire_value_count(said) == 0);
    if (is_load && ollama_check_fields(m, x, shape, body, &e) && json_field_string(body, "model", &asked, &e) &&
        (asked || api_bad(&e, "model", "is missing")))
        name = ollama_name(m->front->list, served_model_view(m), asked, &e);
    if (name) {
        ollama_time(now);
        json_out_raw(&o, "{\"model\":");
        json_out_text(&o, name);
        json_out_raw(&o, ",\"created_at\":");
        json_out_text(&o, now);
        json_out_raw(&o, is_chat ? ",\"message\":{\"role\":\"assistant\",\"content\":\"\"}" : ",\"response\":\"\"");
        json_out_raw(&o, quire_value_double(keep) == 0 ? ",\"done_reason\":\"unload\"" : ",\"done_reason\":\"load\"");
        json_out_raw(&o, ",\"done\":true}");
        ollama_reply(x, &o);
    } else if (is_load) {
        api_error_reply(x, &e);
    }
    quire_doc_close(body);
    return is_load;
}

void ollama_chat_start(struct served_model *m, struct http_exchange *x)
{
    if (!answer_load(m, x, true))
        generation_start(m, x, &api_ollama_chat);
}

void ollama_generate_start(struct served_model *m, struct http_exchange *x)
{
    if (!answer_load(m, x, false))
        generation_start(m, x, &api_ollama_generate);
}
