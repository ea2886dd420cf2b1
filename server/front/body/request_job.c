#include "server/front/body/request_job.h"

#include "server/front/body/bad_words.h"
#include "server/front/body/drafts_json.h"
#include "server/front/front_internal.h"

#include <stdlib.h>
#include <string.h>

bool request_job_items(struct request_job *j, size_t n)
{
    j->items = calloc(n, sizeof *j->items);
    if (!j->items)
        return request_job_no_memory(j);
    j->n_items = n;
    return true;
}

void request_job_salt(struct request_job *j, const char *salt)
{
    if (!salt)
        return;
    j->cache_domain = quire_keyed_hash(&j->cache_domain, salt, strlen(salt));
    j->answer_domain = quire_keyed_hash(&j->answer_domain, salt, strlen(salt));
}

bool request_job_prediction(struct request_job *j, const struct quire_doc *body)
{
    struct request_item *p = &j->prediction;
    return prediction_json_read(body, &p->text, &p->n_text, &j->params.has_prediction, &j->error);
}

bool request_job_one_choice(struct request_job *j)
{
    return j->params.spec.n == 1 || api_unsupported(&j->error, "n", "there is one answer only on this route");
}

static struct params_model model_of(const struct request_job *j)
{
    return (struct params_model){j->served->facts->vocab_size, j->served->facts->max_model_len,
                                 j->served->config->sampling};
}

/* Sets the fields that depend on the parameters, after they are read. */
static bool apply_params(struct request_job *j)
{
    struct params *p = &j->params;
    j->model = model_name(j->models, j->served, p->model, &j->error);
    if (!j->model)
        return false;
    if (p->spec.n > j->served->config->max_choices)
        return api_bad(&j->error, "n", "%u is more than the %u choices of one request (--max-choices-per-request)",
                       p->spec.n, j->served->config->max_choices);
    request_job_salt(j, p->cache_salt);
    if (p->cache.name_space) /* a salt is hashed once, so that no salt equals another's name space */
        for (int i = 0; i < 2; i++)
            j->answer_domain = quire_keyed_hash(&j->answer_domain, p->cache.name_space, strlen(p->cache.name_space));
    /* The body will be freed, and its borrowed strings with it. */
    p->model = p->cache_salt = p->cache.name_space = NULL;
    j->add_special = p->add_special;
    j->skip_special = p->skip_special;
    j->want_text = p->echo;
    j->want_places = p->echo && p->spec.n_logprobs >= 0;
    return true;
}

bool request_job_params(struct request_job *j, const struct quire_doc *body, bool chat)
{
    const struct params_model model = model_of(j);
    return params_read(&j->params, body, chat, &model, &j->error) && apply_params(j);
}

bool request_job_common(struct request_job *j, const struct quire_doc *body)
{
    const struct params_model model = model_of(j);
    return params_read_common(&j->params, body, &model, &j->error) && apply_params(j);
}

static bool encode_bad_words(struct request_job *j)
{
    struct params *p = &j->params;
    if (!p->bad_words.n)
        return true;
    uint32_t *words = NULL;
    bool ok = bad_words_encode(p->bad_words, j->served->config->text, j->served->facts->vocab_size, &words,
                               &p->spec.n_bad_words, &j->error);
    p->bad_words = (struct quire_value){0};
    p->spec.bad_words = words;
    return ok;
}

bool request_body_parse(const char *text, size_t n_bytes, struct quire_doc **out, struct api_error *e)
{
    *out = NULL;
    if (n_bytes == 0)
        return api_fail(e, 400, NULL, "invalid_json", "the request has no body; it must be a JSON object");
    int status = quire_doc_open(text, n_bytes, REQUEST_MAX_DEPTH, "the request's body", out, &e->why);
    if (status == QUIRE_OK && json_is(quire_doc_root(*out), QUIRE_OBJECT))
        return true;
    if (status == QUIRE_OK)
        return api_fail(e, 400, NULL, "invalid_json", "the request's body must be a JSON object");
    api_fail_status(e, status, NULL);
    e->code = "invalid_json";
    return false;
}

static bool read_body(struct request_job *j)
{
    struct quire_doc *body = NULL;
    j->is_read = true;
    bool ok = request_body_parse(j->body, j->n_body, &body, &j->error) && j->read(j, body) && encode_bad_words(j);
    if (ok && j->served->config->compares_questions)
        question_take(j);
    quire_doc_close(body);
    free(j->body);
    j->body = NULL;
    return ok;
}

static bool work(struct text_job *job)
{
    struct request_job *j = (struct request_job *)job;
    bool more = false;
    j->ok = (j->is_read || read_body(j)) && text_work_some(j, &more);
    return more;
}

static void done(struct text_job *job)
{
    struct request_job *j = (struct request_job *)job;
    j->finished(j->owner, j);
}

static void release(struct text_job *job)
{
    request_job_free((struct request_job *)job);
}

struct request_job *request_job_new(const struct served_model *m, struct http_exchange *x, const struct tenant *tenant,
                                    bool (*read)(struct request_job *j, const struct quire_doc *body),
                                    void (*finished)(void *owner, struct request_job *job), void *owner)
{
    struct request_job *j = calloc(1, sizeof *j);
    if (!j)
        return NULL;
    j->models = model_list_hold(m->front->list);
    j->served = model_list_find(j->models, m->config);
    j->cache_domain = front_cache_domain(m->front, x);
    j->answer_domain = m->share_answers ? (struct key256){{0}} : j->cache_domain;
    j->body = http_take_body(x, &j->n_body);
    j->job = (struct text_job){
        .work = work, .done = done, .release = release, .tenant = tenant->index, .n_bytes = j->n_body};
    j->read = read;
    j->prompt_name = "prompt";
    j->finished = finished;
    j->owner = owner;
    return j;
}

void request_job_free(struct request_job *j)
{
    if (!j)
        return;
    for (size_t i = 0; i < j->n_items; i++) {
        free(j->items[i].text);
        free(j->items[i].ids);
        free(j->items[i].places);
    }
    free(j->items);
    model_list_release(j->models);
    free(j->question.text);
    free(j->prediction.text);
    free(j->prediction.ids);
    params_free(&j->params);
    free(j->body);
    free(j->echo);
    request_job_drop_chat(j);
    free(j->token_strings);
    buffer_free(&j->reply);
    text_work_free(&j->work);
    free(j);
}
