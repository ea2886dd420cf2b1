/* /v1/responses: turns its body into a chat and parameters. The items of previous_response_id come before those of
 * the body; instructions come first, and are not inherited. */
#include "server/front/body/generation_job.h"
#include "server/front/front_internal.h"
#include "server/front/responses/response_store.h"
#include "server/front/responses/responses_read.h"

#include <stdlib.h>
#include <string.h>

/* ---- what is stored ------------------------------------------------------------------------- */

static bool chain_error(struct api_error *e, int status)
{
    static const char name[] = "previous_response_id";
    quire_error_prefix(&e->why, name);
    api_fail_status(e, status == QUIRE_NOT_FOUND ? QUIRE_INVALID : status, name);
    if (status == QUIRE_NOT_FOUND)
        e->code = "previous_response_not_found";
    return false;
}

/* Reads previous_response_id, which may be "". Returns false, too, if the job has to wait until the text pool has
 * memory for the chain. */
static bool read_previous(struct generation_job *g, const struct quire_doc *body, char out[RESPONSE_ID_BYTES])
{
    struct api_error *e = &g->job.error;
    struct response_store *store = g->job.served->config->responses;
    const char *previous = NULL;
    size_t n_chain = 0;
    out[0] = '\0';
    if (!json_field_string(body, "previous_response_id", &previous, e))
        return false;
    if (!previous)
        return true;
    if (!store)
        return api_unsupported(e, "previous_response_id", "this server stores no responses (--response-store-size 0)");
    const int status = response_store_chain_bytes(store, &g->job.cache_domain, previous, &n_chain, &e->why);
    if (status != QUIRE_OK)
        return chain_error(e, status);
    const size_t n_bytes = n_chain + g->job.n_body;
    if (n_bytes > RESPONSE_MAX_CHAIN_BYTES)
        return api_bad(e, "previous_response_id", "its responses and this body have more than %zu MiB: begin a new one",
                       RESPONSE_MAX_CHAIN_BYTES >> 20);
    memcpy(out, previous, strlen(previous) + 1); /* it was found, so it is as long as an id */
    if (n_bytes <= TEXT_SHORT_BYTES || n_bytes <= g->job.job.n_bytes)
        return true;
    g->job.job.needs_bytes = n_bytes;
    return false;
}

/* Sets the record, with its id. Reads store. tenant: the key's domain, without a salt. */
static bool begin_record(struct generation_job *g, const struct quire_doc *body, const char *previous,
                         struct key256 tenant)
{
    struct api_error *e = &g->job.error;
    bool is_stored = true;
    if (!json_field_bool(body, "store", &is_stored, e))
        return false;
    struct response_record *r = calloc(1, sizeof *r);
    if (!r)
        return api_no_memory(e);
    g->params->response = r;
    r->tenant = tenant;
    r->is_stored = is_stored && g->job.served->config->responses;
    response_id(r->id);
    memcpy(r->previous, previous, RESPONSE_ID_BYTES);
    return true;
}

/* Keeps the input's items, without the brackets of the array. */
static bool keep_input(struct response_record *r, struct quire_value input, struct api_error *e)
{
    if (!r->is_stored)
        return true;
    if (json_is(input, QUIRE_STRING)) {
        json_out_raw(&r->input, "{\"type\":\"message\",\"role\":\"user\",\"content\":");
        buffer_append(&r->input, input.text, input.n);
        json_out_raw(&r->input, "}");
    } else {
        buffer_append(&r->input, input.text + 1, input.n - 2);
    }
    return !r->input.failed || api_no_memory(e);
}

/* ---- the prompt ----------------------------------------------------------------------------- */

/* The items of the responses before, as a document that is like a body. *text: what the caller frees. */
static bool open_before(struct generation_job *g, struct buffer *text, struct quire_doc **doc)
{
    const struct response_record *r = g->params->response;
    struct api_error *e = &g->job.error;
    if (!r->previous[0])
        return true;
    json_out_raw(text, "{\"input\":[");
    int status = response_store_chain(g->job.served->config->responses, &r->tenant, r->previous, text, &e->why);
    json_out_raw(text, "]}");
    if (status == QUIRE_OK && text->failed)
        status = quire_fail(&e->why, QUIRE_NO_MEMORY, "out of memory");
    if (status == QUIRE_OK)
        status = quire_doc_open(text->data, text->n, REQUEST_MAX_DEPTH, "a stored response", doc, &e->why);
    return status == QUIRE_OK || chain_error(e, status);
}

static bool read_input(struct generation_job *g, const struct quire_doc *body)
{
    struct request_job *j = &g->job;
    const struct quire_value instructions = json_field_get(body, "instructions"), input = json_field_get(body, "input");
    struct buffer o = {0}, text = {0};
    struct quire_doc *before = NULL;
    if (instructions.n && !json_is(instructions, QUIRE_STRING))
        return api_bad(&j->error, "instructions", "must be a string");
    json_out_raw(&o, "[");
    if (instructions.n && !quire_value_is(instructions, "")) { /* an empty string counts as absent, as in vLLM */
        chat_put_message(&o, "system");
        buffer_append(&o, instructions.text, instructions.n);
        json_out_raw(&o, "}");
    }
    j->text->chat.add_generation_prompt = true;
    bool ok = open_before(g, &text, &before);
    ok = ok &&
         responses_items_add(&o, before ? json_field_get(before, "input") : (struct quire_value){0}, input, &j->error);
    json_out_raw(&o, "]");
    ok = ok && keep_input(g->params->response, input, &j->error) && chat_take(j, &o, "input");
    quire_doc_close(before);
    buffer_free(&text);
    buffer_free(&o);
    return ok;
}

