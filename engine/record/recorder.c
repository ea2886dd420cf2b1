#include "engine/record/recorder.h"
#include "engine/plan.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/id_map.h"
#include "base/log.h"
#include "engine/record/digest.h"
#include "engine/record/format.h"
#include "engine/record/recording.h"
#include "engine/record/sections.h"
#include "engine/record/writer.h"
#include "scheduler/decision_log.h"

#include <stdlib.h>

/* A request from its submission to its last event. */
struct recorded_request {
    uint64_t id; /* the scheduler's id */
    uint32_t n, n_open;
    struct recorded_choice {
        enum engine_finish finish;
        struct record_digest digest;
    } choices[];
};

struct recorder {
    struct engine_watch watch;
    struct recorder_about about;
    struct record_writer *out;
    bool has_header;
    struct buffer fields;     /* fields of one request */
    struct key256 domain_key; /* random, never written */
    struct decision_log decisions;
    uint64_t n_plans, n_requests;
    struct id_map live; /* id passed to engine_submit() → struct recorded_request * */
};

/* ---- fields ----------------------------------------------------------------------------------- */

/* Encodes into r->fields. */
static void make_fields(struct recorder *r, const struct request_layout *layout, const void *values)
{
    buffer_clear(&r->fields);
    if (request_layout_put(&r->fields, layout, values, REQUEST_FOR_RECORDING, NULL) != QUIRE_OK)
        record_stop(r->out, "out of memory");
}

static void put_sections(struct recorder *r, const struct request_layout *layout, const void *values)
{
    make_fields(r, layout, values);
    record_put_bytes(r->out, r->fields.data, r->fields.n);
}

/* ---- the engine's description ----------------------------------------------------------------- */

/* Their weights alone if they have nothing else, as older programs can read. */
static void put_tenants(struct record_writer *w, const struct sched_policy_options *o)
{
    uint32_t n = o->tenants ? o->n_tenants : 0;
    bool plain = true;
    for (uint32_t i = 0; i < n; i++)
        plain &= o->tenants[i].group == 0 && o->tenants[i].max_seats == 0 && o->tenants[i].max_kv_blocks == 0;
    record_put_u32(w, plain ? n : n * RECORD_TENANT_WORDS);
    for (uint32_t i = 0; i < n; i++) {
        record_put_u32(w, o->tenants[i].weight);
        if (plain)
            continue;
        record_put_u32(w, o->tenants[i].group);
        record_put_u32(w, o->tenants[i].group_weight);
        record_put_u32(w, o->tenants[i].max_seats);
        record_put_u32(w, o->tenants[i].max_kv_blocks);
    }
}

static void put_policy_options(struct record_writer *w, const struct sched_policy_options *o)
{
    record_put_u64(w, o->ageing_us);
    record_put_u32(w, o->n_tenants);
    put_tenants(w, o);
    record_put_u32s(w, o->class_weights, SCHED_MAX_CLASSES);
    for (uint32_t i = 0; i < SCHED_MAX_CLASSES; i++)
        record_put_u64(w, o->class_ttft_us[i]);
    record_put_u32(w, o->prompt_price);
    record_put_u32(w, o->output_price);
    record_put_u32(w, o->prefill_share);
}

static void put_kv(struct record_writer *w, const struct kv_config *kv)
{
    record_put_u32(w, kv->block_tokens);
    record_put_u32(w, kv->n_groups);
    record_put_u8(w, kv->prefix_caching);
    record_put_u8(w, (uint8_t)kv->eviction);
    record_put_u32(w, kv->n_tenants);
    for (uint32_t g = 0; g < kv->n_groups; g++) {
        record_put_u32(w, kv->groups[g].n_blocks);
        record_put_u32(w, kv->groups[g].n_host_blocks);
        record_put_u32(w, kv->groups[g].window);
    }
}

