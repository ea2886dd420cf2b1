/* GET and DELETE /v1/responses/{id}, and GET /v1/responses/{id}/input_items: what the store holds. The store blocks on
 * the disk, so the text pool's threads ask it. */
#include "server/front/front_internal.h"
#include "server/front/responses/response_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH "/v1/responses/"
#define INPUT_ITEMS "/input_items"

enum stored_what { STORED_GET, STORED_DELETE, STORED_INPUT };

/* The pool's part, which may outlive the request. */
struct stored_job {
    struct text_job job; /* first member */
    struct stored_request *owner;
    struct response_store *store;
    enum stored_what what;
    struct key256 tenant;
    char id[RESPONSE_ID_BYTES];
    struct buffer reply;
    int status;
    struct quire_error why;
};

struct stored_request {
    TAILQ_ENTRY(stored_request) link;
    struct front *front;
    struct http_exchange *x;
    struct stored_job *job;
};

/* ---- on the pool ---------------------------------------------------------------------------- */

static void put_deleted(struct buffer *o, const char *id)
{
    json_out_raw(o, "{\"id\":");
    json_out_text(o, id);
    json_out_raw(o, ",\"object\":\"response\",\"deleted\":true}");
}

static struct quire_value shown_id(struct quire_value item)
{
    const struct quire_value id = quire_value_member(item, "id");
    return json_is(id, QUIRE_STRING) ? id : (struct quire_value){0};
}

/* Clients need an id and a type in each item; a request may leave them out. */
static void put_input_item(struct buffer *o, struct quire_value item, const char *response, size_t i)
{
    char id[RESPONSE_ID_BYTES + 24];
    json_out_raw(o, i > 0 ? ",{" : "{");
    if (!shown_id(item).n) {
        snprintf(id, sizeof id, "in_%.32s_%zu", response + strlen(RESPONSE_ID_PREFIX), i);
        json_out_raw(o, "\"id\":");
        json_out_text(o, id);
        json_out_raw(o, ",");
    }
    if (!json_field_member(item, "type").n)
        json_out_raw(o, "\"type\":\"message\",");
    struct quire_value rest = item, key, value;
    bool any = false;
    while (quire_value_next(&rest, &key, &value)) {
        if (json_is(value, QUIRE_NULL) && (quire_value_is(key, "type") || quire_value_is(key, "id")))
            continue;
        if (any)
            json_out_raw(o, ",");
        any = true;
        buffer_append(o, key.text, key.n);
        json_out_raw(o, ":");
        buffer_append(o, value.text, value.n);
    }
    json_out_raw(o, "}");
}

/* All items of the request itself in one page, the first one first. */
static int put_input(struct buffer *o, const struct response_record *r, struct quire_error *err)
{
    struct buffer text = {0};
    struct quire_doc *doc = NULL;
    json_out_raw(&text, "{\"input\":[");
    buffer_append(&text, r->input.data, r->input.n);
    json_out_raw(&text, "]}");
    int status = text.failed ? quire_fail(err, QUIRE_NO_MEMORY, "out of memory")
                             : quire_doc_open(text.data, text.n, REQUEST_MAX_DEPTH, "a stored response", &doc, err);
    if (status == QUIRE_OK) {
        struct quire_value rest = quire_doc_field(doc, "input"), item;
        json_out_raw(o, "{\"object\":\"list\",\"data\":[");
        for (size_t i = 0; quire_value_next(&rest, NULL, &item); i++)
            put_input_item(o, item, r->id, i);
        json_out_raw(o, "],\"has_more\":false}");
    }
    quire_doc_close(doc);
    buffer_free(&text);
    return status;
}

static int work_on(struct stored_job *j)
{
    struct response_record r;
    if (j->what == STORED_DELETE) {
        put_deleted(&j->reply, j->id);
        return response_store_remove(j->store, &j->tenant, j->id, &j->why);
    }
    int status = response_store_find(j->store, &j->tenant, j->id, &r, &j->why);
    if (status == QUIRE_OK && j->what == STORED_INPUT) {
        status = put_input(&j->reply, &r, &j->why);
    } else if (status == QUIRE_OK) {
        j->reply = r.reply;
        r.reply = (struct buffer){0};
    }
    response_record_free(&r);
    return status;
}