static bool use_tools(struct generation_job *g, const struct quire_doc *body)
{
    struct responses_tools t = {0};
    struct text_chat *chat = &g->job.text->chat;
    bool parallel = true;
    bool ok = json_field_bool(body, "parallel_tool_calls", &parallel, &g->job.error) &&
              responses_tools_read(body, &t, &g->job.error) &&
              chat_use_tools(g, (struct quire_value){t.tools.data, t.tools.n},
                             (struct quire_value){t.choice.data, t.choice.n}, parallel);
    if (ok && t.tools.n > 0) {
        chat->tools = strndup(t.tools.data, t.tools.n);
        ok = chat->tools || api_no_memory(&g->job.error);
    }
    responses_tools_free(&t);
    return ok;
}

/* ---- reasoning ------------------------------------------------------------------------------ */

/* Variables of templates that follow from the effort. */
#define MAX_OF_EFFORT 2
struct effort {
    const char *word;
    struct chat_variable variables[MAX_OF_EFFORT];
    size_t n;
};
static const struct effort efforts[] = {
    {"none", {{"enable_thinking", "false"}, {"thinking", "false"}}, 2},
    {"minimal", {{"reasoning_effort", "\"low\""}}, 1},
    {"low", {{"reasoning_effort", "\"low\""}}, 1},
    {"medium", {{"reasoning_effort", "\"medium\""}}, 1},
    {"high", {{"reasoning_effort", "\"high\""}}, 1},
    {"xhigh", {{"reasoning_effort", "\"high\""}}, 1},
};

static bool read_variables(struct generation_job *g, const struct quire_doc *body)
{
    struct api_error *e = &g->job.error;
    const struct quire_value reasoning = json_field_get(body, "reasoning");
    const struct quire_value effort = json_field_member(reasoning, "effort");
    if (reasoning.n && !json_is(reasoning, QUIRE_OBJECT))
        return api_bad(e, "reasoning", "must be an object");
    if (!effort.n)
        return chat_read_variables(&g->job, body, NULL, 0);
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++)
        if (quire_value_is(effort, efforts[i].word))
            return chat_read_variables(&g->job, body, efforts[i].variables, efforts[i].n);
    return api_bad(e, "reasoning.effort", "must be \"none\", \"minimal\", \"low\", \"medium\", \"high\" or \"xhigh\"");
}

/* ---- parameters ----------------------------------------------------------------------------- */

static const char *const not_built[] = {
    "conversation", "background", "prompt", "context_management", "moderation",
};

static bool refuse_not_built(const struct quire_doc *body, struct api_error *e)
{
    const struct quire_value text = json_field_get(body, "text");
    if (!params_refuse(body, not_built, sizeof not_built / sizeof *not_built, e))
        return false;
    if (text.n && !json_is(text, QUIRE_OBJECT))
        return api_bad(e, "text", "must be an object");
    return true;
}

static bool read_logprobs(struct generation_job *g, const struct quire_doc *body)
{
    struct api_error *e = &g->job.error;
    struct quire_value include = json_field_get(body, "include"), rest = include, item;
    int64_t top = 0;
    if (!json_field_i64(body, "top_logprobs", 0, REQUEST_MAX_LOGPROBS, &top, e))
        return false;
    if (include.n && !json_is(include, QUIRE_ARRAY))
        return api_bad(e, "include", "must be an array of strings");
    /* The other values of include have no effect on a reply. */
    while (include.n && quire_value_next(&rest, NULL, &item)) {
        if (!json_is(item, QUIRE_STRING))
            return api_bad(e, "include", "must be an array of strings");
        if (quire_value_is(item, "message.output_text.logprobs"))
            g->params->spec->n_logprobs = (int32_t)top;
    }
    return true;
}

static bool read_truncation(struct generation_job *g, const struct quire_doc *body)
{
    const char *truncation = NULL;
    if (!json_field_string(body, "truncation", &truncation, &g->job.error))
        return false;
    bool cuts = truncation && strcmp(truncation, "auto") == 0;
    if (truncation && !cuts && strcmp(truncation, "disabled") != 0)
        return api_bad(&g->job.error, "truncation", "must be \"auto\" or \"disabled\"");
    g->params->truncate = cuts ? -1 : 0;
    return true;
}

bool responses_read(struct generation_job *g, const struct quire_doc *body)
{
    struct api_error *e = &g->job.error;
    const struct quire_value format = json_field_member(json_field_get(body, "text"), "format");
    const struct key256 tenant = g->job.cache_domain;
    char previous[RESPONSE_ID_BYTES] = "";
    const bool ok = read_previous(g, body, previous) && refuse_not_built(body, e) && generation_job_common(g, body) &&
                    begin_record(g, body, previous, tenant) && generation_job_one_choice(g) &&
                    generation_job_format(g, format, "text.format") && params_stops(g->params, body, "stop", e) &&
                    params_length(g->params, body, "max_output_tokens", 1, 0, e) && read_logprobs(g, body) &&
                    read_truncation(g, body) && responses_echo(g, body) && use_tools(g, body) &&
                    read_variables(g, body) && read_input(g, body);
    if (ok)
        chat_choose_reasoning(g);
    return ok;
}
