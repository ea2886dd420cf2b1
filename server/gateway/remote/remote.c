#include "server/gateway/remote/remote.h"

#include "base/clock.h"

#include <curl/curl.h>
#include <event2/event_struct.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>

/* How often deadlines are compared with the clock, while there are calls. */
#define SWEEP_MS 50
/* Handles that are kept for the next calls. */
#define MAX_FREE 512
/* Idle connections that are kept. */
#define MAX_IDLE 512
#define MAX_WHY 200

struct remote_call {
    struct remote *remote;
    CURL *easy;
    struct curl_slist *headers;
    struct remote_events events;
    void *context;
    int status;
    bool is_added;  /* to the multi handle */
    bool has_head;  /* on_head was called */
    bool is_cancelled, is_paused, resumes;
    bool is_too_large;
    uint32_t first_byte_ms, silence_ms;
    uint64_t begun_ms, heard_ms, n_reply, max_reply_bytes;
    uint64_t ends_by_ms; /* 0: no limit */
    char why[CURL_ERROR_SIZE];
    TAILQ_ENTRY(remote_call) link;
};

TAILQ_HEAD(call_list, remote_call);

struct remote {
    struct event_base *base;
    CURLM *multi;
    struct event *timer; /* libcurl's */
    struct event *sweep; /* deadlines */
    struct event *work;  /* calls to begin or to resume, outside libcurl's callbacks */
    struct call_list calls, unused;
    size_t n_unused;
    unsigned inside; /* a callback of libcurl is running */
    uint64_t now_ms; /* when libcurl was called last: a stream's pieces come by the hundred in one call */
};

struct watch {
    struct event event;
};

/* ---- a call's end --------------------------------------------------------------------------- */

static void free_call(struct remote_call *c)
{
    curl_slist_free_all(c->headers);
    if (c->easy)
        curl_easy_cleanup(c->easy);
    free(c);
}

/* Takes it out of the multi handle: never from within a callback of libcurl. */
static void retire(struct remote_call *c)
{
    struct remote *r = c->remote;
    if (c->is_added)
        curl_multi_remove_handle(r->multi, c->easy);
    c->is_added = false;
    TAILQ_REMOVE(&r->calls, c, link);
}

static void recycle(struct remote_call *c)
{
    struct remote *r = c->remote;
    curl_slist_free_all(c->headers);
    c->headers = NULL;
    if (r->n_unused >= MAX_FREE) {
        free_call(c);
        return;
    }
    r->n_unused++;
    TAILQ_INSERT_HEAD(&r->unused, c, link);
}

static void end(struct remote_call *c, enum remote_end how, const char *why)
{
    char text[MAX_WHY];
    snprintf(text, sizeof text, "%s", why);
    retire(c);
    if (!c->is_cancelled)
        c->events.on_end(c->context, how, text);
    recycle(c);
}

static enum remote_end end_of(const struct remote_call *c, CURLcode result)
{
    if (c->is_too_large)
        return REMOTE_INVALID;
    switch ((int)result) {
    case CURLE_OK: return REMOTE_WHOLE;
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_BAD_CONTENT_ENCODING: return REMOTE_INVALID;
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_WRITE_ERROR: return REMOTE_CUT;
    }
    return REMOTE_UNREACHED; /* libcurl's only timeout here is that of connecting */
}

static void read_results(struct remote *r)
{
    CURLMsg *message;
    int n_left;
    while ((message = curl_multi_info_read(r->multi, &n_left))) {
        struct remote_call *c = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        const CURLcode result = message->data.result; /* the message ends with the handle */
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&c);
        const char *why = c->is_too_large      ? "the reply is larger than the limit"
                          : result == CURLE_OK ? ""
                          : c->why[0]          ? c->why
                                               : curl_easy_strerror(result);
        end(c, end_of(c, result), why);
    }
}

/* ---- libcurl on the loop -------------------------------------------------------------------- */

static void act(struct remote *r, curl_socket_t fd, int what)
{
    int n_running;
    r->now_ms = quire_now_ms();
    r->inside++;
    curl_multi_socket_action(r->multi, fd, what, &n_running);
    r->inside--;
    read_results(r);
}

