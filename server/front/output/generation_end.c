/* A request is over: what is counted of it, its line in the log, and its spans. None of them holds any of its text. */
#include "server/front/output/generation.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- counting ------------------------------------------------------------------------------- */

static uint64_t since(uint64_t now_us, uint64_t then_us)
{
    return now_us > then_us ? now_us - then_us : 0;
}

void generation_choice_over(struct generation *g, const struct choice *c, const struct wire_account *account)
{
    if (c->first_token_us == 0)
        return;
    uint64_t queue_us = trace_queue_us(account);
    uint64_t prefill_us = since(c->first_token_us, g->trace.submitted_us + queue_us);
    uint64_t decode_us = c->last_token_us - c->first_token_us;
    metrics_phases(&g->front->metrics, (double)queue_us * 1e-6, (double)prefill_us * 1e-6, (double)decode_us * 1e-6,
                   c->n_tokens);
}

/* What the log and the spans say. Times on the clock of struct trace; 0: it was not reached. */
struct facts {
    const char *finish, *error; /* error: its code; NULL */
    int status;
    uint64_t n_prompt, n_cached, n_generated, n_most, n_choices;
    uint64_t queued_until_us, first_us, last_us, engine_id;
};

static void add_choices(const struct generation *g, const struct gen_prompt *p, struct facts *f)
{
    for (uint32_t i = 0; p->choices && i < g->params.spec.n; i++) {
        const struct choice *c = &p->choices[i];
        f->n_choices++;
        f->n_generated += c->n_tokens;
        if (c->n_tokens > f->n_most)
            f->n_most = c->n_tokens;
        if (c->last_token_us > f->last_us)
            f->last_us = c->last_token_us;
    }
}

static struct facts facts_of(const struct generation *g, int status, const struct api_error *e)
{
    struct facts f = {.status = status, .first_us = g->trace.first_token_us, .n_cached = g->trace.n_cached};
    for (size_t i = 0; i < g->n_prompts; i++) {
        f.n_prompt += g->prompts[i].item.n_ids;
        add_choices(g, &g->prompts[i], &f);
    }
    if (g->n_prompts > 0)
        f.engine_id = g->prompts[0].engine_id;
    /* The account comes with the end of the engine's work: nobody knows it of a request that was left before. */
    if (f.first_us > 0 && g->trace.accounted)
        f.queued_until_us = g->trace.submitted_us + trace_queue_us(&g->trace.account);
    if (f.queued_until_us > f.first_us)
        f.queued_until_us = f.first_us;
    f.error = e ? e->code : NULL;
    if (status == 499)
        f.finish = "abort";
    else if (e)
        f.finish = "error";
    else
        f.finish = g->prompts[0].choices[0].finish == CHOICE_STOP ? "stop" : "length";
    return f;
}

static void count(struct generation *g, const struct facts *f)
{
    struct metrics *m = &g->front->metrics;
    histogram_observe(&m->e2e, (double)(g->trace.now_us - g->trace.arrived_us) * 1e-6);
    histogram_observe(&m->n, g->params.spec.n);
    histogram_observe(&m->most_tokens, (double)f->n_most);
    for (size_t i = 0; i < g->n_prompts; i++)
        histogram_observe(&m->max_tokens, g->prompts[i].max_tokens);
}

/* ---- the log -------------------------------------------------------------------------------- */

