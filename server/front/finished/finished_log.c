#include "server/front/finished/finished.h"

#include "base/log.h"
#include "server/front/tenant/tenants.h"

void finished_request_log(const struct finished_request *f)
{
    const struct timing *t = f->timing;
    struct quire_log_field fields[23];
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
    TEXT("request_id", f->name);
    if (f->context->trace_id[0])
        TEXT("trace_id", f->context->trace_id);
    if (f->client && f->client[0])
        TEXT("client", f->client);
    TEXT("tenant", f->tenant->name);
    TEXT("route", f->route);
    NUMBER("status", f->status);
    TEXT("finish", f->finish);
    if (f->error)
        TEXT("error", f->error);
    if (f->cache_layer)
        TEXT("cache", f->cache_layer[0] ? f->cache_layer : "miss");
    NUMBER("prompt_tokens", f->n_prompt);
    NUMBER("cached_tokens", f->n_cached);
    NUMBER("generated_tokens", f->n_generated);
    if (f->answers.n_reasoning > 0)
        NUMBER("reasoning_tokens", f->answers.n_reasoning);
    if (f->answers.n_calls > 0)
        NUMBER("tool_calls", f->answers.n_calls);
    if (f->answers.n_malformed > 0)
        NUMBER("malformed_calls", f->answers.n_malformed);
    if (f->n_drafted > 0) {
        NUMBER("draft_tokens", f->n_drafted);
        NUMBER("accepted_tokens", f->n_accepted);
    }
    if (t->submitted_us > 0)
        NUMBER("text_ms", (double)(t->submitted_us - t->arrived_us) / 1000);
    if (f->queued_until_us > 0)
        NUMBER("queue_ms", (double)facts_since(f->queued_until_us, timing_looked_us(t)) / 1000);
    if (f->first_us > 0)
        NUMBER("ttft_ms", (double)(f->first_us - t->arrived_us) / 1000);
    NUMBER("total_ms", (double)(t->now_us - t->arrived_us) / 1000);
    if (f->engine_id > 0)
        NUMBER("engine_request", f->engine_id);
#undef TEXT
#undef NUMBER
    quire_log_fields(QUIRE_LOG_INFO, "server", fields, n, "request");
}
