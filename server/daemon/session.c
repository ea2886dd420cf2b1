/* Handles the frames of a client: the handshake, then requests. */
#include "engine/engine.h"
#include "engine/info.h"
#include "engine/stats.h"
#include "server/daemon/connection.h"
#include "server/daemon/internal.h"
#include "server/wire/decode.h"
#include "server/wire/encode.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_AFTER_MS 1000

void session_greet(struct connection *c)
{
    struct wire_hello hello = {.version = WIRE_VERSION};
    if (c->key) {
        quire_random(c->nonce, sizeof c->nonce);
        hello.nonce = c->nonce;
        hello.n_nonce = sizeof c->nonce;
    }
    wire_put_hello(connection_out_begin(c), &hello);
    connection_out_end(c);
}

/* ---- HELLO ---- */

static int check_key(const struct connection *c, const struct wire_hello *theirs, struct quire_error *err)
{
    if (!c->key)
        return QUIRE_OK;
    if (theirs->n_key_proof == 0 || theirs->n_nonce == 0)
        return quire_fail(err, QUIRE_INVALID, "HELLO: key_proof: this engine asks for its shared key");
    struct key256 proof = wire_key_proof(c->key, WIRE_KEY_FRONT, c->nonce, theirs->nonce);
    if (!quire_secret_equal(proof.bytes, theirs->key_proof, sizeof proof.bytes))
        return quire_fail(err, QUIRE_INVALID, "HELLO: key_proof: the key is a different one");
    return QUIRE_OK;
}

static int check_identity(const char *field, const char *what, const struct key256 *ours, const struct key256 *theirs,
                          struct quire_error *err)
{
    char a[65], b[65];
    if (memcmp(ours, theirs, sizeof *ours) == 0)
        return QUIRE_OK;
    quire_key256_hex(ours, a);
    quire_key256_hex(theirs, b);
    return quire_fail(err, QUIRE_INVALID,
                      "HELLO: %s: %s differ: the engine's have SHA-256 %.16s..., the client's "
                      "%.16s...",
                      field, what, a, b);
}

/* A client of an older release sends no such digest. */
static int check_generation(const struct key256 *ours, const struct key256 *theirs, struct quire_error *err)
{
    static const struct key256 none;
    if (memcmp(ours, &none, sizeof none) == 0 || memcmp(theirs, &none, sizeof none) == 0)
        return QUIRE_OK;
    return check_identity("identity_generation", "generation_config.json", ours, theirs, err);
}

static int check_hello(const struct connection *c, const struct wire_hello *theirs, struct quire_error *err)
{
    const struct daemon_options *o = &c->d->options;
    if (theirs->version != WIRE_VERSION)
        return quire_fail(err, QUIRE_UNSUPPORTED, "HELLO: version: the engine speaks %u, the client %u", WIRE_VERSION,
                          theirs->version);
    int status = check_key(c, theirs, err);
    if (!status)
        status = check_identity("identity_text", "tokenizer or chat template", &o->identity_text,
                                &theirs->identity_text, err);
    if (!status)
        status = check_identity("identity_config", "config.json", &o->identity_config, &theirs->identity_config, err);
    if (!status)
        status = check_generation(&o->identity_generation, &theirs->identity_generation, err);
    if (!status && theirs->initial_credit < WIRE_MIN_CREDIT)
        status = quire_fail(err, QUIRE_INVALID, "HELLO: initial_credit: must be at least %u, got %" PRIu64,
                            WIRE_MIN_CREDIT, theirs->initial_credit);
    return status;
}

static void put_welcome(struct connection *c, const struct wire_hello *theirs)
{
    struct daemon *d = c->d;
    const struct engine_info *info = engine_info(d->engine);
    struct key256 proof = {{0}};
    char description[512];
    uint8_t eos[4 * WIRE_MAX_EOS];
    snprintf(description, sizeof description, "%s", info->device_why);
    struct wire_hello hello = {
        .version = WIRE_VERSION,
        .identity_text = d->options.identity_text,
        .identity_config = d->options.identity_config,
        .identity_generation = d->options.identity_generation,
        .model = d->model,
        .n_model = strlen(d->model),
        .vocab_size = info->vocab_size,
        .max_model_len = info->max_model_len,
        .max_num_seqs = info->max_num_seqs,
        .block_tokens = info->block_tokens,
        .max_num_batched_tokens = info->max_num_batched_tokens,
        .max_queued_requests = info->max_queued_requests,
        .vector_size = info->vector_size,
        .vector_is_scores = info->vector_is_scores,
        .takes_predict = true,
        .takes_hit_report = true,
        .n_eos = info->n_eos < WIRE_MAX_EOS ? info->n_eos : WIRE_MAX_EOS,
        .eos = eos,
        .description = description,
        .n_description = strlen(description),
        .identity_arithmetic = info->identity.digest,
        .arithmetic = info->identity.text,
        .n_arithmetic = strlen(info->identity.text),
    };
    for (uint32_t i = 0; i < hello.n_eos; i++) {
        for (uint32_t byte = 0; byte < 4; byte++)
            eos[4 * i + byte] = (uint8_t)(info->eos[i] >> 8 * byte);
    }
    if (c->key) {
        proof = wire_key_proof(c->key, WIRE_KEY_ENGINE, c->nonce, theirs->nonce);
        hello.key_proof = proof.bytes;
        hello.n_key_proof = sizeof proof.bytes;
    }
    wire_put_hello(connection_out_begin(c), &hello);
    connection_out_end(c);
}

