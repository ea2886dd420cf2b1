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
#include "scheduler/decision_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define WRITE_AT_BYTES 65536u

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
    char *path;
    int fd;
    bool has_header;
    bool ended; /* a write failed, or memory ran out: the recording has ended */

    /* The sum of the last record in the file, then records that are not in the file yet. */
    uint8_t *bytes;
    size_t n, capacity;
    size_t n_in_file; /* the first n_in_file of bytes[0..n) are in the file */
    size_t record;    /* offset of the record under construction */

    struct buffer fields;     /* fields of one request */
    struct key256 domain_key; /* random, never written */
    struct decision_log decisions;
    uint64_t n_plans, n_requests;
    struct id_map live; /* id passed to engine_submit() → struct recorded_request * */
};

/* ---- bytes ----------------------------------------------------------------------------------- */

static void end_recording(struct recorder *r, const char *why)
{
    if (!r->ended)
        quire_log(QUIRE_LOG_ERROR, "record", "%s: %s; the recording ends here, the engine goes on", r->path, why);
    r->ended = true;
}

/* Returns space for n more bytes, or NULL if the recording has ended. */
static uint8_t *extend(struct recorder *r, size_t n)
{
    if (r->ended)
        return NULL;
    if (r->capacity - r->n < n) {
        size_t capacity = 2 * (r->n + n);
        uint8_t *bytes = realloc(r->bytes, capacity);
        if (!bytes) {
            end_recording(r, "out of memory");
            return NULL;
        }
        r->bytes = bytes;
        r->capacity = capacity;
    }
    r->n += n;
    return r->bytes + r->n - n;
}

static void put_bytes(struct recorder *r, const void *data, size_t n)
{
    uint8_t *out = extend(r, n);
    if (out && n)
        memcpy(out, data, n);
}

static void put_u8(struct recorder *r, uint8_t value)
{
    put_bytes(r, &value, 1);
}

static void put_u32(struct recorder *r, uint32_t value)
{
    uint8_t *out = extend(r, 4);
    if (out)
        le_store_u32(out, value);
}

static void put_u64(struct recorder *r, uint64_t value)
{
    uint8_t *out = extend(r, 8);
    if (out)
        le_store_u64(out, value);
}

static void put_f64(struct recorder *r, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_u64(r, bits);
}

static void put_text(struct recorder *r, const char *text)
{
    size_t n = strlen(text);
    put_u32(r, (uint32_t)n);
    put_bytes(r, text, n);
}

static void put_u32s(struct recorder *r, const uint32_t *values, uint32_t n)
{
    uint8_t *out = extend(r, 4 * (size_t)n);
    for (uint32_t i = 0; out && i < n; i++)
        le_store_u32(out + 4 * (size_t)i, values[i]);
}

/* Encodes into r->fields. */
static void make_fields(struct recorder *r, const struct request_layout *layout, const void *values)
{
    buffer_clear(&r->fields);
    if (request_layout_put(&r->fields, layout, values, REQUEST_FOR_RECORDING, NULL) != QUIRE_OK)
        end_recording(r, "out of memory");
}

static void put_sections(struct recorder *r, const struct request_layout *layout, const void *values)
{
    make_fields(r, layout, values);
    put_bytes(r, r->fields.data, r->fields.n);
}

static void begin_record(struct recorder *r, enum recording_kind kind)
{
    r->record = r->n;
    put_u32(r, 0);
    put_u32(r, kind);
    put_u32(r, 0);
}

static void end_record(struct recorder *r)
{
    if (!extend(r, RECORD_SUM_BYTES))
        return;
    uint8_t *from = r->bytes + r->record - RECORD_SUM_BYTES, *head = r->bytes + r->record;
    size_t n = r->n - r->record - RECORD_SUM_BYTES;
    le_store_u32(head, (uint32_t)(n - RECORD_HEAD_BYTES));
    record_sum(from, RECORD_SUM_BYTES + 8, head + 8, 4);
    record_sum(from, RECORD_SUM_BYTES + n, head + n, RECORD_SUM_BYTES);
}

