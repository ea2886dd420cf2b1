#include "server/bulk/run/sending.h"

#include "server/bulk/run/result_text.h"
#include "server/gateway/remote/remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_REPLY_BYTES ((uint64_t)72 << 20) /* the front end's limit is 64 MiB */
#define MAX_ATTEMPTS 5 /* of those without Retry-After */
#define FIRST_WAIT_MS 1000
#define MAX_WAIT_S 3600
#define CONNECT_MS 10000
#define KEPT_BYTES ((size_t)1 << 20) /* a buffer keeps at most this capacity for the next line */
#define MAX_REQUEST_ID 128
#define MAX_URL 2048

struct sending {
    const struct bulk_run_options *options;
    void (*done)(void *context, struct sending *s);
    void *context;
    struct event *timer; /* the next attempt, or done() again */
    struct remote_call *call; /* NULL: none runs */
    uint32_t line;
    unsigned attempts; /* failed ones that said no time to come back */
    bool has_result;
    struct buffer text, reply;
    struct bulk_line read; /* of text */
    char id[BULK_RUN_MAX_ID + 16];
    /* The reply. */
    int status; /* of HTTP; 0: none */
    char request_id[MAX_REQUEST_ID]; /* "": none */
    char why[200]; /* no usable reply came */
};

/* ---- attempts ------------------------------------------------------------------------------- */

static void set_timer(struct sending *s, uint32_t ms)
{
    const struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    event_add(s->timer, &tv);
}

/* Reads the seconds of "Retry-After: 3". 0: absent, or a date. */
static uint32_t retry_ms(const char *header)
{
    char *end;
    const double seconds = header ? strtod(header, &end) : 0;
    if (!header || end == header || !(seconds > 0))
        return 0;
    return seconds > MAX_WAIT_S ? MAX_WAIT_S * 1000u : (uint32_t)(seconds * 1000) + 1;
}

/* Returns whether the line is sent again, and after which time. */
static bool comes_again(struct sending *s, enum remote_end end, const char *retry_after, uint32_t *ms)
{
    const bool is_whole = end == REMOTE_WHOLE;
    const bool is_busy = is_whole && (s->status == 429 || s->status == 503);
    *ms = is_busy ? retry_ms(retry_after) : 0;
    if (*ms > 0)
        return true;
    if (end == REMOTE_INVALID || (is_whole && !is_busy && s->status != 502 && s->status != 504))
        return false;
    *ms = (uint32_t)FIRST_WAIT_MS << s->attempts;
    return ++s->attempts < MAX_ATTEMPTS;
}

static void on_head(void *context, int status)
{
    struct sending *s = context;
    s->status = status;
}

static void on_body(void *context, const char *bytes, size_t n)
{
    struct sending *s = context;
    buffer_append(&s->reply, bytes, n);
}

static void on_end(void *context, enum remote_end end, const char *why)
{
    struct sending *s = context;
    uint32_t ms;
    const char *id = remote_header(s->call, "x-request-id");
    snprintf(s->request_id, sizeof s->request_id, "%s", id ? id : "");
    s->why[0] = '\0';
    if (end != REMOTE_WHOLE)
        snprintf(s->why, sizeof s->why, "%s", why[0] ? why : "the connection ended within the reply");
    else if (s->reply.failed)
        snprintf(s->why, sizeof s->why, "out of memory for the reply");
    const bool again = comes_again(s, end, remote_header(s->call, "Retry-After"), &ms);
    s->call = NULL;
    if (again) {
        set_timer(s, ms);
        return;
    }
    s->has_result = true;
    s->done(s->context, s);
}