static int on_hello(struct connection *c, const uint8_t *body, size_t n, struct quire_error *err)
{
    struct wire_hello theirs;
    int status = wire_get_hello(body, n, &theirs, err);
    if (!status)
        status = check_hello(c, &theirs, err);
    if (status)
        return status;
    put_welcome(c, &theirs);
    event_del(c->deadline);
    c->credit = theirs.initial_credit;
    c->state = CONNECTION_READY;
    struct buffer *b = c->d->draining ? queue_begin(c) : NULL;
    if (b) {
        wire_put_drain(b);
        queue_end(c);
    }
    return QUIRE_OK;
}

/* ---- SUBMIT ---- */

static struct wire_refuse refuse_of(int status, uint32_t retry_after_ms, const struct quire_error *why)
{
    return (struct wire_refuse){
        .status = (uint32_t)status,
        .retry_after_ms = retry_after_ms,
        .message = why->text,
        .n_message = strlen(why->text),
        .parameter = why->parameter,
        .n_parameter = why->parameter ? strlen(why->parameter) : 0,
    };
}

static void put_refuse(struct connection *c, uint64_t wire_id, int status, uint32_t retry_after_ms,
                       const struct quire_error *why)
{
    const struct wire_refuse refuse = refuse_of(status, retry_after_ms, why);
    struct buffer *b = queue_begin(c);
    if (b) {
        wire_put_refuse(b, wire_id, &refuse);
        queue_end(c);
    }
}

/* Takes over spec. The engine may report the first tokens, or even the last ones, before engine_submit() returns.
 * Therefore the sink or the loop, whichever runs first, queues ACCEPT. */
static void submit_now(struct connection *c, uint64_t wire_id, uint64_t engine_id, struct request_spec *spec)
{
    struct daemon *d = c->d;
    struct quire_error err = {.text = ""};
    uint32_t retry_after_ms = 0;
    int status = engine_submit(d->engine, engine_id, spec, &retry_after_ms, &err);
    pthread_mutex_lock(&d->mutex);
    struct live_request *request = request_by_engine_id(&d->requests, engine_id);
    if (request && status) {
        request_remove(&d->requests, &c->requests, request);
    } else if (request && !request->accepted && !c->overflowed) {
        request->accepted = true;
        wire_put_accept(&c->pending, wire_id, engine_id);
        queue_changed(c);
    }
    pthread_mutex_unlock(&d->mutex);
    if (status)
        put_refuse(c, wire_id, status, retry_after_ms, &err);
}

static int take_submit(struct connection *c, uint64_t wire_id, int status, struct request_spec *spec,
                       struct quire_error *err)
{
    struct daemon *d = c->d;
    pthread_mutex_lock(&d->mutex);
    bool twice = request_by_wire_id(&d->requests, &c->requests, wire_id) != NULL;
    bool full = c->requests.n >= d->options.max_requests;
    struct live_request *request = NULL;
    if (!twice && !full && !status)
        request = request_add(&d->requests, &c->requests, c, wire_id);
    uint64_t engine_id = request ? request->engine_id : 0;
    pthread_mutex_unlock(&d->mutex);

    if (twice)
        return quire_fail(err, QUIRE_INVALID, "SUBMIT: request id: %" PRIu64 " is live already", wire_id);
    uint32_t retry_after_ms = status ? 0 : RETRY_AFTER_MS;
    if (!status && full)
        status = quire_fail(err, QUIRE_EXHAUSTED, "too many live requests on one connection");
    else if (!status && !request)
        status = quire_fail(err, QUIRE_NO_MEMORY, "SUBMIT: out of memory");
    if (status)
        put_refuse(c, wire_id, status, retry_after_ms, err);
    else
        submit_now(c, wire_id, engine_id, spec);
    return QUIRE_OK;
}