/* Writes all collected bytes into the file. */
static void write_out(struct recorder *r)
{
    while (!r->ended && r->n_in_file < r->n) {
        ssize_t n = write(r->fd, r->bytes + r->n_in_file, r->n - r->n_in_file);
        if (n > 0)
            r->n_in_file += (size_t)n;
        else if (n < 0 && errno != EINTR)
            end_recording(r, strerror(errno));
    }
    if (r->ended)
        return;
    memmove(r->bytes, r->bytes + r->n - RECORD_SUM_BYTES, RECORD_SUM_BYTES);
    r->n = r->n_in_file = RECORD_SUM_BYTES;
}

static void write_if_much(struct recorder *r)
{
    if (r->n >= WRITE_AT_BYTES)
        write_out(r);
}

/* ---- the engine's description ----------------------------------------------------------------- */

/* Their weights alone if they have nothing else, as older programs can read. */
static void put_tenants(struct recorder *r, const struct sched_policy_options *o)
{
    uint32_t n = o->tenants ? o->n_tenants : 0;
    bool plain = true;
    for (uint32_t i = 0; i < n; i++)
        plain &= o->tenants[i].group == 0 && o->tenants[i].max_seats == 0 && o->tenants[i].max_kv_blocks == 0;
    put_u32(r, plain ? n : n * RECORD_TENANT_WORDS);
    for (uint32_t i = 0; i < n; i++) {
        put_u32(r, o->tenants[i].weight);
        if (plain)
            continue;
        put_u32(r, o->tenants[i].group);
        put_u32(r, o->tenants[i].group_weight);
        put_u32(r, o->tenants[i].max_seats);
        put_u32(r, o->tenants[i].max_kv_blocks);
    }
}

static void put_policy_options(struct recorder *r, const struct sched_policy_options *o)
{
    put_u64(r, o->ageing_us);
    put_u32(r, o->n_tenants);
    put_tenants(r, o);
    put_u32s(r, o->class_weights, SCHED_MAX_CLASSES);
    for (uint32_t i = 0; i < SCHED_MAX_CLASSES; i++)
        put_u64(r, o->class_ttft_us[i]);
    put_u32(r, o->prompt_price);
    put_u32(r, o->output_price);
    put_u32(r, o->prefill_share);
}

static void put_kv(struct recorder *r, const struct kv_config *kv)
{
    put_u32(r, kv->block_tokens);
    put_u32(r, kv->n_groups);
    put_u8(r, kv->prefix_caching);
    put_u8(r, (uint8_t)kv->eviction);
    put_u32(r, kv->n_tenants);
    for (uint32_t g = 0; g < kv->n_groups; g++) {
        put_u32(r, kv->groups[g].n_blocks);
        put_u32(r, kv->groups[g].n_host_blocks);
        put_u32(r, kv->groups[g].window);
    }
}

static void put_cost(struct recorder *r, const struct sched_cost *cost)
{
    static const struct sched_cost none;
    cost = cost ? cost : &none;
    put_u32(r, cost->n_points);
    for (uint32_t i = 0; i < cost->n_points; i++) {
        put_u32(r, cost->points[i].n_tokens);
        put_f64(r, cost->points[i].us);
    }
    put_f64(r, cost->row_us);
    put_f64(r, cost->logit_us);
    put_f64(r, cost->context_us);
    put_f64(r, cost->pair_us);
    put_f64(r, cost->block_copy_us);
}

/* The fixed part of a header: every member but the secret, in the order that struct sched_config had when the fixed
 * part was closed. A later member is a row in sections.c. */
