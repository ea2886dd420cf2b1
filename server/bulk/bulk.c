#include "server/bulk/bulk_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "server/bulk/metrics.h"
#include "server/bulk/notice.h"
#include "server/bulk/routes.h"
#include "server/front/tenant/tenants.h"
#include "server/gateway/remote/remote.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPIRE_TICKS 60 /* between two looks for expired files */

/* ---- time ----------------------------------------------------------------------------------- */

struct expiry {
    struct bulk_job job;
    struct bulk *bulk;
    int status;
    struct quire_error err;
};

static void expire_work(struct bulk_job *job)
{
    struct expiry *e = (struct expiry *)job;
    e->status = bulk_store_expire(e->bulk->store, (int64_t)time(NULL), &e->err);
}

static void expire_done(struct bulk_job *job)
{
    struct expiry *e = (struct expiry *)job;
    if (e->status != QUIRE_OK)
        quire_log(QUIRE_LOG_WARN, "batch", "expired files cannot be removed: %s", e->err.text);
    free(e);
}

static void expire(struct bulk *b)
{
    struct expiry *e = calloc(1, sizeof *e);
    if (!e)
        return;
    e->bulk = b;
    e->job = (struct bulk_job){.work = expire_work, .done = expire_done};
    bulk_disk_do(b->disk, BULK_SHORT, &e->job);
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
    struct bulk *b = context;
    (void)fd, (void)what;
    if (b->stopping)
        return;
    runner_tick(b);
    if (b->n_ticks++ % EXPIRE_TICKS == 0)
        expire(b);
}

/* ---- opening and closing -------------------------------------------------------------------- */

static int open_store(struct bulk *b, struct quire_error *err)
{
    const uint64_t most = b->settings->max_bytes;
    signal(SIGXFSZ, SIG_IGN); /* a limit of the size of files must be an error, not the end of the process */
    const struct bulk_store_options o = {
        .dir = b->settings->dir, .max_bytes = most, .max_tenant_bytes = tenants_ask_key(b->tenants) ? most / 4 : 0};
    int status = bulk_store_open(&o, &b->store, err);
    if (status == QUIRE_OK)
        status = remote_open(b->base, &b->remote, err);
    if (status == QUIRE_OK)
        status = bulk_disk_open(b->base, &b->disk, err);
    return status;
}

int bulk_open(struct event_base *base, const struct bulk_options *options, struct bulk **out, struct quire_error *err)
{
    struct bulk *b = *out = calloc(1, sizeof *b);
    if (!b)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    b->base = base;
    b->settings = options->settings;
    b->tenants = options->tenants;
    b->routes = (struct more_routes){routes_find, routes_on_head, routes_on_request, bulk_put_metrics, b};
    TAILQ_INIT(&b->actives);
    int status = b->settings->dir ? open_store(b, err) : (int)QUIRE_OK;
    if (status == QUIRE_OK && b->settings->dir && b->settings->notice)
        status = notice_begin(b, b->settings->notice, options->on_notice, options->context, &b->notice, err);
    if (status == QUIRE_OK)
        return QUIRE_OK;
    bulk_close(b);
    *out = NULL;
    return status;
}

const struct more_routes *bulk_routes(const struct bulk *b)
{
    return &b->routes;
}

/* Continues the batches of an earlier process. Before any job uses the store. */
static int resume(struct bulk *b, struct quire_error *err)
{
    struct bulk_batch *batches;
    size_t n;
    int status = bulk_store_unfinished(b->store, &batches, &n, err);
    for (size_t i = 0; i < n; i++) {
        if (status == QUIRE_OK)
            status = runner_add(b, &batches[i], err);
        bulk_batch_free(&batches[i]);
    }
    free(batches);
    if (status == QUIRE_OK && n > 0)
        quire_log(QUIRE_LOG_INFO, "batch", "%zu batches of an earlier process continue", n);
    return status;
}

int bulk_start(struct bulk *b, const char *socket, struct quire_error *err)
{
    const struct timeval second = {.tv_sec = 1};
    if (!b->store)
        return QUIRE_OK;
    bulk_disk_settle(b->disk); /* a look for the notice */
    b->socket = strdup(socket);
    b->tick = event_new(b->base, -1, EV_PERSIST, on_tick, b);
    if (!b->socket || !b->tick || event_add(b->tick, &second) != 0)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    return resume(b, err);
}

uint32_t bulk_stop(struct bulk *b)
{
    if (!b || !b->store || b->stopping)
        return b && b->store ? runner_stop(b) : 0;
    const uint64_t begun_ms = quire_now_ms();
    b->stopping = true;
    const uint32_t n = runner_stop(b);
    if (n > 0)
        quire_log(QUIRE_LOG_INFO, "batch",
                  "%u batches have not ended; their results are saved after %llu ms, and the "
                  "next start continues them",
                  n, (unsigned long long)(quire_now_ms() - begun_ms));
    return n;
}

void bulk_close(struct bulk *b)
{
    if (!b)
        return;
    bulk_stop(b);
    notice_end(b->notice);
    bulk_disk_close(b->disk);
    runner_free(b);
    remote_close(b->remote);
    if (b->tick)
        event_free(b->tick);
    bulk_store_close(b->store);
    free(b->socket);
    free(b);
}