static int on_submit(struct connection *c, uint64_t wire_id, const uint8_t *body, size_t n, struct quire_error *err)
{
    struct request_spec spec;
    if (c->client_drained)
        return quire_fail(err, QUIRE_INVALID, "SUBMIT: after DRAIN");
    int status = wire_get_submit(body, n, &spec, err);
    if (status == QUIRE_INVALID)
        return status;
    status = take_submit(c, wire_id, status, &spec, err);
    request_spec_free(&spec);
    return status;
}

/* ---- other frames ---- */

/* Returns the engine's id of the request, or 0 if the request finished while the frame was on its way; then there is
 * nothing to do. */
static uint64_t engine_id_of(struct connection *c, uint64_t wire_id)
{
    struct daemon *d = c->d;
    pthread_mutex_lock(&d->mutex);
    struct live_request *request = request_by_wire_id(&d->requests, &c->requests, wire_id);
    uint64_t engine_id = request ? request->engine_id : 0;
    pthread_mutex_unlock(&d->mutex);
    return engine_id;
}

static int on_predict(struct connection *c, uint64_t wire_id, const uint8_t *body, size_t n, struct quire_error *err)
{
    struct wire_predict predict;
    struct quire_error why;
    int status = wire_get_predict(body, n, &predict, err);
    const uint64_t engine_id = status ? 0 : engine_id_of(c, wire_id);
    uint32_t *tokens = engine_id ? malloc((predict.n_tokens + 1) * sizeof *tokens) : NULL;
    if (!tokens) /* without memory, the request runs without a prediction */
        return status;
    for (uint32_t i = 0; i < predict.n_tokens; i++)
        tokens[i] = wire_u32(predict.tokens, i);
    status = engine_predict(c->d->engine, engine_id, tokens, predict.n_tokens, &why);
    return status ? quire_fail(err, (enum quire_status)status, "PREDICT: tokens: %s", why.text) : QUIRE_OK;
}

static int on_hit_report(struct connection *c, const uint8_t *body, size_t n, struct quire_error *err)
{
    _Static_assert(WIRE_MAX_SERVED <= ENGINE_MAX_SERVED, "the engine takes a whole report");
    struct wire_hit_report report;
    uint32_t served[3 * WIRE_MAX_SERVED];
    int status = wire_get_hit_report(body, n, &report, err);
    if (status)
        return status;
    for (uint32_t i = 0; i < 3 * report.n_served; i++)
        served[i] = wire_u32(report.served, i);
    engine_report_hits(c->d->engine, served, report.n_served);
    return QUIRE_OK;
}

static int on_cancel(struct connection *c, uint64_t wire_id, const uint8_t *body, size_t n, struct quire_error *err)
{
    int64_t choice;
    int status = wire_get_cancel(body, n, &choice, err);
    const uint64_t engine_id = status ? 0 : engine_id_of(c, wire_id);
    if (engine_id && choice < 0)
        engine_cancel(c->d->engine, engine_id);
    else if (engine_id)
        engine_cancel_choice(c->d->engine, engine_id, (uint32_t)choice);
    return status;
}

static int on_credit(struct connection *c, const uint8_t *body, size_t n, struct quire_error *err)
{
    uint64_t n_bytes;
    int status = wire_get_credit(body, n, &n_bytes, err);
    if (!status)
        c->credit = n_bytes > UINT64_MAX - c->credit ? UINT64_MAX : c->credit + n_bytes;
    return status;
}

/* The reply is a CONTROL once the command is carried out, or a REFUSE without a request; replies keep their order. */
static int on_control(struct connection *c, const uint8_t *body, size_t n, struct quire_error *err)
{
    const char *command;
    size_t n_command;
    uint64_t order = 0;
    char done[WIRE_MAX_TEXT + 1];
    struct buffer frame = {0};
    int status = wire_get_control(body, n, &command, &n_command, err);
    if (status)
        return status;
    status = control_run(c->d, command, n_command, &order, err);
    if (status) {
        const struct wire_refuse refuse = refuse_of(status, 0, err);
        wire_put_refuse(&frame, 0, &refuse);
    } else {
        snprintf(done, sizeof done, "%.*s", (int)n_command, command);
        wire_put_control(&frame, done);
    }
    return control_answer(c, order, &frame, err);
}

