/* Anthropic's /v1/messages: turns its body into a chat and parameters. */
#include "server/front/body/generation_job.h"
#include "server/front/body/session.h"
#include "server/front/body/system_prompt.h"
#include "server/front/fields/field_shape.h"
#include "server/front/front_internal.h"
#include "server/front/messages/messages_read.h"

#include <stdio.h>

/* ---- the prompt ----------------------------------------------------------------------------- */

static bool read_system_controls(struct quire_value system, uint32_t *ttl_s, struct api_error *e)
{
    struct quire_value rest = system, block;
    char path[32];
    for (size_t i = 0; json_is(system, QUIRE_ARRAY) && quire_value_next(&rest, NULL, &block); i++) {
        snprintf(path, sizeof path, "system[%zu]", i);
        if (!messages_cache_control(block, path, ttl_s, e))
            return false;
    }
    return true;
}

/* The prompt of a body. The same for an answer and for counting. */
struct prompt {
    struct messages_tools tools;
    struct messages_thinking thinking;
    uint32_t ttl_s; /* the longest cache_control's; 0: none */
};

static struct quire_value value_of(const struct buffer *b)
{
    return (struct quire_value){b->data, b->n};
}

static bool take(struct buffer *from, char **out, struct api_error *e)
{
    if (from->n == 0 && !from->failed)
        return true;
    if (!buffer_text(from))
        return api_no_memory(e);
    *out = from->data;
    *from = (struct buffer){0};
    return true;
}

static bool read_chat(struct request_job *j, const struct quire_doc *body, struct prompt *p)
{
    struct api_error *e = &j->error;
    struct text_chat *chat = &j->text->chat;
    const struct quire_value system = json_field_get(body, "system");
    struct buffer o = {0}, variables = {0};
    json_out_raw(&o, "[");
    bool ok = (!system.n || system_prompt_add(&o, system, !j->served->config->keeps_billing_header, e)) &&
              read_system_controls(system, &p->ttl_s, e) &&
              messages_turns_add(&o, json_field_get(body, "messages"), &chat->continue_final, &p->ttl_s, e);
    json_out_raw(&o, "]");
    /* A last message of the assistant is continued. */
    chat->add_generation_prompt = !chat->continue_final;
    ok = ok && messages_variables_add(&variables, body, &p->thinking, e) && take(&variables, &chat->kwargs, e) &&
         chat_take(j, &o, "messages");
    buffer_free(&variables);
    buffer_free(&o);
    return ok;
}

/* The caller frees p->tools, which the chat gets a copy of. */
static bool read_prompt(struct request_job *j, const struct quire_doc *body, struct prompt *p)
{
    struct buffer tools = {0};
    bool ok = messages_cache_control(quire_doc_root(body), "", &p->ttl_s, &j->error) &&
              messages_tools_read(body, &p->tools, &p->ttl_s, &j->error) &&
              messages_thinking_read(body, &p->thinking, &j->error);
    buffer_append(&tools, p->tools.tools.data, p->tools.tools.n);
    ok = ok && take(&tools, &j->text->chat.tools, &j->error) && read_chat(j, body, p);
    buffer_free(&tools);
    return ok;
}

/* ---- parameters ----------------------------------------------------------------------------- */

/* context_management is no such field: its edits only make a prompt shorter. */
static const char *const not_built[] = {"mcp_servers", "container"};

static bool refuse_not_built(const struct quire_doc *body, struct api_error *e)
{
    return params_refuse(body, not_built, sizeof not_built / sizeof *not_built, e);
}

static bool check_metadata(const struct quire_doc *body, struct api_error *e)
{
    struct quire_value metadata = json_field_get(body, "metadata"), user = json_field_member(metadata, "user_id");
    if (metadata.n && !json_is(metadata, QUIRE_OBJECT))
        return api_bad(e, "metadata", "must be an object");
    if (user.n && !json_is(user, QUIRE_STRING))
        return api_bad(e, "metadata.user_id", "must be a string");
    return true;
}

/* The API requires max_tokens, so clients send the most that any model writes: it is cut to the context. */
static bool read_length(struct generation_job *g, const struct quire_doc *body)
{
    if (!params_length(g->params, body, "max_tokens", 1, 0, &g->job.error))
        return false;
    g->params->clamps_max_tokens = true;
    return g->params->has_max_tokens || api_bad(&g->job.error, "max_tokens", "is missing");
}