static void put_cost(struct record_writer *w, const struct sched_cost *cost)
{
    static const struct sched_cost none;
    cost = cost ? cost : &none;
    record_put_u32(w, cost->n_points);
    for (uint32_t i = 0; i < cost->n_points; i++) {
        record_put_u32(w, cost->points[i].n_tokens);
        record_put_f64(w, cost->points[i].us);
    }
    record_put_f64(w, cost->row_us);
    record_put_f64(w, cost->logit_us);
    record_put_f64(w, cost->context_us);
    record_put_f64(w, cost->pair_us);
    record_put_f64(w, cost->block_copy_us);
}

/* The fixed part of a header: every member but the secret, in the order that struct sched_config had when the fixed
 * part was closed. A later member is a row in sections.c. */
static void put_config(struct record_writer *w, const struct sched_config *c)
{
    put_kv(w, &c->kv);
    record_put_u32(w, c->max_num_seqs);
    record_put_u32(w, c->max_num_batched_tokens);
    record_put_u32(w, c->max_model_len);
    record_put_u32(w, c->max_queued_requests);
    record_put_u64(w, c->max_queued_tokens);
    record_put_u32(w, c->max_logit_rows);
    record_put_u32(w, c->overlap_depth);
    record_put_text(w, c->policy->name);
    put_policy_options(w, &c->policy_options);
    record_put_u32(w, c->long_prefill_token_threshold);
    record_put_u32(w, c->max_partial_prefills);
    record_put_u64(w, c->step_target_us);
    record_put_u8(w, c->adaptive_budget);
    record_put_u8(w, (uint8_t)c->batching);
    record_put_u32(w, c->max_batch_size);
    record_put_u64(w, c->max_wait_us);
    record_put_u8(w, (uint8_t)c->preemption);
    record_put_u32(w, c->max_pinned_percent);
    put_cost(w, c->cost);
}

static void on_opened(void *context, const struct engine_info *info, const struct sched_config *config)
{
    struct recorder *r = context;
    record_begin(r->out, RECORDING_HEADER);
    record_put_u32(r->out, RECORD_VERSION);
    record_put_u32(r->out, info->identity.numerics);
    record_put_bytes(r->out, info->identity.digest.bytes, sizeof info->identity.digest.bytes);
    record_put_u64(r->out, quire_wall_ns() / 1000);
    record_put_text(r->out, r->about.model);
    record_put_bytes(r->out, r->about.config_sha256.bytes, sizeof r->about.config_sha256.bytes);
    record_put_text(r->out, engine_plan_device(info->plan));
    record_put_u8(r->out, (uint8_t)(info->plan->gemm_form | (info->gemm_library ? RECORD_NOT_INVARIANT : 0)));
    const struct quantization_made *made = info->desc->facts->quantization.made;
    record_put_u8(r->out, made ? (uint8_t)(made->code | RECORD_MADE) : (uint8_t)info->plan->weight_format.kind);
    record_put_u8(r->out, (uint8_t)info->plan->kv_format.kind);
    record_put_u32(r->out, info->desc->config->vocab_size);
    put_config(r->out, config);
    put_sections(r, &record_header_sections, config);
    record_end(r->out);
    record_write_out(r->out);
    /* Reserve space for the longest commit, so that no step allocates memory. */
    record_reserve(r->out, RECORD_WRITE_AT_BYTES + 1024 + 16 * (size_t)config->max_num_seqs);
    r->has_header = true;
}

/* ---- inputs ------------------------------------------------------------------------------------ */

/* Writes the request's fields and the scheduler's other inputs, but nothing derived from the chain's secret:
 * `domain` says which requests share prefixes. */
