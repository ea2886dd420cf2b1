#include "server/front/body/request_job.h"

#include "base/clock.h"
#include "server/front/fields/field_check.h"
#include "server/front/front_internal.h"

#include <stdlib.h>
#include <string.h>

#define SLICE_US 5000 /* plus the rest of the current piece: 5 to 10 ms */

void request_job_salt(struct request_job *j, const char *salt)
{
    if (salt)
        j->cache_domain = quire_keyed_hash(&j->cache_domain, salt, strlen(salt));
}

/* ---- on the pool ---------------------------------------------------------------------------- */

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

/* The job needs more memory than its body shows: it reads the body again when the pool has it. */
static bool waits(const struct request_job *j)
{
    return j->job.needs_bytes > j->job.n_bytes;
}

/* Returns whether the request may go on: notes are errors with --strict-fields. */
static bool may_ignore(struct request_job *j)
{
    return !j->notes || !j->served->config->strict_fields || field_notes_fail(j->notes, &j->error);
}

static bool check_fields(struct request_job *j, const struct quire_doc *body)
{
    free(j->notes); /* the second time */
    j->notes = NULL;
    if (j->shape)
        field_check(j->shape, quire_doc_root(body), j->served->config->text, &j->notes);
    return may_ignore(j);
}

/* After read(). */
static bool check_tools(struct request_job *j)
{
    if (j->shape && j->text->chat.tools && !j->served->config->shows_tools)
        field_notes_add(&j->notes, "tools", "the model does not see them: its chat template shows no tools");
    return may_ignore(j);
}

static bool read_body(struct request_job *j)
{
    struct quire_doc *body = NULL;
    bool ok = request_body_parse(j->body, j->n_body, &body, &j->error) && check_fields(j, body) &&
              j->calls->read(j, body) && check_tools(j);
    quire_doc_close(body);
    if (waits(j))
        return true;
    j->step = REQUEST_JOB_TEXT;
    free(j->body);
    j->body = NULL;
    /* The body may have selected another model. */
    j->text->tokenizer = j->served->config->text;
    j->text->chat.specials = j->served->config->specials_in_messages;
    j->text->max_tokens = j->served->facts->max_model_len;
    return ok;
}

/* Does one step, or a part of it. Returns false if it failed; *more: there is more to do. */
static bool do_step(struct request_job *j, uint64_t until_us, bool *more)
{
    bool some = false;
    *more = true;
    switch (j->step) {
    case REQUEST_JOB_READ: return read_body(j);
    case REQUEST_JOB_TEXT:
        if (!text_work_some(j->text, until_us, &some, &j->error))
            return false;
        if (!some)
            j->step = REQUEST_JOB_WRITE;
        *more = some || j->calls->write;
        return true;
    case REQUEST_JOB_WRITE: *more = false; return j->calls->write(j);
    }
    return false;
}

static bool work(struct text_job *job)
{
    struct request_job *j = (struct request_job *)job;
    uint64_t until_us = quire_now_us() + SLICE_US;
    bool more;
    do {
        j->ok = do_step(j, until_us, &more);
    } while (j->ok && more && !waits(j) && quire_now_us() < until_us);
    return j->ok && more;
}

/* ---- beginning and end ---------------------------------------------------------------------- */

static void done(struct text_job *job)
{
    struct request_job *j = (struct request_job *)job;
    if (j->notes) {
        field_report(&j->asked->front->field_log, j->x, j->notes);
        j->asked->counts->n_unknown_fields += j->notes->n;
    }
    j->finished(j->owner, j);
}

static void release(struct text_job *job)
{
    request_job_free((struct request_job *)job);
}

static const struct text_job_calls text_calls = {.work = work, .done = done, .release = release};

struct request_job *request_job_alloc(const struct request_job_calls *calls)
{
    struct request_job *j = calloc(1, calls->n_bytes);
    struct text_task *text = calloc(1, sizeof *text);
    if (!j || !text) {
        free(j);
        free(text);
        return NULL;
    }
    text->name = "prompt";
    j->text = text;
    j->calls = calls;
    return j;
}

struct request_job *request_job_new(const struct served_model *m, struct http_exchange *x, const struct tenant *tenant,
                                    const struct request_job_calls *calls,
                                    void (*finished)(void *owner, struct request_job *job), void *owner)
{
    struct request_job *j = request_job_alloc(calls);
    if (!j)
        return NULL;
    j->models = model_list_hold(m->front->list);
    j->served = model_list_find(j->models, m->config);
    j->cache_domain = front_cache_domain(m->front, x);
    j->body = http_take_body(x, &j->n_body);
    j->job = (struct text_job){.calls = &text_calls, .tenant = tenant->index, .n_bytes = j->n_body};
    j->asked = m;
    j->x = x;
    j->finished = finished;
    j->owner = owner;
    return j;
}

void request_job_free(struct request_job *j)
{
    if (!j)
        return;
    if (j->calls->free)
        j->calls->free(j);
    text_task_free(j->text);
    free(j->text);
    model_list_release(j->models);
    free(j->body);
    free(j->notes);
    free(j);
}