static void write_log(const struct generation *g, const struct facts *f)
{
    const struct trace *t = &g->trace;
    struct quire_log_field fields[16];
    size_t n = 0;
#define TEXT(key_, value) \
    fields[n++] = (struct quire_log_field) \
    { \
        .key = key_, .text = value \
    }
#define NUMBER(key_, value) \
    fields[n++] = (struct quire_log_field) \
    { \
        .key = key_, .number = (double)(value) \
    }
    TEXT("request_id", generation_name(g));
    if (g->context.trace_id[0])
        TEXT("trace_id", g->context.trace_id);
    TEXT("tenant", g->tenant->name);
    TEXT("route", g->route);
    NUMBER("status", f->status);
    TEXT("finish", f->finish);
    if (f->error)
        TEXT("error", f->error);
    NUMBER("prompt_tokens", f->n_prompt);
    NUMBER("cached_tokens", f->n_cached);
    NUMBER("generated_tokens", f->n_generated);
    if (t->submitted_us > 0)
        NUMBER("text_ms", (double)(t->submitted_us - t->arrived_us) / 1000);
    if (f->queued_until_us > 0)
        NUMBER("queue_ms", (double)since(f->queued_until_us, t->submitted_us) / 1000);
    if (f->first_us > 0)
        NUMBER("ttft_ms", (double)(f->first_us - t->arrived_us) / 1000);
    NUMBER("total_ms", (double)(t->now_us - t->arrived_us) / 1000);
    if (f->engine_id > 0)
        NUMBER("engine_request", f->engine_id);
#undef TEXT
#undef NUMBER
    quire_log_fields(QUIRE_LOG_INFO, "server", fields, n, "request");
}

/* ---- spans ---------------------------------------------------------------------------------- */

struct spans {
    struct buffer o;
    uint64_t epoch_ns; /* of the zero of struct trace's clock */
    bool first;        /* no attribute yet */
    uint32_t n;
};

static void put_time(struct spans *s, const char *key, uint64_t us)
{
    json_out_raw(&s->o, key);
    json_out_u64(&s->o, s->epoch_ns + us * 1000);
    json_out_raw(&s->o, "\"");
}

static void begin_span(struct spans *s, const struct generation *g, const char *id, const char *parent,
                       const char *name, int kind, uint64_t from_us, uint64_t to_us)
{
    json_out_raw(&s->o, s->n++ > 0 ? ",{\"traceId\":\"" : "{\"traceId\":\"");
    json_out_raw(&s->o, g->context.trace_id);
    json_out_raw(&s->o, "\",\"spanId\":\"");
    json_out_raw(&s->o, id);
    json_out_raw(&s->o, "\"");
    if (parent[0]) {
        json_out_raw(&s->o, ",\"parentSpanId\":\"");
        json_out_raw(&s->o, parent);
        json_out_raw(&s->o, "\"");
    }
    if (g->context.state[0]) {
        json_out_raw(&s->o, ",\"traceState\":");
        json_out_text(&s->o, g->context.state);
    }
    json_out_raw(&s->o, ",\"name\":");
    json_out_text(&s->o, name);
    json_out_raw(&s->o, ",\"kind\":");
    json_out_i64(&s->o, kind);
    put_time(s, ",\"startTimeUnixNano\":\"", from_us);
    put_time(s, ",\"endTimeUnixNano\":\"", to_us);
    json_out_raw(&s->o, ",\"attributes\":[");
    s->first = true;
}

static void put_key(struct spans *s, const char *key, const char *type)
{
    json_out_raw(&s->o, s->first ? "{\"key\":\"" : ",{\"key\":\"");
    json_out_raw(&s->o, key);
    json_out_raw(&s->o, "\",\"value\":{\"");
    json_out_raw(&s->o, type);
    json_out_raw(&s->o, "\":");
    s->first = false;
}

static void put_text(struct spans *s, const char *key, const char *value)
{
    put_key(s, key, "stringValue");
    json_out_text(&s->o, value);
    json_out_raw(&s->o, "}}");
}

/* 64-bit integers are strings in OTLP's JSON. */
static void put_int(struct spans *s, const char *key, uint64_t value)
{
    put_key(s, key, "intValue");
    json_out_raw(&s->o, "\"");
    json_out_u64(&s->o, value);
    json_out_raw(&s->o, "\"}}");
}

static void put_number(struct spans *s, const char *key, const char *format, double value)
{
    char text[40];
    snprintf(text, sizeof text, format, value);
    put_key(s, key, "doubleValue");
    json_out_raw(&s->o, text);
    json_out_raw(&s->o, "}}");
}

static void put_seconds(struct spans *s, const char *key, uint64_t us)
{
    put_number(s, key, "%.6f", (double)us * 1e-6);
}