static void put_request(struct recorder *r, const struct engine_watch_submit *s)
{
    const struct sched_request *q = s->sched;
    struct key256 domain = quire_keyed_hash(&r->domain_key, &q->chain_first, sizeof q->chain_first);
    struct request_spec spec = *s->spec;
    spec.prompt = q->prompt;
    spec.n_prompt = q->n_prompt;
    spec.has_seed = true;
    record_put_u64(r->out, s->request);
    record_put_u64(r->out, q->id);
    record_put_u64(r->out, q->arrival_us);
    record_put_u64(r->out, q->deadline_us);
    record_put_u8(r->out, (uint8_t)((q->prompt_logprobs ? RECORD_PROMPT_LOGPROBS : 0) |
                                    (q->no_prefix_hits ? RECORD_NO_PREFIX_HITS : 0) |
                                    (q->host_gated ? RECORD_HOST_GATED : 0) | (q->vector ? RECORD_VECTOR : 0)));
    record_put_u32(r->out, q->adapter);
    record_put_bytes(r->out, domain.bytes, RECORDING_DOMAIN_BYTES);
    make_fields(r, &request_spec_layout, &spec);
    record_put_u32(r->out, (uint32_t)r->fields.n);
    record_put_bytes(r->out, r->fields.data, r->fields.n);
}

static void begin_digests(struct recorder *r, const struct engine_watch_submit *s)
{
    uint32_t n = s->sched->n;
    struct recorded_request *live = malloc(sizeof *live + n * sizeof live->choices[0]);
    if (!live || id_map_add(&r->live, s->request, (uintptr_t)live)) {
        free(live);
        record_stop(r->out, "out of memory");
        return;
    }
    *live = (struct recorded_request){.id = s->sched->id, .n = n, .n_open = n};
    for (uint32_t i = 0; i < n; i++)
        record_digest_begin(&live->choices[i].digest);
}

static void on_submitted(void *context, const struct engine_watch_submit *s)
{
    struct recorder *r = context;
    if (record_has_ended(r->out))
        return;
    record_begin(r->out, RECORDING_SUBMIT);
    put_request(r, s);
    record_put_u8(r->out, (uint8_t)s->status);
    record_put_u64(r->out, s->retry_us);
    if (s->status == QUIRE_OK)
        record_put_u32s(r->out, s->seqs, s->sched->n);
    put_sections(r, &record_submit_sections, &(struct recording_submit){.sched = *s->sched, .spec = s->spec});
    record_end(r->out);
    begin_digests(r, s);
    r->n_requests++;
    record_write_if_much(r->out);
}

static void on_cancelled(void *context, uint64_t now_us, uint64_t id)
{
    struct recorder *r = context;
    record_begin(r->out, RECORDING_CANCEL);
    record_put_u64(r->out, now_us);
    record_put_u64(r->out, id);
    record_end(r->out);
}

static void on_cancelled_choice(void *context, uint64_t now_us, uint32_t seq)
{
    struct recorder *r = context;
    record_begin(r->out, RECORDING_CANCEL_CHOICE);
    record_put_u64(r->out, now_us);
    record_put_u32(r->out, seq);
    record_end(r->out);
}

static void on_no_more(void *context, uint64_t now_us)
{
    struct recorder *r = context;
    record_begin(r->out, RECORDING_NO_MORE);
    record_put_u64(r->out, now_us);
    record_end(r->out);
}

static void on_policy(void *context, uint64_t now_us, const struct sched_policy *policy,
                      const struct sched_policy_options *options)
{
    struct recorder *r = context;
    record_begin(r->out, RECORDING_POLICY);
    record_put_u64(r->out, now_us);
    record_put_text(r->out, policy->name);
    put_policy_options(r->out, options);
    record_end(r->out);
}

static void on_unpinned(void *context, uint64_t now_us, uint32_t tenant)
{
    struct recorder *r = context;
    record_begin(r->out, RECORDING_UNPIN);
    record_put_u64(r->out, now_us);
    record_put_u32(r->out, tenant);
    record_end(r->out);
}

static void on_served(void *context, uint64_t now_us, const uint32_t *served, uint32_t n_served)
{
    struct recorder *r = context;
    record_begin(r->out, RECORDING_SERVED);
    record_put_u64(r->out, now_us);
    record_put_u32(r->out, n_served);
    record_put_u32s(r->out, served, 3 * n_served);
    record_end(r->out);
    record_write_if_much(r->out);
}

static void on_cost(void *context, uint64_t now_us, const struct sched_cost *cost)
{
    struct recorder *r = context;
    record_begin(r->out, RECORDING_COST);
    record_put_u64(r->out, now_us);
    put_cost(r->out, cost);
    record_end(r->out);
    record_write_if_much(r->out);
}