static void put_config(struct recorder *r, const struct sched_config *c)
{
    put_kv(r, &c->kv);
    put_u32(r, c->max_num_seqs);
    put_u32(r, c->max_num_batched_tokens);
    put_u32(r, c->max_model_len);
    put_u32(r, c->max_queued_requests);
    put_u64(r, c->max_queued_tokens);
    put_u32(r, c->max_logit_rows);
    put_u32(r, c->overlap_depth);
    put_text(r, c->policy->name);
    put_policy_options(r, &c->policy_options);
    put_u32(r, c->long_prefill_token_threshold);
    put_u32(r, c->max_partial_prefills);
    put_u64(r, c->step_target_us);
    put_u8(r, c->adaptive_budget);
    put_u8(r, (uint8_t)c->batching);
    put_u32(r, c->max_batch_size);
    put_u64(r, c->max_wait_us);
    put_u8(r, (uint8_t)c->preemption);
    put_u32(r, c->max_pinned_percent);
    put_cost(r, c->cost);
}

static void on_opened(void *context, const struct engine_info *info, const struct sched_config *config)
{
    struct recorder *r = context;
    begin_record(r, RECORDING_HEADER);
    put_u32(r, RECORD_VERSION);
    put_u32(r, info->identity.numerics);
    put_bytes(r, info->identity.digest.bytes, sizeof info->identity.digest.bytes);
    put_u64(r, quire_wall_ns() / 1000);
    put_text(r, r->about.model);
    put_bytes(r, r->about.config_sha256.bytes, sizeof r->about.config_sha256.bytes);
    put_text(r, engine_plan_device(info->plan));
    put_u8(r, (uint8_t)(info->plan->gemm_form | (info->gemm_library ? RECORD_NOT_INVARIANT : 0)));
    const struct quantization_made *made = info->desc->facts->quantization.made;
    put_u8(r, made ? (uint8_t)(made->code | RECORD_MADE) : (uint8_t)info->plan->weight_format.kind);
    put_u8(r, (uint8_t)info->plan->kv_format.kind);
    put_u32(r, info->desc->config->vocab_size);
    put_config(r, config);
    put_sections(r, &record_header_sections, config);
    end_record(r);
    write_out(r);
    /* Reserve space for the longest commit, so that no step allocates memory. */
    size_t before = r->n;
    extend(r, WRITE_AT_BYTES + 1024 + 16 * (size_t)config->max_num_seqs);
    r->n = before;
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
    put_u64(r, s->request);
    put_u64(r, q->id);
    put_u64(r, q->arrival_us);
    put_u64(r, q->deadline_us);
    put_u8(r, (uint8_t)((q->prompt_logprobs ? RECORD_PROMPT_LOGPROBS : 0) |
                        (q->no_prefix_hits ? RECORD_NO_PREFIX_HITS : 0) | (q->host_gated ? RECORD_HOST_GATED : 0) |
                        (q->vector ? RECORD_VECTOR : 0)));
    put_u32(r, q->adapter);
    put_bytes(r, domain.bytes, RECORDING_DOMAIN_BYTES);
    make_fields(r, &request_spec_layout, &spec);
    put_u32(r, (uint32_t)r->fields.n);
    put_bytes(r, r->fields.data, r->fields.n);
}

static void begin_digests(struct recorder *r, const struct engine_watch_submit *s)
{
    uint32_t n = s->sched->n;
    struct recorded_request *live = malloc(sizeof *live + n * sizeof live->choices[0]);
    if (!live || id_map_add(&r->live, s->request, (uintptr_t)live)) {
        free(live);
        end_recording(r, "out of memory");
        return;
    }
    *live = (struct recorded_request){.id = s->sched->id, .n = n, .n_open = n};
    for (uint32_t i = 0; i < n; i++)
        record_digest_begin(&live->choices[i].digest);
}

static void on_submitted(void *context, const struct engine_watch_submit *s)
{
    struct recorder *r = context;
    if (r->ended)
        return;
    begin_record(r, RECORDING_SUBMIT);
    put_request(r, s);
    put_u8(r, (uint8_t)s->status);
    put_u64(r, s->retry_us);
    if (s->status == QUIRE_OK)
        put_u32s(r, s->seqs, s->sched->n);
    put_sections(r, &record_submit_sections, &(struct recording_submit){.sched = *s->sched, .spec = s->spec});
    end_record(r);
    begin_digests(r, s);
    r->n_requests++;
    write_if_much(r);
}