static void on_socket(evutil_socket_t fd, short what, void *context)
{
    act(context, fd, (what & EV_READ ? CURL_CSELECT_IN : 0) | (what & EV_WRITE ? CURL_CSELECT_OUT : 0));
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    act(context, CURL_SOCKET_TIMEOUT, 0);
}

static int set_socket(CURL *easy, curl_socket_t fd, int what, void *context, void *assigned)
{
    struct remote *r = context;
    struct watch *w = assigned;
    const short events = (short)(EV_PERSIST | (what & CURL_POLL_IN ? EV_READ : 0) |
                                 (what & CURL_POLL_OUT ? EV_WRITE : 0));
    (void)easy;
    if (w)
        event_del(&w->event);
    if (what == CURL_POLL_REMOVE) {
        free(w);
        return 0;
    }
    if (!w && !(w = calloc(1, sizeof *w)))
        return -1;
    event_assign(&w->event, r->base, fd, events, on_socket, r);
    event_add(&w->event, NULL);
    curl_multi_assign(r->multi, fd, w);
    return 0;
}

static int set_timer(CURLM *multi, long ms, void *context)
{
    struct remote *r = context;
    (void)multi;
    if (ms < 0) {
        event_del(r->timer);
    } else if (ms == 0) {
        event_active(r->timer, EV_TIMEOUT, 0);
    } else {
        const struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
        event_add(r->timer, &tv);
    }
    return 0;
}

/* ---- what libcurl receives ------------------------------------------------------------------ */

static size_t on_head_line(char *line, size_t size, size_t n, void *context)
{
    struct remote_call *c = context;
    long status = 0;
    const bool is_end = n * size <= 2 && (line[0] == '\r' || line[0] == '\n');
    if (c->is_cancelled)
        return 0;
    c->heard_ms = c->remote->now_ms;
    if (!is_end || c->has_head) /* trailers have an end, too */
        return n * size;
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200)
        return n * size;
    c->has_head = true;
    c->status = (int)status;
    c->events.on_head(c->context, c->status);
    return c->is_cancelled ? 0 : n * size;
}

static size_t on_body(char *bytes, size_t size, size_t n, void *context)
{
    struct remote_call *c = context;
    if (c->is_cancelled)
        return 0;
    c->heard_ms = c->remote->now_ms;
    c->n_reply += n * size;
    c->is_too_large = c->max_reply_bytes > 0 && c->n_reply > c->max_reply_bytes;
    if (c->is_too_large)
        return 0;
    c->events.on_body(c->context, bytes, n * size);
    return c->is_cancelled ? 0 : n * size;
}

/* ---- beginning ------------------------------------------------------------------------------ */

/* The options that are the same for every call. */
static bool set_constants(struct remote_call *c)
{
    CURL *e = c->easy;
    return curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_PATH_AS_IS, 1L) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_PROXY, "") == CURLE_OK && /* none of the environment */
           curl_easy_setopt(e, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_PRIVATE, (void *)c) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_ERRORBUFFER, c->why) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_head_line) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_HEADERDATA, c) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_WRITEDATA, c) == CURLE_OK;
}

static struct remote_call *new_call(struct remote *r)
{
    struct remote_call *c = TAILQ_FIRST(&r->unused);
    if (c) {
        TAILQ_REMOVE(&r->unused, c, link);
        r->n_unused--;
        return c;
    }
    c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->remote = r;
    c->easy = curl_easy_init();
    if (c->easy && set_constants(c))
        return c;
    free_call(c);
    return NULL;
}

static bool set_headers(struct remote_call *c, const struct remote_request *q)
{
    /* "Expect:" removes libcurl's pause before a body. */
    struct curl_slist *all = curl_slist_append(NULL, "Expect:");
    for (size_t i = 0; i < q->n_headers && all; i++) {
        struct curl_slist *more = curl_slist_append(all, q->headers[i]);
        if (!more)
            curl_slist_free_all(all);
        all = more;
    }
    c->headers = all;
    return all && curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, all) == CURLE_OK;
}