static void attempt(struct sending *s)
{
    static const struct remote_events events = {on_head, on_body, on_end};
    const struct bulk_run_options *o = s->options;
    const char *headers[BULK_RUN_MAX_HEADERS + 2];
    char id[sizeof s->id + 16], url[MAX_URL];
    struct quire_error err;
    snprintf(id, sizeof id, "x-request-id: %s", s->id);
    snprintf(url, sizeof url, "%s%s", o->base_url ? o->base_url : "http://localhost", s->read.url);
    memcpy(headers, o->headers, o->n_headers * sizeof *headers);
    headers[o->n_headers] = "content-type: application/json";
    headers[o->n_headers + 1] = id;
    buffer_clear(&s->reply);
    s->status = 0;
    const struct remote_request request = {
        .method = "POST",
        .url = url,
        .headers = headers,
        .n_headers = o->n_headers + 2,
        .body = s->read.body,
        .n_body = s->read.n_body,
        .connect_ms = CONNECT_MS,
        .max_reply_bytes = MAX_REPLY_BYTES,
        .socket = o->socket,
    };
    if (remote_begin(o->remote, &request, &events, s, &s->call, &err) != QUIRE_OK) {
        s->call = NULL;
        set_timer(s, FIRST_WAIT_MS);
    }
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    struct sending *s = context;
    (void)fd;
    (void)what;
    if (s->has_result)
        s->done(s->context, s);
    else
        attempt(s);
}

/* ---- a line --------------------------------------------------------------------------------- */

static void drop_large(struct buffer *b)
{
    if (b->capacity > KEPT_BYTES)
        buffer_free(b);
}

static int read_line(struct sending *s, uint32_t line, struct quire_error *err)
{
    drop_large(&s->text);
    drop_large(&s->reply);
    s->line = line;
    s->attempts = 0;
    s->has_result = false;
    snprintf(s->id, sizeof s->id, "%s-%u", s->options->id, line + 1);
    return bulk_input_read(s->options->input, line, &s->text, &s->read, err);
}

int sending_begin(struct sending *s, uint32_t line, struct quire_error *err)
{
    const int status = read_line(s, line, err);
    if (status == QUIRE_OK)
        attempt(s);
    return status;
}

void sending_cancel(struct sending *s)
{
    event_del(s->timer);
    if (s->call)
        remote_cancel(s->call);
    s->call = NULL;
}

void sending_hold(struct sending *s)
{
    set_timer(s, FIRST_WAIT_MS);
}

uint32_t sending_line(const struct sending *s)
{
    return s->line;
}

/* ---- results -------------------------------------------------------------------------------- */

static struct result_of result_of(const struct sending *s)
{
    return (struct result_of){s->options->dialect, s->id, &s->read};
}

enum bulk_outcome sending_result(struct sending *s, struct buffer *o, struct bulk_tokens *tokens)
{
    const struct result_of of = result_of(s);
    const struct result_reply reply = {
        .status = s->status,
        .request_id = s->request_id[0] ? s->request_id : NULL,
        .body = s->reply.data,
        .n_body = s->reply.n,
    };
    struct quire_error err;
    *tokens = (struct bulk_tokens){0};
    if (s->why[0])
        result_text_error(o, &of, "connection_error", s->why);
    else if (!reply.n_body || result_text_reply(o, &of, &reply, tokens, &err) != QUIRE_OK)
        result_text_error(o, &of, "invalid_reply", "the reply is not JSON");
    else if (s->status == 200)
        return BULK_SUCCEEDED;
    return BULK_ERRORED;
}

void sending_refuse(struct sending *s, const char *why, struct buffer *o)
{
    const struct result_of of = result_of(s);
    char text[QUIRE_ERROR_BYTES + 32];
    snprintf(text, sizeof text, "line %llu: %s", (unsigned long long)bulk_input_number(s->options->input, s->line),
             why);
    result_text_error(o, &of, "invalid_line", text);
}

void sending_skip(struct sending *s, uint32_t line, enum bulk_outcome outcome, struct buffer *o)
{
    struct quire_error err;
    read_line(s, line, &err);
    const struct result_of of = result_of(s);
    result_text_ended(o, &of, outcome);
}

/* ---- opening -------------------------------------------------------------------------------- */

int sending_open(const struct bulk_run_options *options, void (*done)(void *context, struct sending *s), void *context,
                 struct sending **out, struct quire_error *err)
{
    struct sending *s = *out = calloc(1, sizeof *s);
    if (s) {
        *s = (struct sending){.options = options, .done = done, .context = context};
        s->timer = evtimer_new(options->base, on_timer, s);
    }
    if (s && s->timer)
        return QUIRE_OK;
    free(s);
    *out = NULL;
    return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
}

void sending_close(struct sending *s)
{
    if (!s)
        return;
    sending_cancel(s);
    event_free(s->timer);
    buffer_free(&s->text);
    buffer_free(&s->reply);
    free(s);
}