/* The attributes that vLLM's span llm_request has, and HTTP's. */
static void put_attributes(struct spans *s, const struct generation *g, const struct facts *f)
{
    const struct trace *t = &g->trace;
    put_text(s, "gen_ai.request.id", generation_name(g));
    put_text(s, "gen_ai.response.model", g->front->model_names[0]);
    put_text(s, "gen_ai.response.finish_reason", f->finish);
    put_text(s, "http.route", g->route);
    put_int(s, "http.response.status_code", (uint64_t)f->status);
    put_text(s, "quire.tenant", g->tenant->name);
    if (f->engine_id > 0)
        put_int(s, "quire.engine_request", f->engine_id);
    if (g->n_prompts > 0) {
        put_int(s, "gen_ai.request.n", g->params.spec.n);
        put_int(s, "gen_ai.request.max_tokens", g->prompts[0].max_tokens);
        put_number(s, "gen_ai.request.temperature", "%.7g", g->params.spec.temperature);
        put_number(s, "gen_ai.request.top_p", "%.7g", g->params.spec.top_p);
        put_int(s, "gen_ai.usage.num_sequences", f->n_choices);
        put_int(s, "gen_ai.usage.prompt_tokens", f->n_prompt);
        put_int(s, "gen_ai.usage.completion_tokens", f->n_generated);
        put_int(s, "quire.cached_tokens", f->n_cached);
    }
    put_seconds(s, "gen_ai.latency.e2e", t->now_us - t->arrived_us);
    if (f->first_us == 0)
        return;
    put_seconds(s, "gen_ai.latency.time_to_first_token", f->first_us - t->arrived_us);
    put_seconds(s, "gen_ai.latency.time_in_model_decode", since(f->last_us, f->first_us));
    if (f->queued_until_us == 0)
        return;
    put_seconds(s, "gen_ai.latency.time_in_queue", since(f->queued_until_us, t->submitted_us));
    put_seconds(s, "gen_ai.latency.time_in_model_prefill", f->first_us - f->queued_until_us);
    put_seconds(s, "gen_ai.latency.time_in_model_inference", since(f->last_us, f->queued_until_us));
}

#define KIND_INTERNAL 1
#define KIND_SERVER 2

static void put_part(struct spans *s, const struct generation *g, const char *parent, const char *name,
                     uint64_t from_us, uint64_t to_us)
{
    char id[17];
    trace_random_id(id, 8);
    begin_span(s, g, id, parent, name, KIND_INTERNAL, from_us, to_us > from_us ? to_us : from_us);
    json_out_raw(&s->o, "]}");
}

static void send_spans(const struct generation *g, const struct facts *f)
{
    const struct trace *t = &g->trace;
    struct spans s = {0};
    char id[17];
    s.epoch_ns = quire_wall_ns() - quire_now_ns();
    trace_random_id(id, 8);
    begin_span(&s, g, id, g->context.parent_id, "llm_request", KIND_SERVER, t->arrived_us, t->now_us);
    put_attributes(&s, g, f);
    json_out_raw(&s.o, f->status >= 500 ? "],\"status\":{\"code\":2}}" : "]}");
    if (t->submitted_us > 0)
        put_part(&s, g, id, "text", t->arrived_us, t->submitted_us);
    if (f->queued_until_us > 0) {
        put_part(&s, g, id, "queue", t->submitted_us, f->queued_until_us);
        put_part(&s, g, id, "prefill", f->queued_until_us, f->first_us);
    }
    if (f->first_us > 0)
        put_part(&s, g, id, "decode", f->first_us, f->last_us);
    if (!s.o.failed)
        otlp_add(g->front->otlp, s.o.data, s.o.n, s.n);
    buffer_free(&s.o);
}

/* ---- all of it ------------------------------------------------------------------------------ */

void generation_over(struct generation *g, int status, const struct api_error *e)
{
    g->trace.now_us = quire_now_us();
    const struct facts f = facts_of(g, status, e);
    if (!e && status == 200)
        count(g, &f);
    bool traces = g->front->otlp != NULL;
    if (traces && !g->context.trace_id[0]) {
        trace_random_id(g->context.trace_id, 16);
        g->context.sampled = true;
    }
    if (g->front->log_requests)
        write_log(g, &f);
    if (traces && g->context.sampled)
        send_spans(g, &f);
}