/* ---- decisions and outputs --------------------------------------------------------------------- */

static uint32_t n_drafts_of(const struct sched_plan *plan)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n_rows; i++)
        n += plan->rows[i].n_draft;
    return n;
}

static void on_proposed(void *context, uint32_t seq, const uint32_t *tokens, uint32_t n)
{
    struct recorder *r = context;
    record_begin(r->out, RECORDING_PROPOSE);
    record_put_u32(r->out, seq);
    record_put_u32(r->out, n);
    record_put_u32s(r->out, tokens, n);
    record_end(r->out);
}

static void on_lengths_chosen(void *context, const struct length_reason *reason)
{
    struct recorder *r = context;
    record_begin(r->out, RECORDING_LENGTHS);
    record_put_u32(r->out, reason->n_rows);
    record_put_u32(r->out, reason->n_items);
    record_put_u32(r->out, reason->n_offered);
    record_put_u32(r->out, reason->n_chosen);
    record_put_f64(r->out, reason->n_right);
    record_put_f64(r->out, reason->us_without);
    record_put_f64(r->out, reason->us_with);
    record_end(r->out);
}

static void on_gated(void *context, uint32_t seq, bool gated)
{
    struct recorder *r = context;
    record_begin(r->out, RECORDING_GATE);
    record_put_u32(r->out, seq);
    record_put_u8(r->out, gated);
    record_end(r->out);
}

static void on_planned(void *context, uint64_t now_us, const struct sched_plan *plan, const struct sched *sched)
{
    struct recorder *r = context;
    (void)sched;
    if (record_has_ended(r->out))
        return;
    record_write_out(r->out); /* the previous step, and everything since */
    decision_log_add(&r->decisions, now_us, plan);
    r->n_plans++;
    struct key256 decisions = decision_log_now(&r->decisions);
    record_begin(r->out, RECORDING_PLAN);
    record_put_u64(r->out, now_us);
    record_put_u64(r->out, plan->step);
    record_put_u32(r->out, plan->n_rows);
    record_put_u32(r->out, plan->n_tokens);
    record_put_u32(r->out, plan->token_budget);
    record_put_u32(r->out, plan->n_preempted);
    record_put_u32(r->out, plan->n_admitted);
    record_put_u32(r->out, plan->n_refused);
    record_put_u32(r->out, plan->n_moves);
    record_put_u32(r->out, n_drafts_of(plan));
    record_put_bytes(r->out, decisions.bytes, sizeof decisions.bytes);
    record_end(r->out);
}

static void on_committed(void *context, const struct engine_watch_commit *c)
{
    struct recorder *r = context;
    record_begin(r->out, RECORDING_COMMIT);
    record_put_u64(r->out, c->plan->step);
    record_put_u64(r->out, c->launched_us);
    record_put_u64(r->out, c->done_us);
    record_put_u32(r->out, c->n_results);
    for (uint32_t i = 0; i < c->n_results; i++) {
        const struct sched_result *result = &c->results[i];
        record_put_u32(r->out, result->seq);
        record_put_u32(r->out, result->n_accepted | (result->finished ? RECORD_FINISHED : 0));
        record_put_u32s(r->out, result->tokens, result->n_accepted + 1);
    }
    record_end(r->out);
    record_write_if_much(r->out);
}

static void on_retired(void *context, uint32_t seq)
{
    struct recorder *r = context;
    record_begin(r->out, RECORDING_RETIRED);
    record_put_u32(r->out, seq);
    record_end(r->out);
}

static void put_finish(struct recorder *r, const struct recorded_request *live)
{
    record_begin(r->out, RECORDING_FINISH);
    record_put_u64(r->out, live->id);
    record_put_u32(r->out, live->n);
    for (uint32_t i = 0; i < live->n; i++) {
        const struct recorded_choice *c = &live->choices[i];
        struct key256 digest = record_digest_now(&c->digest);
        record_put_u8(r->out, (uint8_t)c->finish);
        record_put_u32(r->out, c->digest.n_tokens);
        record_put_u32(r->out, c->digest.n_prompt_logprobs);
        record_put_bytes(r->out, digest.bytes, sizeof digest.bytes);
    }
    record_end(r->out);
}

