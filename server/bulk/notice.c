#include "server/bulk/notice.h"

#include "base/log.h"
#include "server/gateway/remote/remote.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define FILE_S 1
#define URL_S 5
#define URL_MS 2000
#define MAX_REPLY 4096

struct notice {
    struct bulk *bulk;
    const char *where;
    void (*on_notice)(void *context);
    void *context;
    struct event *timer;
    struct remote_call *call; /* NULL: none runs */
    int status; /* of its reply */
    char text[MAX_REPLY];
    size_t n;
    struct bulk_job job; /* access() may wait for a file system of the network */
    bool busy, ended, exists;
};

static bool is_url(const char *where)
{
    return strncmp(where, "http://", 7) == 0 || strncmp(where, "https://", 8) == 0;
}

static void wait_again(struct notice *n)
{
    const struct timeval later = {.tv_sec = is_url(n->where) ? URL_S : FILE_S};
    event_add(n->timer, &later);
}

static void found(struct notice *n)
{
    quire_log(QUIRE_LOG_WARN, "batch", "%s: this machine will end", n->where);
    n->on_notice(n->context);
}

/* ---- a file --------------------------------------------------------------------------------- */

static void look_work(struct bulk_job *job)
{
    struct notice *n = (struct notice *)((char *)job - offsetof(struct notice, job));
    n->exists = access(n->where, F_OK) == 0;
}

static void look_done(struct bulk_job *job)
{
    struct notice *n = (struct notice *)((char *)job - offsetof(struct notice, job));
    n->busy = false;
    if (n->ended)
        free(n);
    else if (n->exists)
        found(n);
    else
        wait_again(n);
}

/* ---- a URL ---------------------------------------------------------------------------------- */

static void on_head(void *context, int status)
{
    ((struct notice *)context)->status = status;
}

static void on_body(void *context, const char *bytes, size_t n_bytes)
{
    struct notice *n = context;
    const size_t space = sizeof n->text - n->n, take = n_bytes < space ? n_bytes : space;
    memcpy(n->text + n->n, bytes, take);
    n->n += take;
}

/* 404 until the notice comes (EC2), or 200 with FALSE (Google Cloud). */
static void on_end(void *context, enum remote_end end, const char *why)
{
    struct notice *n = context;
    const bool says_no = n->n >= 5 && strncasecmp(n->text, "false", 5) == 0;
    (void)why;
    n->call = NULL;
    if (end == REMOTE_WHOLE && n->status == 200 && !says_no)
        found(n);
    else
        wait_again(n);
}

static void ask(struct notice *n)
{
    static const char *const headers[] = {"Metadata-Flavor: Google"};
    static const struct remote_events events = {on_head, on_body, on_end};
    const struct remote_request request = {.method = "GET",
                                           .url = n->where,
                                           .headers = headers,
                                           .n_headers = 1,
                                           .connect_ms = URL_MS,
                                           .first_byte_ms = URL_MS,
                                           .silence_ms = URL_MS,
                                           .max_reply_bytes = MAX_REPLY};
    struct quire_error err;
    n->status = 0;
    n->n = 0;
    if (remote_begin(n->bulk->remote, &request, &events, n, &n->call, &err) != QUIRE_OK)
        wait_again(n);
}

static void on_time(evutil_socket_t fd, short what, void *context)
{
    struct notice *n = context;
    (void)fd, (void)what;
    if (is_url(n->where)) {
        ask(n);
        return;
    }
    n->busy = true;
    n->job = (struct bulk_job){.work = look_work, .done = look_done};
    bulk_disk_do(n->bulk->disk, BULK_SHORT, &n->job);
}

int notice_begin(struct bulk *b, const char *where, void (*on_notice)(void *context), void *context,
                 struct notice **out, struct quire_error *err)
{
    struct notice *n = *out = calloc(1, sizeof *n);
    if (n) {
        *n = (struct notice){.bulk = b, .where = where, .on_notice = on_notice, .context = context};
        n->timer = evtimer_new(b->base, on_time, n);
    }
    if (!n || !n->timer) {
        free(n);
        *out = NULL;
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    event_active(n->timer, EV_TIMEOUT, 0);
    return QUIRE_OK;
}

void notice_end(struct notice *n)
{
    if (!n)
        return;
    event_free(n->timer);
    if (n->call)
        remote_cancel(n->call);
    n->ended = true;
    if (!n->busy)
        free(n);
}