/* accepted: space for every position of a draft. */
static void drafts_add(const struct engine_info *info, const struct engine_stats *s, struct wire_stats *out,
                       uint32_t *accepted)
{
    uint32_t n = info->num_speculative_tokens < ENGINE_MAX_DRAFT ? info->num_speculative_tokens : ENGINE_MAX_DRAFT;
    for (uint32_t i = 0; i < n; i++)
        wire_accepted_put(accepted + (size_t)WIRE_ACCEPTED_WORDS * i, s->accepted_at[i]);
    out->accepted_at = accepted;
    out->n_accepted_at = n;
    out->draft_us = (uint64_t)(s->draft_seconds * 1e6);
    out->draft_method = info->draft_method;
    out->n_draft_method = info->draft_method ? strlen(info->draft_method) : 0;
}

/* words: space for every pair of ranks; experts: for every expert. */
static void lists_add(struct daemon *d, struct wire_stats *out, uint32_t *words, uint32_t *experts)
{
    struct engine_stats s;
    engine_stats(d->engine, &s);
    for (uint32_t i = 0; i < s.n_experts; i++)
        wire_expert_put(experts + (size_t)WIRE_EXPERT_WORDS * i, s.expert_tokens[i]);
    out->expert_tokens = experts;
    out->n_expert_tokens = s.n_experts;
    for (uint32_t r = 0; r < s.n_ranks; r++)
        for (uint32_t p = 0; p < s.n_ranks; p++)
            wire_rank_wait_put(words + (size_t)WIRE_RANK_WAIT_WORDS * (r * s.n_ranks + p), s.rank_waited_us[r][p]);
    out->rank_waits = words;
    out->n_rank_waits = s.n_ranks * s.n_ranks;
}

/* words, accepted: space for every bucket and every position of a draft. */
static void stats_make(struct daemon *d, struct wire_stats *out, uint32_t *words, uint32_t *accepted)
{
    struct engine_stats s;
    engine_stats(d->engine, &s);
    const struct engine_info *info = engine_info(d->engine);
    for (uint32_t i = 0; i < ENGINE_N_STEP_BUCKETS; i++) {
        const struct wire_step_bucket bucket = {engine_step_bounds[i], s.step_buckets[i]};
        wire_step_bucket_put(words + (size_t)WIRE_STEP_BUCKET_WORDS * i, &bucket);
    }
    *out = (struct wire_stats){
        .n_blocks = info->n_blocks,
        .n_block_tokens = info->block_tokens,
        .policy = s.policy,
        .n_policy = s.policy ? strlen(s.policy) : 0,
        .figure_name = s.policy_figure_name,
        .n_figure_name = s.policy_figure_name ? strlen(s.policy_figure_name) : 0,
        .figure = s.policy_figure,
        .step_buckets = words,
        .n_step_buckets = ENGINE_N_STEP_BUCKETS,
        .cache_dtype = info->cache_dtype,
        .n_cache_dtype = strlen(info->cache_dtype),
        .prefix_caching = info->prefix_caching,
        .n_host_blocks = info->n_host_blocks,
    };
#define COPY(member, type, tag, from, ...) STATS_WHEN(STATS_IS_ENGINE_##from)(out->member = s.member;)
    STATS_ROWS(COPY)
#undef COPY
    out->draining |= d->draining;
    drafts_add(info, &s, out, accepted);
}

/* Fills in at most n tenants that the engine has; words has space for them. */
static uint32_t tenants_make(struct daemon *d, uint32_t n, uint32_t *words)
{
    uint32_t i = 0;
    struct engine_tenant_stats s;
    for (; i < n && engine_tenant_stats(d->engine, i, &s) == QUIRE_OK; i++) {
        struct wire_tenant tenant;
#define COPY(member, ...) tenant.member = s.member;
        STATS_TENANT_ROWS(COPY)
#undef COPY
        wire_tenant_put(words + (size_t)WIRE_TENANT_WORDS * i, &tenant);
    }
    return i;
}

