#include "server/front/body/generation_job.h"

#include "server/front/body/bad_words.h"
#include "server/front/body/drafts_json.h"
#include "server/front/body/session.h"
#include "server/front/front_internal.h"

#include <stdlib.h>
#include <string.h>

bool generation_job_prediction(struct generation_job *g, const struct quire_doc *body)
{
    struct request_item *p = &g->job.text->prediction;
    return prediction_json_read(body, &p->text, &p->n_text, &g->params->has_prediction, &g->job.error);
}

bool generation_job_one_choice(struct generation_job *g)
{
    return g->params->spec->n == 1 || api_unsupported(&g->job.error, "n", "there is one answer only on this route");
}

static struct params_model model_of(const struct model_view *served)
{
    return (struct params_model){.vocab_size = served->facts->vocab_size,
                                 .max_model_len = served->facts->max_model_len,
                                 .defaults = served->config->sampling,
                                 .flexible_whitespace = served->config->flexible_whitespace};
}

/* Sets the fields that depend on the parameters, after they are read. */
static bool apply_params(struct generation_job *g, const struct quire_doc *body)
{
    struct request_job *j = &g->job;
    const struct params *p = g->params;
    const struct params_body *once = g->once;
    session_keep(p->spec, json_field_get(body, "prompt_cache_key"));
    session_keep(p->spec, json_field_get(body, "session_id"));
    j->model = model_name(j->models, j->served, once->model, &j->error);
    if (!j->model)
        return false;
    if (p->spec->n > j->served->config->max_choices)
        return api_bad(&j->error, "n", "%u is more than the %u choices of one request (--max-choices-per-request)",
                       p->spec->n, j->served->config->max_choices);
    request_job_salt(j, once->cache_salt);
    if (once->cache_salt)
        g->answer_domain = quire_keyed_hash(&g->answer_domain, once->cache_salt, strlen(once->cache_salt));
    const char *name = once->cache_name_space;
    if (name) /* a salt is hashed once, so that no salt equals another's name space */
        for (int i = 0; i < 2; i++)
            g->answer_domain = quire_keyed_hash(&g->answer_domain, name, strlen(name));
    j->text->add_special = once->add_special;
    j->text->skip_special = p->skip_special;
    j->text->want_text = p->echo;
    j->text->want_places = p->echo && p->spec->n_logprobs >= 0;
    return true;
}

bool generation_job_params(struct generation_job *g, const struct quire_doc *body, bool chat)
{
    const struct params_model model = model_of(g->job.served);
    return params_read(g->params, g->once, body, chat, &model, &g->job.error) && apply_params(g, body);
}

bool generation_job_common(struct generation_job *g, const struct quire_doc *body)
{
    const struct params_model model = model_of(g->job.served);
    return params_read_common(g->params, g->once, body, &model, &g->job.error) && apply_params(g, body);
}

bool generation_job_format(struct generation_job *g, struct quire_value format, const char *field)
{
    const struct params_model model = model_of(g->job.served);
    return params_format(g->params, format, field, &model, &g->job.error);
}

bool generation_job_read_as(struct generation_job *g, const struct buffer *made,
                            bool (*read)(struct generation_job *g, const struct quire_doc *body))
{
    struct quire_doc *body = NULL;
    if (made->failed)
        return api_no_memory(&g->job.error);
    const bool ok = request_body_parse(made->data, made->n, &body, &g->job.error) && read(g, body);
    /* Its texts go with it. */
    g->once->model = g->once->cache_salt = g->once->cache_name_space = NULL;
    g->once->bad_words = (struct quire_value){0};
    quire_doc_close(body);
    return ok;
}

static bool encode_bad_words(struct generation_job *g)
{
    const struct model_view *served = g->job.served;
    struct params *p = g->params;
    if (!g->once->bad_words.n)
        return true;
    uint32_t *words = NULL;
    bool ok = bad_words_encode(g->once->bad_words, served->config->text, served->facts->vocab_size, &words,
                               &p->spec->n_bad_words, &g->job.error);
    p->spec->bad_words = words;
    return ok;
}

/* Of an answer whose reasoning is found or bounded, the grammar begins behind the reasoning. */
static bool let_reason(struct generation_job *g)
{
    struct params *p = g->params;
    const enum reasoning_format format = g->job.served->config->reasoning_format;
    const struct params_body *once = g->once;
    const bool is_bounded = once->thinking_budget >= 0;
    if (is_bounded && format == REASONING_NONE)
        return api_unsupported(&g->job.error, once->budget_name,
                               "this model's chat template shows no reasoning (--reasoning-parser)");
    if (!is_bounded && (p->reasoning_format == REASONING_NONE || !p->grammar))
        return true;
    return grammar_request_reason(&p->grammar, format, once->thinking_budget, once->budget_name, &g->job.error);
}

/* ---- calls of the job ----------------------------------------------------------------------- */

static bool read_body(struct request_job *j, const struct quire_doc *body)
{
    struct generation_job *g = (struct generation_job *)j;
    if (!g->params) /* not the second time */
        g->params = calloc(1, sizeof *g->params);
    if (!g->params)
        return api_no_memory(&j->error);
    struct params_body once = {0};
    g->once = &once;
    const bool ok = g->read(g, body) && let_reason(g) && encode_bad_words(g);
    g->once = NULL;
    if (!ok)
        return false;
    j->text->truncates = g->params->truncate != 0;
    j->text->truncate_end = g->params->truncate_end;
    if (j->served->config->compares_questions)
        g->question = question_take(j->text, g->params, &j->served->config->prompt_identity);
    return true;
}

static void free_members(struct request_job *j)
{
    struct generation_job *g = (struct generation_job *)j;
    if (g->params)
        params_free(g->params);
    free(g->params);
    free(g->echo);
    question_destroy(g->question);
}

const struct request_job_calls generation_job_calls = {sizeof(struct generation_job), read_body, NULL, free_members};

struct generation_job *generation_job_new(const struct served_model *m, struct http_exchange *x,
                                          const struct tenant *tenant,
                                          bool (*read)(struct generation_job *g, const struct quire_doc *body),
                                          void (*finished)(void *owner, struct request_job *job), void *owner)
{
    struct request_job *j = request_job_new(m, x, tenant, &generation_job_calls, finished, owner);
    struct generation_job *g = (struct generation_job *)j;
    if (!g)
        return NULL;
    g->read = read;
    g->answer_domain = m->share_answers ? (struct key256){{0}} : j->cache_domain;
    return g;
}