static void on_event(struct recorder *r, const struct engine_event *e)
{
    struct recorded_request *live = (struct recorded_request *)id_map_find(&r->live, e->request);
    if (!live || e->choice >= live->n)
        return;
    record_digest_add(&live->choices[e->choice].digest, e);
    if (e->kind != ENGINE_EVENT_DONE)
        return;
    live->choices[e->choice].finish = e->finish;
    if (--live->n_open > 0)
        return;
    put_finish(r, live);
    id_map_remove(&r->live, e->request);
    free(live);
}

static void on_events(void *context, const struct engine_event *events, size_t n)
{
    struct recorder *r = context;
    if (record_has_ended(r->out))
        return;
    for (size_t i = 0; i < n; i++)
        on_event(r, &events[i]);
    record_write_out(r->out);
}

/* ---- the file -------------------------------------------------------------------------------- */

static const struct engine_watch functions = {
    .opened = on_opened,
    .submitted = on_submitted,
    .cancelled = on_cancelled,
    .cancelled_choice = on_cancelled_choice,
    .no_more = on_no_more,
    .lengths_chosen = on_lengths_chosen,
    .proposed = on_proposed,
    .gated = on_gated,
    .planned = on_planned,
    .committed = on_committed,
    .retired = on_retired,
    .policy_changed = on_policy,
    .unpinned = on_unpinned,
    .served = on_served,
    .cost_changed = on_cost,
    .events = on_events,
};

int recorder_open(const char *path, const struct recorder_about *about, struct recorder **out, struct quire_error *err)
{
    struct recorder *r = calloc(1, sizeof *r);
    *out = NULL;
    if (!r)
        return quire_fail(err, QUIRE_NO_MEMORY, "recording: out of memory");
    r->watch = functions;
    r->watch.context = r;
    r->about.config_sha256 = about->config_sha256;
    r->about.model = strdup(about->model);
    int status = r->about.model ? record_writer_open(path, &r->out, err)
                                : quire_fail(err, QUIRE_NO_MEMORY, "recording: out of memory");
    if (status != QUIRE_OK) {
        recorder_discard(r);
        return status;
    }
    quire_random(&r->domain_key, sizeof r->domain_key);
    decision_log_begin(&r->decisions);
    *out = r;
    return QUIRE_OK;
}

const struct engine_watch *recorder_watch(struct recorder *r)
{
    return &r->watch;
}

static void write_end(struct recorder *r)
{
    char hex[65];
    struct key256 decisions = decision_log_now(&r->decisions);
    record_begin(r->out, RECORDING_CLOSE);
    record_put_u64(r->out, r->n_plans);
    record_put_bytes(r->out, decisions.bytes, sizeof decisions.bytes);
    record_end(r->out);
    record_write_out(r->out);
    quire_key256_hex(&decisions, hex);
    if (!record_has_ended(r->out))
        quire_log(QUIRE_LOG_INFO, "record", "%s: %llu requests, %llu plans, decision log SHA-256 %s",
                  record_writer_path(r->out), (unsigned long long)r->n_requests, (unsigned long long)r->n_plans, hex);
}

/* Without a header, the engine never opened, and the file is empty. */
static void recorder_free(struct recorder *r)
{
    record_writer_close(r->out, r->has_header);
    size_t at = 0;
    for (uintptr_t live; (live = id_map_next(&r->live, &at)) != 0;)
        free((void *)live);
    id_map_free(&r->live);
    buffer_free(&r->fields);
    free((char *)r->about.model);
    free(r);
}

void recorder_close(struct recorder *r)
{
    if (!r)
        return;
    if (!record_has_ended(r->out) && r->has_header)
        write_end(r);
    recorder_free(r);
}

void recorder_discard(struct recorder *r)
{
    if (!r)
        return;
    r->has_header = false;
    recorder_free(r);
}
