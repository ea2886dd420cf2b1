/* The body of llama.cpp's /completion. */
#include "server/front/llama_cpp/llama_cpp.h"

#include "server/front/request_readers.h"

#include <math.h>
#include <stdio.h>

/* n_predict, or max_tokens; below 0: to the end of the context. */
static bool read_length(struct params *p, const struct quire_doc *body, struct api_error *e)
{
    const char *name = json_field_get(body, "n_predict").n ? "n_predict" : "max_tokens";
    int64_t n = -1;
    if (!json_field_i64(body, name, -2, INT32_MAX, &n, e))
        return false;
    p->max_tokens_name = name;
    p->has_max_tokens = n >= 0;
    p->max_tokens = n >= 0 ? (uint32_t)n : 0;
    p->clamps_max_tokens = true; /* as llama.cpp, which ends an answer with the context */
    return true;
}

static bool read_probabilities(struct params *p, const struct quire_doc *body, struct api_error *e)
{
    int64_t n = 0;
    if (!json_field_i64(body, "n_probs", 0, REQUEST_MAX_LOGPROBS, &n, e))
        return false;
    p->spec->n_logprobs = n > 0 ? (int32_t)n : -1;
    return true;
}

static bool read_reply(struct params *p, const struct quire_doc *body, struct api_error *e)
{
    p->shows_prompt = true;
    return json_field_bool(body, "return_tokens", &p->return_token_ids, e) &&
           json_field_bool(body, "timings_per_token", &p->continuous_usage, e);
}

static bool read_made(struct generation_job *g, const struct quire_doc *body)
{
    return generation_job_common(g, body) && generation_job_prediction(g, body) &&
           generation_job_format(g, json_field_get(body, "response_format"), "response_format");
}

static bool read_common(struct generation_job *g, const struct quire_doc *body)
{
    struct buffer made = {0};
    const bool ok = llama_cpp_put_body(&made, body, &g->job.error) && generation_job_read_as(g, &made, read_made);
    buffer_free(&made);
    return ok;
}

/* The settings that the reply repeats, and the fields that it has. */
static bool keep_echo(struct generation_job *g, const struct quire_doc *body)
{
    struct buffer o = {0};
    json_out_raw(&o, "{\"settings\":");
    llama_cpp_put_settings(&o, g->params);
    json_out_raw(&o, ",\"fields\":");
    bool ok = llama_cpp_read_fields(&o, body, &g->job.error);
    json_out_raw(&o, "}");
    ok = ok && (buffer_text(&o) || api_no_memory(&g->job.error));
    if (ok)
        g->echo = o.data;
    else
        buffer_free(&o);
    return ok;
}

bool llama_cpp_read(struct generation_job *g, const struct quire_doc *body)
{
    struct api_error *e = &g->job.error;
    static const char *const not_built[] = {"suffix", "input_prefix", "input_suffix", "input_extra"};
    bool ok = llama_cpp_check_fields(body, e) &&
              params_refuse(body, not_built, sizeof not_built / sizeof *not_built, e) && read_common(g, body) &&
              llama_cpp_read_bias(g->params->spec, body, g->job.served, e) &&
              llama_cpp_read_samplers(g->params->spec, body, e) && read_length(g->params, body, e) &&
              read_probabilities(g->params, body, e) && read_reply(g->params, body, e) &&
              params_stops(g->params, body, "stop", e) && llama_cpp_read_prompt(g, body) && keep_echo(g, body);
    g->job.text->want_text = true;
    return ok;
}
