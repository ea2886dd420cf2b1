/* Serves a cached reply to a body in the same words: without a template, a tokenizer or an engine. The tenant's
 * limits, the counters and the log treat it like any other request. */
#include "server/front/finished/finished.h"
#include "server/front/output/generation.h"

#include "base/clock.h"
#include "server/front/body/alias.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_CHOICES 8
#define MAX_REPLY ((size_t)64 << 10)
#define HEAD '\1' /* JSON escapes it, so it cannot occur in an event */

/* The cached entry: this struct, then the reply's bytes. The id and the time are replaced each time. An entry of a
 * stream has n_head bytes of the head that its events share, and then the events with HEAD in place of the head. */
struct note {
    uint32_t n_head; /* 0: not a stream */
    uint32_t id_at, n_id, created_at, n_created; /* in the reply, or the head */
    uint32_t n, max_tokens;
    struct {
        uint32_t n_tokens;
        bool stopped;
    } choices[MAX_CHOICES];
};

/* ---- the alias ---- */

static bool has_dialect(const struct served_model *m, const struct api_dialect *d)
{
    return (d == &api_chat && !m->config->chat_tells_time) || d == &api_completions;
}

/* Returns false if this request has no alias: no lookup, and its reply is not cached. */
static bool alias_of(struct served_model *m, struct http_exchange *x, const struct api_dialect *d, struct key256 *out)
{
    static const char *const own[] = {"cache-control", "x-quire-deadline-ms", "x-quire-trace"};
    struct quire_sha256_state s;
    size_t n;
    if (!m->cache || !has_dialect(m, d))
        return false;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (http_header(x, own[i]))
            return false;
    /* The meaning of a body depends on the front end and on the engine's limits. */
    const uint32_t sizes[2] = {m->facts->max_model_len, m->facts->vocab_size};
    const struct key256 domain = m->share_answers ? (struct key256){{0}} : front_cache_domain(m->front, x);
    quire_sha256_begin(&s);
    quire_sha256_add(&s, m->config->prompt_identity.bytes, sizeof m->config->prompt_identity.bytes);
    quire_sha256_add(&s, sizes, sizeof sizes);
    quire_sha256_add(&s, domain.bytes, sizeof domain.bytes);
    quire_sha256_add(&s, d->id_prefix, strlen(d->id_prefix) + 1);
    const char *text = http_body(x, &n);
    if (!alias_add_body(&s, text, n))
        return false;
    *out = quire_sha256_now(&s);
    return true;
}

/* ---- caching ---- */

/* Finds the position of a member's value in the head of the reply. */
static bool find_value(const struct buffer *body, const char *member, size_t n_head, uint32_t *at, uint32_t *n)
{
    const char *found = memmem(body->data, n_head, member, strlen(member));
    if (!found)
        return false;
    const char *value = found + strlen(member), *end = memchr(value, ',', (size_t)(body->data + n_head - value));
    *at = (uint32_t)(value - body->data);
    *n = end ? (uint32_t)(end - value) : 0;
    return end != NULL;
}

void generation_alias_show(struct reply *r, const void *events, size_t n)
{
    const char *p = events, *end = p + n, *head;
    const char mark = HEAD;
    struct buffer *o = r->record;
    if (!o || o->n > MAX_REPLY)
        return;
    while (p < end && (head = memmem(p, (size_t)(end - p), r->head.data, r->head.n))) {
        buffer_append(o, p, (size_t)(head - p));
        buffer_append(o, &mark, 1);
        p = head + r->head.n;
    }
    buffer_append(o, p, (size_t)(end - p));
}