static bool work(struct text_job *job)
{
    struct stored_job *j = (struct stored_job *)job;
    j->status = work_on(j);
    if (j->status == QUIRE_OK && j->reply.failed)
        j->status = quire_fail(&j->why, QUIRE_NO_MEMORY, "out of memory");
    return false;
}

static void job_free(void *context)
{
    struct stored_job *j = context;
    buffer_free(&j->reply);
    free(j);
}

static void release(struct text_job *job)
{
    job_free(job);
}

/* ---- on the loop ---------------------------------------------------------------------------- */

static void request_free(struct stored_request *s)
{
    TAILQ_REMOVE(&s->front->stored, s, link);
    if (s->job)
        text_pool_cancel(s->front->pool, &s->job->job);
    free(s);
}

static void on_gone(void *context)
{
    request_free(context);
}

void stored_requests_end(struct front *f, const struct api_error *e)
{
    struct stored_request *s;
    while ((s = TAILQ_FIRST(&f->stored))) {
        struct http_exchange *x = s->x;
        request_free(s);
        api_error_reply(x, e);
    }
}

static void done(struct text_job *job)
{
    struct stored_job *j = (struct stored_job *)job;
    struct stored_request *s = j->owner;
    struct http_exchange *x = s->x;
    struct api_error e;
    s->job = NULL;
    request_free(s);
    if (j->status == QUIRE_OK) {
        http_reply_large(x, 200, "application/json", j->reply.data, j->reply.n, job_free, j);
    } else {
        e.why = j->why;
        api_fail_status(&e, j->status, NULL);
        if (j->status == QUIRE_NOT_FOUND)
            e.code = "response_not_found";
        api_error_reply(x, &e);
        job_free(j);
    }
}

static const struct text_job_calls text_calls = {.work = work, .done = done, .release = release};

/* The id in the path, and whether it is followed by /input_items. Returns false if it is too long for an id. */
static bool read_path(const char *path, struct stored_job *j)
{
    const char *id = path + strlen(PATH);
    const size_t n = strcspn(id, "/");
    if (n >= sizeof j->id)
        return false;
    memcpy(j->id, id, n);
    if (strncmp(id + n, INPUT_ITEMS, strlen(INPUT_ITEMS)) == 0)
        j->what = STORED_INPUT;
    return true;
}

static bool start(struct served_model *m, struct http_exchange *x, enum stored_what what, struct api_error *e)
{
    struct front *f = m->front;
    const struct tenant *tenant = front_tenant(f, x, e);
    if (!tenant)
        return false;
    struct stored_job *j = calloc(1, sizeof *j);
    struct stored_request *s = calloc(1, sizeof *s);
    bool ok = (j && s) || api_no_memory(e);
    if (ok) {
        j->what = what;
        ok = (f->responses && read_path(http_path(x), j)) ||
             api_fail(e, 404, NULL, "response_not_found", "no response is stored under %.200s", http_path(x));
    }
    if (!ok) {
        free(j);
        free(s);
        return false;
    }
    *s = (struct stored_request){.front = f, .x = x, .job = j};
    j->owner = s;
    j->store = f->responses;
    j->tenant = front_cache_domain(f, x);
    j->job = (struct text_job){.calls = &text_calls, .tenant = tenant->index};
    TAILQ_INSERT_TAIL(&f->stored, s, link);
    http_on_gone(x, on_gone, s);
    text_pool_submit(f->pool, &j->job);
    return true;
}

void response_get_start(struct served_model *m, struct http_exchange *x)
{
    struct api_error e;
    if (!start(m, x, STORED_GET, &e))
        api_error_reply(x, &e);
}

void response_delete_start(struct served_model *m, struct http_exchange *x)
{
    struct api_error e;
    if (!start(m, x, STORED_DELETE, &e))
        api_error_reply(x, &e);
}