static bool set_request(struct remote_call *c, const struct remote_request *q)
{
    CURL *e = c->easy;
    const bool has_body = q->body != NULL;
    bool good = curl_easy_setopt(e, CURLOPT_URL, q->url) == CURLE_OK && set_headers(c, q);
    good = good && curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)q->connect_ms) == CURLE_OK;
    if (has_body)
        good = good && curl_easy_setopt(e, CURLOPT_POST, 1L) == CURLE_OK &&
               curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->n_body) == CURLE_OK &&
               curl_easy_setopt(e, CURLOPT_POSTFIELDS, q->body) == CURLE_OK;
    else
        good = good && curl_easy_setopt(e, CURLOPT_HTTPGET, 1L) == CURLE_OK;
    const char *usual = has_body ? "POST" : "GET";
    good = good &&
           curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, strcmp(q->method, usual) == 0 ? NULL : q->method) == CURLE_OK;
    return good && curl_easy_setopt(e, CURLOPT_ABSTRACT_UNIX_SOCKET, q->socket) == CURLE_OK;
}

static void set_sweep(struct remote *r)
{
    const struct timeval tv = {.tv_usec = SWEEP_MS * 1000};
    if (!evtimer_pending(r->sweep, NULL))
        event_add(r->sweep, &tv);
}

static bool add(struct remote_call *c)
{
    c->is_added = curl_multi_add_handle(c->remote->multi, c->easy) == CURLM_OK;
    return c->is_added;
}

int remote_begin(struct remote *r, const struct remote_request *q, const struct remote_events *events, void *context,
                 struct remote_call **out, struct quire_error *err)
{
    struct remote_call *c = *out = new_call(r);
    if (!c)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    const uint64_t now = quire_now_ms();
    c->events = *events;
    c->context = context;
    c->status = 0;
    c->has_head = c->is_cancelled = c->is_paused = c->resumes = c->is_too_large = false;
    c->first_byte_ms = q->first_byte_ms;
    c->silence_ms = q->silence_ms;
    c->begun_ms = c->heard_ms = now;
    c->n_reply = c->ends_by_ms = 0;
    c->max_reply_bytes = q->max_reply_bytes;
    c->why[0] = '\0';
    TAILQ_INSERT_TAIL(&r->calls, c, link);
    /* libcurl takes no handle from within its callbacks: then on_work() adds it. */
    if (set_request(c, q) && (r->inside > 0 || add(c))) {
        if (r->inside > 0)
            event_active(r->work, EV_TIMEOUT, 0);
        set_sweep(r);
        return QUIRE_OK;
    }
    TAILQ_REMOVE(&r->calls, c, link);
    free_call(c);
    *out = NULL;
    return quire_fail(err, QUIRE_INVALID, "libcurl does not take the URL, or memory is out");
}

void remote_cancel(struct remote_call *c)
{
    c->is_cancelled = true;
    if (c->remote->inside > 0) { /* libcurl may be using it */
        event_active(c->remote->work, EV_TIMEOUT, 0);
        return;
    }
    retire(c);
    recycle(c);
}

void remote_pause(struct remote_call *c, bool pause)
{
    if (c->is_cancelled || c->is_paused == pause)
        return;
    c->is_paused = pause;
    c->heard_ms = quire_now_ms();
    c->resumes = !pause;
    if (pause)
        curl_easy_pause(c->easy, CURLPAUSE_RECV);
    else /* libcurl passes on at once what it holds, and events come from the loop only */
        event_active(c->remote->work, EV_TIMEOUT, 0);
}

void remote_end_within(struct remote_call *c, uint32_t ms)
{
    c->ends_by_ms = quire_now_ms() + ms;
}

const char *remote_header(const struct remote_call *c, const char *name)
{
    struct curl_header *header;
    return curl_easy_header(c->easy, name, 0, CURLH_HEADER, -1, &header) == CURLHE_OK ? header->value : NULL;
}

void remote_headers(const struct remote_call *c, void (*on_header)(void *context, const char *name, const char *value),
                    void *context)
{
    struct curl_header *h = NULL;
    while ((h = curl_easy_nextheader(c->easy, CURLH_HEADER, -1, h)))
        on_header(context, h->name, h->value);
}

/* ---- outside the callbacks ------------------------------------------------------------------ */