static void on_cancelled(void *context, uint64_t now_us, uint64_t id)
{
    struct recorder *r = context;
    begin_record(r, RECORDING_CANCEL);
    put_u64(r, now_us);
    put_u64(r, id);
    end_record(r);
}

static void on_cancelled_choice(void *context, uint64_t now_us, uint32_t seq)
{
    struct recorder *r = context;
    begin_record(r, RECORDING_CANCEL_CHOICE);
    put_u64(r, now_us);
    put_u32(r, seq);
    end_record(r);
}

static void on_no_more(void *context, uint64_t now_us)
{
    struct recorder *r = context;
    begin_record(r, RECORDING_NO_MORE);
    put_u64(r, now_us);
    end_record(r);
}

static void on_policy(void *context, uint64_t now_us, const struct sched_policy *policy,
                      const struct sched_policy_options *options)
{
    struct recorder *r = context;
    begin_record(r, RECORDING_POLICY);
    put_u64(r, now_us);
    put_text(r, policy->name);
    put_policy_options(r, options);
    end_record(r);
}

static void on_unpinned(void *context, uint64_t now_us, uint32_t tenant)
{
    struct recorder *r = context;
    begin_record(r, RECORDING_UNPIN);
    put_u64(r, now_us);
    put_u32(r, tenant);
    end_record(r);
}

static void on_served(void *context, uint64_t now_us, const uint32_t *served, uint32_t n_served)
{
    struct recorder *r = context;
    begin_record(r, RECORDING_SERVED);
    put_u64(r, now_us);
    put_u32(r, n_served);
    put_u32s(r, served, 3 * n_served);
    end_record(r);
    write_if_much(r);
}

static void on_cost(void *context, uint64_t now_us, const struct sched_cost *cost)
{
    struct recorder *r = context;
    begin_record(r, RECORDING_COST);
    put_u64(r, now_us);
    put_cost(r, cost);
    end_record(r);
    write_if_much(r);
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
    begin_record(r, RECORDING_PROPOSE);
    put_u32(r, seq);
    put_u32(r, n);
    put_u32s(r, tokens, n);
    end_record(r);
}

static void on_lengths_chosen(void *context, const struct length_reason *reason)
{
    struct recorder *r = context;
    begin_record(r, RECORDING_LENGTHS);
    put_u32(r, reason->n_rows);
    put_u32(r, reason->n_items);
    put_u32(r, reason->n_offered);
    put_u32(r, reason->n_chosen);
    put_f64(r, reason->n_right);
    put_f64(r, reason->us_without);
    put_f64(r, reason->us_with);
    end_record(r);
}

static void on_gated(void *context, uint32_t seq, bool gated)
{
    struct recorder *r = context;
    begin_record(r, RECORDING_GATE);
    put_u32(r, seq);
    put_u8(r, gated);
    end_record(r);
}

static void on_planned(void *context, uint64_t now_us, const struct sched_plan *plan, const struct sched *sched)
{
    struct recorder *r = context;
    (void)sched;
    if (r->ended)
        return;
    write_out(r); /* the previous step, and everything since */
    decision_log_add(&r->decisions, now_us, plan);
    r->n_plans++;
    struct key256 decisions = decision_log_now(&r->decisions);
    begin_record(r, RECORDING_PLAN);
    put_u64(r, now_us);
    put_u64(r, plan->step);
    put_u32(r, plan->n_rows);
    put_u32(r, plan->n_tokens);
    put_u32(r, plan->token_budget);
    put_u32(r, plan->n_preempted);
    put_u32(r, plan->n_admitted);
    put_u32(r, plan->n_refused);
    put_u32(r, plan->n_moves);
    put_u32(r, n_drafts_of(plan));
    put_bytes(r, decisions.bytes, sizeof decisions.bytes);
    end_record(r);
}

