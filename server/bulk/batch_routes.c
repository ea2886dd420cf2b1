/* /v1/batches and /v1/messages/batches; upload.c creates a message batch. */
#include "server/bulk/routes.h"

#include "server/bulk/batch_body.h"
#include "server/bulk/call.h"
#include "server/bulk/download.h"
#include "server/bulk/page.h"
#include "server/bulk/replies.h"
#include "server/front/output/json_out.h"

#include <stdio.h>
#include <string.h>

#define MAX_ACTIVE 1000u /* batches of a tenant that have not ended */
#define MAX_BATCHES 100u
#define MAX_MESSAGE_BATCHES 1000u
#define USUAL 20u

/* ---- create --------------------------------------------------------------------------------- */

static void create_work(struct bulk_call *c)
{
    struct bulk_file input;
    c->status = bulk_store_find_file(c->bulk->store, c->tenant, c->batch->input, &input, &c->err);
    if (c->status == QUIRE_NOT_FOUND || (c->status == QUIRE_OK && input.purpose == BULK_MESSAGES))
        c->status = quire_fail(&c->err, QUIRE_INVALID,
                               "input_file_id: no file has this id: unknown, expired or deleted");
    if (c->status == QUIRE_OK && input.purpose != BULK_INPUT)
        c->status = quire_fail(&c->err, QUIRE_INVALID, "input_file_id: the purpose of the file must be \"batch\"");
    if (c->status == QUIRE_OK)
        c->status = bulk_store_add_batch(c->bulk->store, c->batch, &c->err);
}

static void create_done(struct bulk_call *c)
{
    struct buffer o = {0};
    bulk_put_batch(&o, c->batch);
    if (!c->bulk->stopping && runner_add(c->bulk, c->batch, &c->err) != QUIRE_OK)
        o.failed = true; /* the next start runs it */
    bulk_call_reply(c, &o);
}

void batches_create(struct bulk *b, struct http_exchange *x, struct bulk_call *c)
{
    struct api_error e;
    size_t n;
    const char *body = http_body(x, &n);
    bool good = batch_body_read(body, n, c->batch, &e);
    if (good && runner_n_active(b, c->tenant) >= MAX_ACTIVE) {
        good = api_fail(&e, 429, NULL, "too_many_batches", "%u batches have not ended: wait, or cancel some",
                        MAX_ACTIVE);
        e.retry_ms = 10000;
    }
    if (!good) {
        api_error_reply(x, &e);
        bulk_call_free(c);
        return;
    }
    bulk_new_id(BULK_BATCH_ID, c->batch->id);
    snprintf(c->batch->tenant, sizeof c->batch->tenant, "%s", c->tenant);
    snprintf(c->batch->account, sizeof c->batch->account, "%s", c->account);
    bulk_call_run(c, create_work, create_done);
}

/* ---- lists ---------------------------------------------------------------------------------- */

static void list_work(struct bulk_call *c)
{
    c->status = bulk_store_list_batches(c->bulk->store, c->tenant, &c->page, &c->batches, &c->n, &c->has_more, &c->err);
}

static void list_done(struct bulk_call *c)
{
    struct buffer o = {0};
    json_out_raw(&o, c->page.dialect == BULK_OPENAI ? "{\"object\":\"list\",\"data\":[" : "{\"data\":[");
    for (size_t i = 0; i < c->n; i++) {
        json_out_raw(&o, i > 0 ? "," : "");
        runner_overlay(c->bulk, &c->batches[i]);
        bulk_put_batch(&o, &c->batches[i]);
    }
    json_out_raw(&o, "],\"first_id\":");
    json_out_text_or_null(&o, c->n > 0 ? c->batches[0].id : NULL);
    json_out_raw(&o, ",\"last_id\":");
    json_out_text_or_null(&o, c->n > 0 ? c->batches[c->n - 1].id : NULL);
    json_out_raw(&o, c->has_more ? ",\"has_more\":true}" : ",\"has_more\":false}");
    bulk_call_reply(c, &o);
}

void batches_list(struct bulk *b, struct http_exchange *x, struct bulk_call *c)
{
    (void)b;
    if (page_read(x, c, USUAL, MAX_BATCHES))
        bulk_call_run(c, list_work, list_done);
}

void messages_list(struct bulk *b, struct http_exchange *x, struct bulk_call *c)
{
    (void)b;
    if (page_read(x, c, USUAL, MAX_MESSAGE_BATCHES))
        bulk_call_run(c, list_work, list_done);
}

/* ---- one ------------------------------------------------------------------------------------ */

static void find_work(struct bulk_call *c)
{
    c->status = bulk_store_find_batch(c->bulk->store, c->tenant, c->id, c->batch, &c->err);
}

static void get_done(struct bulk_call *c)
{
    struct buffer o = {0};
    runner_overlay(c->bulk, c->batch);
    bulk_put_batch(&o, c->batch);
    bulk_call_reply(c, &o);
}

void batches_get(struct bulk *b, struct http_exchange *x, struct bulk_call *c)
{
    (void)b, (void)x;
    bulk_call_run(c, find_work, get_done);
}

static void cancel_done(struct bulk_call *c)
{
    struct quire_error err;
    if (bulk_state_is_last(c->batch->state) && c->x) {
        quire_fail(&err, QUIRE_INVALID, "the batch has ended already: it is %s", bulk_state_names[c->batch->state]);
        bulk_reply_failed(c->x, QUIRE_INVALID, &err);
        return;
    }
    get_done(c);
}

/* Its row is read after the change was saved. */
void batches_cancel(struct bulk *b, struct http_exchange *x, struct bulk_call *c)
{
    (void)x;
    runner_cancel(b, c->tenant, c->id);
    bulk_call_run(c, find_work, cancel_done);
}

static void remove_work(struct bulk_call *c)
{
    c->status = bulk_store_remove_batch(c->bulk->store, c->tenant, c->id, &c->err);
}

static void remove_done(struct bulk_call *c)
{
    struct buffer o = {0};
    json_out_raw(&o, "{\"id\":");
    json_out_text(&o, c->id);
    json_out_raw(&o, ",\"type\":\"message_batch_deleted\"}");
    bulk_call_reply(c, &o);
}

void messages_remove(struct bulk *b, struct http_exchange *x, struct bulk_call *c)
{
    (void)b, (void)x;
    bulk_call_run(c, remove_work, remove_done);
}

static void results_done(struct bulk_call *c)
{
    struct quire_error err;
    if (!c->x)
        return;
    if (bulk_state_is_last(c->batch->state) && c->batch->output[0]) {
        download_begin(c->bulk, c->x, c->batch->output, "application/x-jsonl");
        return;
    }
    quire_fail(&err, QUIRE_NOT_FOUND, "the batch has no results yet: wait until its processing_status is \"ended\"");
    bulk_reply_failed(c->x, QUIRE_NOT_FOUND, &err);
}

void messages_results(struct bulk *b, struct http_exchange *x, struct bulk_call *c)
{
    (void)b, (void)x;
    bulk_call_run(c, find_work, results_done);
}