static void on_work(evutil_socket_t fd, short what, void *context)
{
    struct remote *r = context;
    struct remote_call *c, *next;
    (void)fd;
    (void)what;
    for (c = TAILQ_FIRST(&r->calls); c; c = next) {
        next = TAILQ_NEXT(c, link);
        if (c->is_cancelled) {
            retire(c);
            recycle(c);
        } else if (!c->is_added) {
            if (!add(c)) {
                end(c, REMOTE_UNREACHED, "libcurl takes no more transfers");
                event_active(r->work, EV_TIMEOUT, 0); /* next may have gone: begins again */
                break;
            }
        } else if (c->resumes) {
            c->resumes = false;
            r->now_ms = quire_now_ms();
            r->inside++;
            curl_easy_pause(c->easy, CURLPAUSE_CONT);
            r->inside--;
        }
    }
    read_results(r);
}

/* The deadline that has passed; NULL: none. Reads the clock for each call: one that began since the last reading, because
 * another one ended, would seem to have begun after the present. */
static const char *late(const struct remote_call *c)
{
    const uint64_t now = quire_now_ms();
    if (!c->has_head && c->first_byte_ms > 0 && now - c->begun_ms >= c->first_byte_ms)
        return "no reply in time";
    if (c->has_head && !c->is_paused && c->silence_ms > 0 && now - c->heard_ms >= c->silence_ms)
        return "the reply stopped";
    if (c->ends_by_ms > 0 && now >= c->ends_by_ms)
        return "the reply did not end";
    return NULL;
}

/* Ends the calls that are late. on_end may end others, so it begins again after each. */
static void on_sweep(evutil_socket_t fd, short what, void *context)
{
    struct remote *r = context;
    struct remote_call *c = TAILQ_FIRST(&r->calls);
    (void)fd;
    (void)what;
    while (c) {
        const char *why = late(c);
        if (why)
            end(c, REMOTE_TIMEOUT, why);
        c = why ? TAILQ_FIRST(&r->calls) : TAILQ_NEXT(c, link);
    }
    if (!TAILQ_EMPTY(&r->calls))
        set_sweep(r);
}

int remote_open(struct event_base *base, struct remote **out, struct quire_error *err)
{
    *out = NULL;
    struct remote *r = calloc(1, sizeof *r);
    if (!r)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    r->base = base;
    TAILQ_INIT(&r->calls);
    TAILQ_INIT(&r->unused);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    r->multi = curl_multi_init();
    r->timer = evtimer_new(base, on_timer, r);
    r->sweep = evtimer_new(base, on_sweep, r);
    r->work = evtimer_new(base, on_work, r);
    const bool good = r->multi && r->timer && r->sweep && r->work &&
                      curl_multi_setopt(r->multi, CURLMOPT_SOCKETFUNCTION, set_socket) == CURLM_OK &&
                      curl_multi_setopt(r->multi, CURLMOPT_SOCKETDATA, r) == CURLM_OK &&
                      curl_multi_setopt(r->multi, CURLMOPT_TIMERFUNCTION, set_timer) == CURLM_OK &&
                      curl_multi_setopt(r->multi, CURLMOPT_TIMERDATA, r) == CURLM_OK &&
                      curl_multi_setopt(r->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING) == CURLM_OK &&
                      curl_multi_setopt(r->multi, CURLMOPT_MAXCONNECTS, (long)MAX_IDLE) == CURLM_OK;
    if (!good) {
        remote_close(r);
        return quire_fail(err, QUIRE_INTERNAL, "libcurl cannot be set up");
    }
    *out = r;
    return QUIRE_OK;
}

void remote_close(struct remote *r)
{
    struct remote_call *c;
    if (!r)
        return;
    while ((c = TAILQ_FIRST(&r->calls))) {
        retire(c);
        free_call(c);
    }
    while ((c = TAILQ_FIRST(&r->unused))) {
        TAILQ_REMOVE(&r->unused, c, link);
        free_call(c);
    }
    if (r->multi)
        curl_multi_cleanup(r->multi);
    if (r->timer)
        event_free(r->timer);
    if (r->sweep)
        event_free(r->sweep);
    if (r->work)
        event_free(r->work);
    free(r);
}