/* words: space for every bucket. */
static void shadow_add(struct daemon *d, struct wire_stats *out, uint32_t *words)
{
    struct shadow_stats s;
    shadow_stats(d->shadow, &s);
    out->shadow_policy = s.policy;
    out->n_shadow_policy = s.policy ? strlen(s.policy) : 0;
    out->n_shadow = s.n;
    out->n_shadow_refused = s.n_refused;
    out->live_ttft_us = s.live.ttft_us;
    out->live_queue_us = s.live.queue_us;
    out->shadow_ttft_us = s.shadow.ttft_us;
    out->shadow_queue_us = s.shadow.queue_us;
    for (uint32_t i = 0; i < SHADOW_N_BUCKETS; i++) {
        const struct wire_shadow_bucket bucket = {shadow_bounds_us[i], s.live.buckets[i], s.shadow.buckets[i]};
        wire_shadow_bucket_put(words + (size_t)WIRE_SHADOW_BUCKET_WORDS * i, &bucket);
    }
    out->shadow_buckets = words;
    out->n_shadow_buckets = SHADOW_N_BUCKETS;
}

static int on_stats(struct connection *c, const uint8_t *body, size_t n, struct quire_error *err)
{
    _Static_assert(SHADOW_N_BUCKETS <= WIRE_MAX_SHADOW_BUCKETS, "STATS tells every bucket");
    _Static_assert(ENGINE_MAX_DRAFT <= WIRE_MAX_ACCEPTED, "and every place of a draft");
    _Static_assert(ENGINE_MAX_RANKS * ENGINE_MAX_RANKS <= WIRE_MAX_RANK_WAITS, "and every two ranks");
    _Static_assert(ENGINE_MAX_EXPERTS <= WIRE_MAX_EXPERTS, "and every expert");
    uint32_t n_tenants, words[WIRE_MAX_TENANTS * WIRE_TENANT_WORDS];
    uint32_t buckets[SHADOW_N_BUCKETS * WIRE_SHADOW_BUCKET_WORDS];
    uint32_t waits[ENGINE_MAX_RANKS * ENGINE_MAX_RANKS * WIRE_RANK_WAIT_WORDS];
    uint32_t experts[ENGINE_MAX_EXPERTS * WIRE_EXPERT_WORDS];
    uint32_t steps[ENGINE_N_STEP_BUCKETS * WIRE_STEP_BUCKET_WORDS], accepted[ENGINE_MAX_DRAFT * WIRE_ACCEPTED_WORDS];
    struct wire_stats stats;
    int status = wire_get_stats_request(body, n, &n_tenants, err);
    if (status)
        return status;
    stats_make(c->d, &stats, steps, accepted);
    lists_add(c->d, &stats, waits, experts);
    stats.tenants = words;
    stats.n_tenants = tenants_make(c->d, n_tenants, words);
    if (c->d->shadow)
        shadow_add(c->d, &stats, buckets);
    struct buffer *b = queue_begin(c);
    if (b) {
        wire_put_stats(b, &stats);
        queue_end(c);
    }
    return QUIRE_OK;
}

static int on_drain(struct connection *c, const uint8_t *body, size_t n, struct quire_error *err)
{
    int status = wire_get_drain(body, n, err);
    if (!status)
        c->client_drained = true;
    return status;
}

static int on_ready_frame(struct connection *c, const struct wire_header *header, const uint8_t *body,
                          struct quire_error *err)
{
    size_t n = header->body_bytes;
    switch ((enum wire_type)header->type) {
    case WIRE_SUBMIT: return on_submit(c, header->request, body, n, err);
    case WIRE_PREDICT: return on_predict(c, header->request, body, n, err);
    case WIRE_HIT_REPORT: return on_hit_report(c, body, n, err);
    case WIRE_CANCEL: return on_cancel(c, header->request, body, n, err);
    case WIRE_CREDIT: return on_credit(c, body, n, err);
    case WIRE_CONTROL: return on_control(c, body, n, err);
    case WIRE_STATS: return on_stats(c, body, n, err);
    case WIRE_DRAIN: return on_drain(c, body, n, err);
    case WIRE_HELLO:
    case WIRE_ACCEPT:
    case WIRE_REFUSE:
    case WIRE_TOKENS:
    case WIRE_PROMPT_LOGPROBS:
    case WIRE_DONE:
    case WIRE_VECTOR:
    case WIRE_ERROR: break;
    }
    return quire_fail(err, QUIRE_INVALID, "%s: a client does not send it here", wire_type_name(header->type));
}

void session_frame(struct connection *c, const struct wire_header *header, const uint8_t *body)
{
    struct quire_error err = {.text = ""};
    int status;
    if (c->state == CONNECTION_READY)
        status = on_ready_frame(c, header, body, &err);
    else if (header->type == WIRE_HELLO)
        status = on_hello(c, body, header->body_bytes, &err);
    else
        status = quire_fail(&err, QUIRE_INVALID, "%s: before HELLO", wire_type_name(header->type));
    if (status)
        connection_fail(c, (enum quire_status)status, err.text);
}
