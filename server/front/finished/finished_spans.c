/* Writes spans in the JSON of OTLP. */
#include "server/front/finished/finished.h"

#include "base/clock.h"
#include "server/front/front_internal.h"

#include <stdio.h>
#include <string.h>

struct spans {
    struct buffer o;
    uint64_t epoch_ns; /* wall-clock time at the zero of struct timing's clock */
    bool first;        /* no attribute written yet */
    uint32_t n;
};

static void put_time(struct spans *s, const char *key, uint64_t ns)
{
    json_out_raw(&s->o, key);
    json_out_u64(&s->o, s->epoch_ns + ns);
    json_out_raw(&s->o, "\"");
}

static void begin_span(struct spans *s, const struct finished_request *f, const char *id, const char *parent,
                       const char *name, int kind, uint64_t from_ns, uint64_t to_ns)
{
    json_out_raw(&s->o, s->n++ > 0 ? ",{\"traceId\":\"" : "{\"traceId\":\"");
    json_out_raw(&s->o, f->context->trace_id);
    json_out_raw(&s->o, "\",\"spanId\":\"");
    json_out_raw(&s->o, id);
    json_out_raw(&s->o, "\"");
    if (parent[0]) {
        json_out_raw(&s->o, ",\"parentSpanId\":\"");
        json_out_raw(&s->o, parent);
        json_out_raw(&s->o, "\"");
    }
    if (f->context->state[0]) {
        json_out_raw(&s->o, ",\"traceState\":");
        json_out_text(&s->o, f->context->state);
    }
    json_out_raw(&s->o, ",\"name\":");
    json_out_text(&s->o, name);
    json_out_raw(&s->o, ",\"kind\":");
    json_out_i64(&s->o, kind);
    put_time(s, ",\"startTimeUnixNano\":\"", from_ns);
    put_time(s, ",\"endTimeUnixNano\":\"", to_ns);
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

/* The attributes of vLLM's span llm_request, and HTTP's. */
static void put_attributes(struct spans *s, const struct finished_request *f)
{
    const struct timing *t = f->timing;
    put_text(s, "gen_ai.request.id", f->name);
    put_text(s, "gen_ai.response.model", f->served->config->names[0]);
    put_text(s, "gen_ai.response.finish_reason", f->finish);
    put_text(s, "http.route", f->route);
    put_int(s, "http.response.status_code", (uint64_t)f->status);
    put_text(s, "quire.tenant", f->tenant->name);
    if (f->engine_id > 0)
        put_int(s, "quire.engine_request", f->engine_id);
    if (f->spec) {
        put_int(s, "gen_ai.request.n", f->spec->n);
        put_int(s, "gen_ai.request.max_tokens", f->max_tokens);
        put_number(s, "gen_ai.request.temperature", "%.7g", f->spec->temperature);
        put_number(s, "gen_ai.request.top_p", "%.7g", f->spec->top_p);
        put_int(s, "gen_ai.usage.num_sequences", f->n_choices);
        put_int(s, "gen_ai.usage.prompt_tokens", f->n_prompt);
        put_int(s, "gen_ai.usage.completion_tokens", f->n_generated);
        put_int(s, "quire.cached_tokens", f->n_cached);
        if (f->n_drafted > 0) {
            put_int(s, "quire.draft_tokens", f->n_drafted);
            put_int(s, "quire.accepted_tokens", f->n_accepted);
        }
    }
    put_seconds(s, "gen_ai.latency.e2e", t->now_us - t->arrived_us);
    if (f->first_us == 0)
        return;
    put_seconds(s, "gen_ai.latency.time_to_first_token", f->first_us - t->arrived_us);
    put_seconds(s, "gen_ai.latency.time_in_model_decode", facts_since(f->last_us, f->first_us));
    if (f->queued_until_us == 0)
        return;
    put_seconds(s, "gen_ai.latency.time_in_queue", facts_since(f->queued_until_us, timing_looked_us(t)));
    put_seconds(s, "gen_ai.latency.time_in_model_prefill", f->first_us - f->queued_until_us);
    put_seconds(s, "gen_ai.latency.time_in_model_inference", facts_since(f->last_us, f->queued_until_us));
}

#define KIND_INTERNAL 1
#define KIND_SERVER 2

static void begin_part(struct spans *s, const struct finished_request *f, const char *parent, const char *name,
                       uint64_t from_us, uint64_t to_us)
{
    char id[17];
    trace_random_id(id, 8);
    begin_span(s, f, id, parent, name, KIND_INTERNAL, from_us * 1000, (to_us > from_us ? to_us : from_us) * 1000);
}

static void put_part(struct spans *s, const struct finished_request *f, const char *parent, const char *name,
                     uint64_t from_us, uint64_t to_us)
{
    begin_part(s, f, parent, name, from_us, to_us);
    json_out_raw(&s->o, "]}");
}

/* A request that joined another's lookup waits only from its own arrival. */
static void put_lookup(struct spans *s, const struct finished_request *f, const char *parent,
                       const struct completion_lookup *l)
{
    char id[17];
    const uint64_t arrived_ns = f->timing->arrived_us * 1000;
    trace_random_id(id, 8);
    begin_span(s, f, id, parent, "lookup", KIND_INTERNAL, l->begun_ns > arrived_ns ? l->begun_ns : arrived_ns,
               l->ended_ns);
    put_text(s, "quire.layer", l->layer);
    put_key(s, "quire.hit", "boolValue");
    json_out_raw(&s->o, l->found ? "true}}]}" : "false}}]}");
}

void finished_request_send_spans(const struct finished_request *f)
{
    const struct timing *t = f->timing;
    struct spans s = {0};
    char id[17];
    s.epoch_ns = quire_wall_ns() - quire_now_ns();
    trace_random_id(id, 8);
    begin_span(&s, f, id, f->context->parent_id, "llm_request", KIND_SERVER, t->arrived_us * 1000, t->now_us * 1000);
    put_attributes(&s, f);
    json_out_raw(&s.o, f->status >= 500 ? "],\"status\":{\"code\":2}}" : "]}");
    if (t->submitted_us > 0)
        put_part(&s, f, id, "text", t->arrived_us, t->submitted_us);
    for (uint32_t i = 0; i < t->lookups.n; i++)
        put_lookup(&s, f, id, &t->lookups.items[i]);
    if (f->queued_until_us > 0) {
        begin_part(&s, f, id, "queue", timing_looked_us(t), f->queued_until_us);
        put_int(&s, "quire.cached_tokens", f->n_cached);
        json_out_raw(&s.o, "]}");
        put_part(&s, f, id, "prefill", f->queued_until_us, f->first_us);
    }
    if (f->first_us > 0)
        put_part(&s, f, id, "decode", f->first_us, f->last_us);
    if (!s.o.failed)
        otlp_add(f->served->front->otlp, s.o.data, s.o.n, s.n);
    buffer_free(&s.o);
}