static void on_committed(void *context, const struct engine_watch_commit *c)
{
    struct recorder *r = context;
    begin_record(r, RECORDING_COMMIT);
    put_u64(r, c->plan->step);
    put_u64(r, c->launched_us);
    put_u64(r, c->done_us);
    put_u32(r, c->n_results);
    for (uint32_t i = 0; i < c->n_results; i++) {
        const struct sched_result *result = &c->results[i];
        put_u32(r, result->seq);
        put_u32(r, result->n_accepted | (result->finished ? RECORD_FINISHED : 0));
        put_u32s(r, result->tokens, result->n_accepted + 1);
    }
    end_record(r);
    write_if_much(r);
}

static void on_retired(void *context, uint32_t seq)
{
    struct recorder *r = context;
    begin_record(r, RECORDING_RETIRED);
    put_u32(r, seq);
    end_record(r);
}

static void put_finish(struct recorder *r, const struct recorded_request *live)
{
    begin_record(r, RECORDING_FINISH);
    put_u64(r, live->id);
    put_u32(r, live->n);
    for (uint32_t i = 0; i < live->n; i++) {
        const struct recorded_choice *c = &live->choices[i];
        struct key256 digest = record_digest_now(&c->digest);
        put_u8(r, (uint8_t)c->finish);
        put_u32(r, c->digest.n_tokens);
        put_u32(r, c->digest.n_prompt_logprobs);
        put_bytes(r, digest.bytes, sizeof digest.bytes);
    }
    end_record(r);
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
    if (r->ended)
        return;
    for (size_t i = 0; i < n; i++)
        on_event(r, &events[i]);
    write_out(r);
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

static int make_file(struct recorder *r, struct quire_error *err)
{
    r->fd = open(r->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    if (r->fd >= 0)
        return QUIRE_OK;
    if (errno == EEXIST)
        return quire_fail(err, QUIRE_INVALID, "--record %s: is there already, and a recording is never overwritten",
                          r->path);
    return quire_fail(err, QUIRE_IO, "--record %s: cannot be made: %s", r->path, strerror(errno));
}

int recorder_open(const char *path, const struct recorder_about *about, struct recorder **out, struct quire_error *err)
{
    struct recorder *r = calloc(1, sizeof *r);
    *out = NULL;
    if (!r)
        return quire_fail(err, QUIRE_NO_MEMORY, "recording: out of memory");
    r->fd = -1;
    r->watch = functions;
    r->watch.context = r;
    r->path = strdup(path);
    r->about.config_sha256 = about->config_sha256;
    r->about.model = strdup(about->model);
    r->capacity = 2 * WRITE_AT_BYTES;
    r->bytes = malloc(r->capacity);
    int status = r->path && r->about.model && r->bytes ? make_file(r, err)
                                                       : quire_fail(err, QUIRE_NO_MEMORY, "recording: out of memory");
    if (status != QUIRE_OK) {
        r->ended = true;
        recorder_close(r);
        return status;
    }
    memcpy(r->bytes, RECORD_MAGIC, RECORD_SUM_BYTES);
    r->n = RECORD_SUM_BYTES;
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
    begin_record(r, RECORDING_CLOSE);
    put_u64(r, r->n_plans);
    put_bytes(r, decisions.bytes, sizeof decisions.bytes);
    end_record(r);
    write_out(r);
    quire_key256_hex(&decisions, hex);
    if (!r->ended)
        quire_log(QUIRE_LOG_INFO, "record", "%s: %llu requests, %llu plans, decision log SHA-256 %s", r->path,
                  (unsigned long long)r->n_requests, (unsigned long long)r->n_plans, hex);
}

/* Without a header, the engine never opened, and the file is empty. */
static void recorder_free(struct recorder *r)
{
    if (r->fd >= 0) {
        close(r->fd);
        if (!r->has_header)
            unlink(r->path);
    }
    size_t at = 0;
    for (uintptr_t live; (live = id_map_next(&r->live, &at)) != 0;)
        free((void *)live);
    id_map_free(&r->live);
    buffer_free(&r->fields);
    free(r->bytes);
    free((char *)r->about.model);
    free(r->path);
    free(r);
}

void recorder_close(struct recorder *r)
{
    if (!r)
        return;
    if (!r->ended && r->has_header)
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