static bool check_temperature(const struct quire_doc *body, struct api_error *e)
{
    struct quire_value temperature = json_field_get(body, "temperature");
    return !(quire_value_double(temperature) > 1) ||
           api_bad(e, "temperature", "must be between 0 and 1, got %.*s", JSON_SHOWN(temperature));
}

/* The format's name in Anthropic's beta, and its newer name. */
static bool read_format(struct generation_job *g, const struct quire_doc *body)
{
    struct quire_value config = json_field_get(body, "output_config");
    return generation_job_format(g, json_field_get(body, "output_format"), "output_format") &&
           generation_job_format(g, json_field_member(config, "format"), "output_config.format");
}

static bool use_thinking(struct generation_job *g, const struct prompt *p)
{
    const uint32_t budget = p->thinking.budget;
    if (budget > 0 && budget >= g->params->max_tokens)
        return api_bad(&g->job.error, "thinking.budget_tokens", "must be less than max_tokens, got %u of %u", budget,
                       g->params->max_tokens);
    /* A model without a reasoning has no use for a budget, and agents send one to every model. */
    if (budget > 0 && g->job.served->config->reasoning_format != REASONING_NONE) {
        g->once->thinking_budget = budget;
        g->once->budget_name = "thinking.budget_tokens";
    }
    return true;
}

/* Marks the answer's blocks in the prefix cache, as those of a cached answer: a longer turn of the same chat replaces
 * them, and a pin has priority. An agent marks each turn, and pins would soon reach their limit. Claude Code's user_id
 * contains its session. */
static void use_cache_control(struct generation_job *g, const struct quire_doc *body, const struct prompt *p)
{
    session_keep_for(g->params->spec, p->ttl_s);
    session_keep(g->params->spec, json_field_member(json_field_get(body, "metadata"), "user_id"));
}

bool messages_read(struct generation_job *g, const struct quire_doc *body)
{
    struct api_error *e = &g->job.error;
    struct prompt p = {0};
    bool ok = refuse_not_built(body, e) && check_temperature(body, e) && check_metadata(body, e) &&
              generation_job_common(g, body) && generation_job_one_choice(g) && read_length(g, body) &&
              read_format(g, body) && params_stops(g->params, body, "stop_sequences", e) &&
              read_prompt(&g->job, body, &p) && use_thinking(g, &p) &&
              chat_use_tools(g, value_of(&p.tools.tools), value_of(&p.tools.choice), !p.tools.one_call);
    if (ok) {
        use_cache_control(g, body, &p);
        chat_choose_reasoning(g);
        g->params->streams_raw_calls = p.tools.is_eager || p.tools.forces_calls;
    }
    messages_tools_free(&p.tools);
    return ok;
}

/* ---- counting ------------------------------------------------------------------------------- */

/* The form of the answer does not change the prompt, but it is checked all the same. */
static bool check_format(const struct quire_doc *body, struct api_error *e)
{
    struct quire_value config = json_field_get(body, "output_config");
    struct grammar_request *r = NULL;
    bool ok = grammar_request_format(json_field_get(body, "output_format"), "output_format", QUIRE_WHITESPACE_COMPACT,
                                     &r, e) &&
              grammar_request_format(json_field_member(config, "format"), "output_config.format",
                                     QUIRE_WHITESPACE_COMPACT, &r, e);
    grammar_request_free(r);
    return ok;
}

bool messages_count_read(struct request_job *j, const struct quire_doc *body)
{
    const char *model = NULL;
    struct prompt p = {0};
    bool ok = refuse_not_built(body, &j->error) && check_format(body, &j->error) &&
              json_field_string(body, "model", &model, &j->error) &&
              model_name(j->models, j->served, model, &j->error) && read_prompt(j, body, &p);
    messages_tools_free(&p.tools);
    return ok;
}

static void put_count(struct buffer *o, const struct request_job *j)
{
    json_out_raw(o, "{\"input_tokens\":");
    json_out_u64(o, j->text->items[0].n_ids);
    json_out_raw(o, "}");
}

void messages_count_start(struct served_model *m, struct http_exchange *x)
{
    static const struct utility_calls calls = {messages_count_read, put_count, true, &field_shape_messages};
    utility_start(m, x, &calls);
}
