/* /v1/files */
#include "server/bulk/routes.h"

#include "server/bulk/call.h"
#include "server/bulk/download.h"
#include "server/bulk/page.h"
#include "server/bulk/replies.h"
#include "server/front/output/json_out.h"

#define MAX_FILES 10000u /* of a page */

static void list_work(struct bulk_call *c)
{
    c->status = bulk_store_list_files(c->bulk->store, c->tenant, &c->page, &c->files, &c->n, &c->has_more, &c->err);
}

static void list_done(struct bulk_call *c)
{
    struct buffer o = {0};
    json_out_raw(&o, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < c->n; i++) {
        json_out_raw(&o, i > 0 ? "," : "");
        bulk_put_file(&o, &c->files[i]);
    }
    json_out_raw(&o, "],\"first_id\":");
    json_out_text_or_null(&o, c->n > 0 ? c->files[0].id : NULL);
    json_out_raw(&o, ",\"last_id\":");
    json_out_text_or_null(&o, c->n > 0 ? c->files[c->n - 1].id : NULL);
    json_out_raw(&o, c->has_more ? ",\"has_more\":true}" : ",\"has_more\":false}");
    bulk_call_reply(c, &o);
}

void files_list(struct bulk *b, struct http_exchange *x, struct bulk_call *c)
{
    (void)b;
    if (page_read(x, c, MAX_FILES, MAX_FILES))
        bulk_call_run(c, list_work, list_done);
}

static void find_work(struct bulk_call *c)
{
    c->status = bulk_store_find_file(c->bulk->store, c->tenant, c->id, &c->file, &c->err);
    if (c->status == QUIRE_OK && c->file.purpose == BULK_MESSAGES)
        c->status = quire_fail(&c->err, QUIRE_NOT_FOUND, "no file has this id");
}

static void get_done(struct bulk_call *c)
{
    struct buffer o = {0};
    bulk_put_file(&o, &c->file);
    bulk_call_reply(c, &o);
}

void files_get(struct bulk *b, struct http_exchange *x, struct bulk_call *c)
{
    (void)b, (void)x;
    bulk_call_run(c, find_work, get_done);
}

static void remove_work(struct bulk_call *c)
{
    c->status = bulk_store_remove_file(c->bulk->store, c->tenant, c->id, &c->err);
}

static void remove_done(struct bulk_call *c)
{
    struct buffer o = {0};
    json_out_raw(&o, "{\"id\":");
    json_out_text(&o, c->id);
    json_out_raw(&o, ",\"object\":\"file\",\"deleted\":true}");
    bulk_call_reply(c, &o);
}

void files_remove(struct bulk *b, struct http_exchange *x, struct bulk_call *c)
{
    (void)b, (void)x;
    bulk_call_run(c, remove_work, remove_done);
}

static void content_done(struct bulk_call *c)
{
    if (c->x)
        download_begin(c->bulk, c->x, c->id, "application/octet-stream");
}

void files_content(struct bulk *b, struct http_exchange *x, struct bulk_call *c)
{
    (void)b, (void)x;
    bulk_call_run(c, find_work, content_done);
}