void generation_alias_keep(const struct generation *g, const struct buffer *body)
{
    const struct generation_cache *c = g->cache;
    const struct reply *r = g->reply;
    struct note note = {.n = r->params->spec->n, .n_head = body ? 0 : (uint32_t)r->head.n};
    struct buffer o = {0};
    const struct buffer *said = body ? body : r->record, *names = body ? body : &r->head;
    const size_t n_head = r->head.n < names->n ? r->head.n : names->n;
    /* Each reply has new random ids for its tool calls. */
    if (!c->has_alias || !said || !c->report.has_key || r->n_prompts != 1 || note.n > MAX_CHOICES ||
        said->n > MAX_REPLY || said->failed || r->params->tool_format != TOOL_NONE ||
        (!body && response_cache_is_paced(g->served->cache)))
        return;
    if (!find_value(names, "\"id\":", n_head, &note.id_at, &note.n_id) ||
        !find_value(names, "\"created\":", n_head, &note.created_at, &note.n_created))
        return;
    note.max_tokens = g->prompts[0].max_tokens;
    for (uint32_t i = 0; i < note.n; i++) {
        const struct choice *choice = &r->prompts[0].choices[i];
        note.choices[i].n_tokens = choice->n_tokens;
        note.choices[i].stopped = choice->finish == CHOICE_STOP;
    }
    buffer_append(&o, &note, sizeof note);
    buffer_append(&o, r->head.data, note.n_head);
    buffer_append(&o, said->data, said->n);
    if (!o.failed)
        response_cache_keep_reply(g->served->cache, &c->report.key, &c->alias, o.data, o.n);
    buffer_free(&o);
}

/* ---- serving ---- */

/* A request that is served with a cached reply. */
struct asked {
    struct served_model *served;
    struct http_exchange *x;
    const struct api_dialect *dialect;
    struct tenant *tenant;
    struct timing timing;
    struct trace_context context;
};

static void count(const struct asked *a, const struct note *note, uint32_t n_prompt)
{
    struct metrics *m = a->served->counts;
    const uint64_t now = a->timing.first_token_us;
    m->n_prompt_tokens += n_prompt;
    histogram_observe(&m->prompt_tokens, (double)n_prompt);
    histogram_observe(&m->max_tokens, note->max_tokens);
    for (uint32_t i = 0; i < note->n; i++) {
        const uint32_t n_tokens = note->choices[i].n_tokens;
        m->n_generation_tokens += n_tokens;
        m->finished[note->choices[i].stopped ? METRICS_STOP : METRICS_LENGTH]++;
        histogram_observe(&m->generation_tokens, n_tokens);
        histogram_observe(&m->ttft, (double)(now - a->timing.arrived_us) * 1e-6);
        for (uint32_t j = 0; j < n_tokens; j++)
            limits_token(a->tenant, now);
    }
}

static void put_reply(struct buffer *o, const struct asked *a, const struct note *note, const char *body, size_t n)
{
    char id[100], created[24];
    const size_t after_id = note->id_at + note->n_id, after = note->created_at + note->n_created;
    snprintf(id, sizeof id, "\"%s%s\"", a->dialect->id_prefix, http_request_id(a->x));
    snprintf(created, sizeof created, "%lld", (long long)time(NULL));
    buffer_append(o, body, note->id_at);
    json_out_raw(o, id);
    buffer_append(o, body + after_id, note->created_at - after_id);
    json_out_raw(o, created);
    buffer_append(o, body + after, n - after);
}

static void say_over(struct asked *a, const struct note *note, const struct cached_reply *reply)
{
    const struct request_spec spec = {.n = note->n};
    char client[HTTP_ADDRESS_BYTES];
    http_client(a->x, client);
    struct finished_request f = {
        .served = a->served,
        .tenant = a->tenant,
        .name = http_request_id(a->x),
        .route = http_path(a->x),
        .client = client,
        .context = &a->context,
        .spec = &spec,
        .max_tokens = note->max_tokens,
        .finish = note->choices[0].stopped ? "stop" : "length",
        .status = 200,
        .cache_layer = "memory",
        .n_prompt = reply->n_prompt,
        .n_cached = reply->n_cached,
        .n_choices = note->n,
        .timing = &a->timing,
        .first_us = a->timing.first_token_us,
        .last_us = a->timing.first_token_us,
    };
    for (uint32_t i = 0; i < note->n; i++) {
        f.n_generated += note->choices[i].n_tokens;
        if (note->choices[i].n_tokens > f.n_most)
            f.n_most = note->choices[i].n_tokens;
    }
    count(a, note, reply->n_prompt);
    a->timing.now_us = quire_now_us();
    finished_request_say(&f);
}

/* Writes the events of a stream, each with the head of this reply. */
static void put_stream(struct buffer *o, const struct asked *a, const struct note *note, const char *kept, size_t n)
{
    const char *p = kept + note->n_head, *end = kept + n, *mark;
    struct buffer head = {0};
    put_reply(&head, a, note, kept, note->n_head);
    while ((mark = memchr(p, HEAD, (size_t)(end - p)))) {
        buffer_append(o, p, (size_t)(mark - p));
        buffer_append(o, head.data, head.n);
        p = mark + 1;
    }
    buffer_append(o, p, (size_t)(end - p));
    o->failed |= head.failed;
    buffer_free(&head);
}

static void send_stream(struct http_exchange *x, const struct buffer *events)
{
    http_add_header(x, "Cache-Control", "no-cache");
    http_add_header(x, "X-Accel-Buffering", "no");
    http_stream_begin(x, 200, "text/event-stream");
    http_stream_write(x, events->data, events->n);
    http_stream_end(x);
}

static void give(struct asked *a, const struct cached_reply *reply)
{
    struct http_exchange *x = a->x;
    struct tenant *tenant = a->tenant;
    struct note note;
    struct buffer o = {0};
    const char *kept = (const char *)reply->bytes + sizeof note;
    memcpy(&note, reply->bytes, sizeof note);
    if (note.n_head > 0)
        put_stream(&o, a, &note, kept, reply->n - sizeof note);
    else
        put_reply(&o, a, &note, kept, reply->n - sizeof note);
    a->timing.n_cached = reply->n_cached;
    a->timing.first_token_us = quire_now_us();
    const struct cache_report report = {
        .n_told = 1, .n_cached = 1, .age_s = reply->age_s, .unseeded = reply->unseeded, .layer = "memory"};
    limits_headers(tenant, a->timing.first_token_us, x);
    generation_cache_say(a->served, x, &report);
    say_over(a, &note, reply);
    limits_end(tenant);
    if (note.n_head > 0 && !o.failed)
        send_stream(x, &o);
    else
        http_reply(x, o.failed ? 503 : 200, "application/json", o.data, o.failed ? 0 : o.n);
    buffer_free(&o);
}

bool generation_alias_serve(struct served_model *m, struct http_exchange *x, struct tenant *tenant,
                            const struct api_dialect *dialect, struct timing *timing, struct key256 *alias,
                            bool *has_alias)
{
    struct cached_reply reply;
    struct api_error e;
    const uint64_t begun_ns = quire_now_ns();
    *has_alias = alias_of(m, x, dialect, alias);
    const bool found = *has_alias && response_cache_find_reply(m->cache, alias, &reply);
    if (*has_alias)
        completion_looked(&timing->lookups, (struct completion_lookup){"reply", begun_ns, quire_now_ns(), found});
    if (!found)
        return false;
    struct asked a = {.served = m, .x = x, .dialect = dialect, .tenant = tenant, .timing = *timing};
    uint32_t n;
    memcpy(&n, (const char *)reply.bytes + offsetof(struct note, n), sizeof n);
    trace_context_read(http_header(x, "traceparent"), http_header(x, "tracestate"), &a.context);
    bool ok = limits_queue(tenant, n, &e);
    if (ok)
        limits_dequeue(tenant, n);
    ok = ok && limits_prompt(tenant, reply.n_prompt, timing->arrived_us, &e);
    if (ok) {
        give(&a, &reply);
    } else {
        m->counts->n_refused += e.status == 429;
        front_refuse(m->front, x, tenant, &e);
    }
    return true;
}
