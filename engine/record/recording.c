#include "engine/record/recording.h"

#include "engine/record/format.h"
#include "request/codec.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_CHOICES 128u      /* as the engine's requests */
#define MAX_SEQS (1u << 24)
#define MAX_TIME_US (1ull << 62) /* so that sums of two times stay times */

/* Memory that grows with what records need, and is used again by the next one. */
struct scratch {
    void *data;
    size_t capacity;
};

struct recording {
    const uint8_t *bytes;
    size_t n;
    bool mapped;
    size_t first;    /* the record after the header */
    size_t next;
    size_t left_out;
    uint64_t last_plan_us;
    bool closed;     /* the CLOSE record was read */
    struct recording_header header;
    uint32_t header_weights[SCHED_MAX_TENANTS], weights[SCHED_MAX_TENANTS];
    struct request_spec spec; /* of the submit record read last, in version 2 */
    struct scratch prompt, seqs, stops, biases, allowed, bad_words, results, tokens, choices;
};

/* ---- a record's body ------------------------------------------------------------------------- */

/* What is left of a body. The first thing that is wrong is kept, and everything after it reads as
 * zeros. */
struct body {
    const uint8_t *at, *end;
    const char *wrong;
};

static void wrong(struct body *b, const char *what)
{
    if (!b->wrong)
        b->wrong = what;
    b->at = b->end;
}

static const uint8_t *get_bytes(struct body *b, size_t n)
{
    if ((size_t)(b->end - b->at) < n) {
        wrong(b, "is shorter than its fields");
        return NULL;
    }
    b->at += n;
    return b->at - n;
}

static uint8_t get_u8(struct body *b)
{
    const uint8_t *in = get_bytes(b, 1);
    return in ? in[0] : 0;
}

static bool get_bool(struct body *b)
{
    uint8_t value = get_u8(b);
    if (value > 1)
        wrong(b, "has a flag that is neither 0 nor 1");
    return value == 1;
}

static uint8_t get_below(struct body *b, uint8_t n, const char *what)
{
    uint8_t value = get_u8(b);
    if (value < n)
        return value;
    wrong(b, what);
    return 0;
}

static uint32_t get_u32(struct body *b)
{
    const uint8_t *in = get_bytes(b, 4);
    return in ? le_load_u32(in) : 0;
}

static uint64_t get_u64(struct body *b)
{
    const uint8_t *in = get_bytes(b, 8);
    return in ? le_load_u64(in) : 0;
}

static uint64_t get_time(struct body *b)
{
    uint64_t value = get_u64(b);
    if (value > MAX_TIME_US)
        wrong(b, "has a time out of range");
    return value;
}

static float get_f32(struct body *b)
{
    uint32_t bits = get_u32(b);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double get_f64(struct body *b)
{
    uint64_t bits = get_u64(b);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Printable, without a NUL, shorter than size. */
static void get_text(struct body *b, char *out, size_t size)
{
    uint32_t n = get_u32(b);
    const uint8_t *in = n < size ? get_bytes(b, n) : NULL;
    if (!in) {
        wrong(b, "has a name that is too long");
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        if (in[i] < 0x20 || in[i] == 0x7f)
            wrong(b, "has a name with control bytes");
    memcpy(out, in, n);
    out[n] = 0;
}

static void get_key(struct body *b, struct key256 *out)
{
    const uint8_t *in = get_bytes(b, sizeof out->bytes);
    if (in)
        memcpy(out->bytes, in, sizeof out->bytes);
}

/* Room for n elements whose bytes in the body are known to be there. */
static void *room(struct body *b, struct scratch *s, size_t n, size_t size)
{
    if (s->capacity < (n + 1) * size) {
        void *data = realloc(s->data, 2 * (n + 1) * size);
        if (!data) {
            wrong(b, "needs more memory than there is");
            return NULL;
        }
        s->data = data;
        s->capacity = 2 * (n + 1) * size;
    }
    return s->data;
}

static const uint32_t *get_u32s(struct body *b, struct scratch *s, uint32_t n)
{
    const uint8_t *in = get_bytes(b, 4 * (size_t)n);
    uint32_t *out = in ? room(b, s, n, sizeof *out) : NULL;
    for (uint32_t i = 0; out && i < n; i++)
        out[i] = le_load_u32(in + 4 * (size_t)i);
    return out;
}

/* ---- the header ------------------------------------------------------------------------------ */

static const struct sched_policy *get_policy(struct body *b)
{
    char name[64] = "";
    get_text(b, name, sizeof name);
    const struct sched_policy *policy = sched_policy_find(name);
    if (!policy)
        wrong(b, "names a scheduling policy that this program does not have");
    return policy;
}

static void get_policy_options(struct body *b, uint32_t weights[SCHED_MAX_TENANTS], struct sched_policy_options *o)
{
    o->ageing_us = get_u64(b);
    o->n_tenants = get_u32(b);
    uint32_t n_weights = get_u32(b);
    if (o->n_tenants > SCHED_MAX_TENANTS || (n_weights != 0 && n_weights != o->n_tenants)) {
        wrong(b, "has more tenants than there may be");
        n_weights = 0;
    }
    for (uint32_t i = 0; i < n_weights; i++)
        weights[i] = get_u32(b);
    o->tenant_weights = n_weights ? weights : NULL;
    for (uint32_t i = 0; i < SCHED_MAX_CLASSES; i++)
        o->class_weights[i] = get_u32(b);
    for (uint32_t i = 0; i < SCHED_MAX_CLASSES; i++)
        o->class_ttft_us[i] = get_u64(b);
    o->prompt_price = get_u32(b);
    o->output_price = get_u32(b);
    o->prefill_share = get_u32(b);
}

static void get_kv(struct body *b, struct kv_config *kv)
{
    kv->block_tokens = get_u32(b);
    kv->n_groups = get_u32(b);
    kv->prefix_caching = get_bool(b);
    kv->eviction = get_below(b, KV_EVICT_REUSE + 1, "has an eviction that does not exist");
    kv->n_tenants = get_u32(b);
    if (kv->block_tokens == 0 || kv->n_groups == 0 || kv->n_groups > KV_MAX_GROUPS ||
        kv->n_tenants > SCHED_MAX_TENANTS) {
        wrong(b, "has KV groups, blocks or tenants that cannot be");
        return;
    }
    for (uint32_t g = 0; g < kv->n_groups; g++) {
        kv->groups[g].n_blocks = get_u32(b);
        kv->groups[g].n_host_blocks = get_u32(b);
        kv->groups[g].window = get_u32(b);
    }
}

static void get_cost(struct body *b, struct sched_cost *cost)
{
    cost->n_points = get_u32(b);
    if (cost->n_points > SCHED_COST_MAX_POINTS) {
        wrong(b, "has a cost model of too many points");
        return;
    }
    for (uint32_t i = 0; i < cost->n_points; i++) {
        cost->points[i].n_tokens = get_u32(b);
        cost->points[i].us = get_f64(b);
    }
    cost->row_us = get_f64(b);
    cost->logit_us = get_f64(b);
    cost->context_us = get_f64(b);
    cost->pair_us = get_f64(b);
    cost->block_copy_us = get_f64(b);
    if (!b->wrong && cost->n_points > 0 && sched_cost_check(cost, NULL) != QUIRE_OK)
        wrong(b, "has a cost model that cannot be");
}

static void get_config(struct recording *r, struct body *b, struct sched_config *c)
{
    get_kv(b, &c->kv);
    c->max_num_seqs = get_u32(b);
    c->max_num_batched_tokens = get_u32(b);
    c->max_model_len = get_u32(b);
    c->max_queued_requests = get_u32(b);
    c->max_queued_tokens = get_u64(b);
    c->max_logit_rows = get_u32(b);
    c->overlap_depth = get_u32(b);
    c->policy = get_policy(b);
    get_policy_options(b, r->header_weights, &c->policy_options);
    c->long_prefill_token_threshold = get_u32(b);
    c->max_partial_prefills = get_u32(b);
    c->step_target_us = get_u64(b);
    c->adaptive_budget = get_bool(b);
    c->batching = get_below(b, SCHED_STATIC + 1, "has a batching that does not exist");
    c->max_batch_size = get_u32(b);
    c->max_wait_us = get_u64(b);
    c->preemption = get_below(b, SCHED_PREEMPT_NEVER + 1, "has a preemption that does not exist");
    c->max_pinned_percent = get_u32(b);
    get_cost(b, &c->cost);
}

static void get_header(struct recording *r, struct body *b)
{
    struct recording_header *h = &r->header;
    h->version = get_u32(b);
    if (h->version != 1 && h->version != RECORD_VERSION)
        wrong(b, "is of a version that this program does not read");
    h->law = 1;
    if (h->version > 1) {
        h->law = get_u32(b);
        get_key(b, &h->identity);
    }
    h->began_unix_us = get_u64(b);
    get_text(b, h->model, sizeof h->model);
    get_key(b, &h->config_sha256);
    get_text(b, h->device, sizeof h->device);
    uint8_t form = get_u8(b);
    h->not_invariant = (form & RECORD_NOT_INVARIANT) != 0;
    h->gemm_form = form & ~RECORD_NOT_INVARIANT;
    if (h->gemm_form >= K_N_FORMS || (h->not_invariant && h->gemm_form != K_FORM_MMA))
        wrong(b, "has a GEMM form that does not exist");
    h->weight_dtype = get_below(b, K_BF16 + 1, "has a dtype that does not exist");
    h->kv_dtype = get_below(b, K_BF16 + 1, "has a dtype that does not exist");
    h->vocab_size = get_u32(b);
    get_config(r, b, &h->config);
}

/* ---- the others ------------------------------------------------------------------------------ */

/* A scheduler's name for a choice. Its own bound lies far below this one, which keeps readers' tables
 * small. */
static uint32_t check_seq(struct body *b, uint32_t seq)
{
    if (seq < MAX_SEQS)
        return seq;
    wrong(b, "names a sequence that cannot be");
    return 0;
}

/* Version 1. */
static void get_sampling_1(struct recording *r, struct body *b, bool restricted, struct request_spec *s)
{
    s->temperature = get_f32(b);
    s->top_p = get_f32(b);
    s->min_p = get_f32(b);
    s->top_k = get_u32(b);
    s->repetition_penalty = get_f32(b);
    s->presence_penalty = get_f32(b);
    s->frequency_penalty = get_f32(b);
    s->has_seed = true;
    s->seed = get_u64(b);
    s->n_logprobs = (int32_t)get_u32(b);
    s->n_prompt_logprobs = (int32_t)get_u32(b);
    s->ignore_eos = true;
    s->min_tokens = get_u32(b);
    s->n_stop_token_ids = get_u32(b);
    s->stop_token_ids = get_u32s(b, &r->stops, s->n_stop_token_ids);
    s->n_biases = get_u32(b);
    const uint8_t *in = get_bytes(b, 8 * (size_t)s->n_biases);
    struct request_bias *biases = in ? room(b, &r->biases, s->n_biases, sizeof *biases) : NULL;
    struct body pairs = {.at = in, .end = in ? in + 8 * (size_t)s->n_biases : NULL};
    for (uint32_t i = 0; biases && i < s->n_biases; i++) {
        biases[i].id = get_u32(&pairs);
        biases[i].bias = get_f32(&pairs);
    }
    s->biases = biases;
    if (!restricted)
        return;
    s->n_allowed_token_ids = get_u32(b);
    s->allowed_token_ids = get_u32s(b, &r->allowed, s->n_allowed_token_ids);
    s->n_bad_words = get_u32(b);
    s->bad_words = get_u32s(b, &r->bad_words, s->n_bad_words);
}

/* Version 1. Returns its flags. */
static uint8_t get_request_1(struct recording *r, struct body *b, struct recording_submit *s)
{
    struct sched_request *q = &s->sched;
    q->id = get_u64(b);
    q->n_prompt = get_u32(b);
    q->prompt = get_u32s(b, &r->prompt, q->n_prompt);
    q->max_tokens = get_u32(b);
    q->n = get_u32(b);
    uint8_t flags = get_u8(b);
    if (flags & ~RECORD_FLAGS_1)
        wrong(b, "has flags that do not exist");
    q->prompt_logprobs = flags & RECORD_PROMPT_LOGPROBS;
    q->no_prefix_hits = flags & RECORD_NO_PREFIX_HITS;
    q->background = flags & RECORD_BACKGROUND;
    q->host_gated = flags & RECORD_HOST_GATED;
    q->priority = (int32_t)get_u32(b);
    q->arrival_us = get_time(b);
    q->deadline_us = get_time(b);
    q->pin_us = get_time(b);
    q->tenant = get_u32(b);
    q->class_index = get_u32(b);
    q->expected_tokens = get_u32(b);
    q->adapter = get_u32(b);
    const uint8_t *domain = get_bytes(b, RECORDING_DOMAIN_BYTES);
    if (domain)
        memcpy(s->domain, domain, RECORDING_DOMAIN_BYTES);
    return flags;
}

static void check_request(const struct recording *r, struct body *b, const struct sched_request *q)
{
    const struct recording_header *h = &r->header;
    uint32_t n_tenants = h->config.policy_options.n_tenants;
    if (q->n_prompt == 0 || q->n == 0 || q->n > MAX_CHOICES)
        wrong(b, "has no prompt, or choices that cannot be");
    if ((uint64_t)q->n_prompt + q->max_tokens > h->config.max_model_len)
        wrong(b, "is longer than the recording's max_model_len");
    if (q->tenant >= (n_tenants ? n_tenants : 1) || q->class_index >= SCHED_MAX_CLASSES)
        wrong(b, "has a tenant or class that does not exist");
    for (uint32_t i = 0; !b->wrong && i < q->n_prompt; i++)
        if (q->prompt[i] >= h->vocab_size)
            wrong(b, "has a token that is not in the vocabulary");
}

/* A request and what its sampler was told, one after the other. */
static void get_submit_1(struct recording *r, struct body *b, struct recording_submit *s)
{
    s->request = get_u64(b);
    uint8_t flags = get_request_1(r, b, s);
    s->spec.prompt = s->sched.prompt;
    s->spec.n_prompt = s->sched.n_prompt;
    s->spec.max_tokens = s->sched.max_tokens;
    s->spec.n = s->sched.n;
    check_request(r, b, &s->sched);
    get_sampling_1(r, b, flags & RECORD_RESTRICTED, &s->spec);
}

/* The request's tagged fields. */
static void get_spec(struct recording *r, struct body *b, struct recording_submit *s)
{
    uint32_t n = get_u32(b);
    const uint8_t *in = get_bytes(b, n);
    request_spec_free(&r->spec);
    int status = in ? request_spec_get("request", in, n, &r->spec, NULL) : QUIRE_OK;
    if (status == QUIRE_UNSUPPORTED)
        wrong(b, "has a field that this program does not know and must");
    else if (status == QUIRE_NO_MEMORY)
        wrong(b, "needs more memory than there is");
    else if (status != QUIRE_OK)
        wrong(b, "has a request that cannot be read");
    s->spec = r->spec;
}

static void get_submit_2(struct recording *r, struct body *b, struct recording_submit *s)
{
    struct sched_request *q = &s->sched;
    const struct request_spec *spec = &s->spec;
    s->request = get_u64(b);
    q->id = get_u64(b);
    q->arrival_us = get_time(b);
    q->deadline_us = get_time(b);
    uint8_t flags = get_u8(b);
    if (flags & ~RECORD_FLAGS_2)
        wrong(b, "has flags that do not exist");
    q->prompt_logprobs = flags & RECORD_PROMPT_LOGPROBS;
    q->no_prefix_hits = flags & RECORD_NO_PREFIX_HITS;
    q->host_gated = flags & RECORD_HOST_GATED;
    q->vector = flags & RECORD_VECTOR;
    q->adapter = get_u32(b);
    const uint8_t *domain = get_bytes(b, RECORDING_DOMAIN_BYTES);
    if (domain)
        memcpy(s->domain, domain, RECORDING_DOMAIN_BYTES);
    get_spec(r, b, s);
    q->prompt = spec->prompt;
    q->n_prompt = spec->n_prompt;
    q->max_tokens = spec->max_tokens;
    q->n = spec->n;
    q->background = spec->background;
    q->priority = spec->priority;
    q->pin_us = spec->pin_us;
    q->tenant = spec->tenant;
    q->class_index = spec->class_index;
    q->expected_tokens = spec->expected_tokens;
    if (q->pin_us > MAX_TIME_US)
        wrong(b, "has a time out of range");
    check_request(r, b, q);
}

static void get_submit(struct recording *r, struct body *b, struct recording_submit *s)
{
    if (r->header.version == 1)
        get_submit_1(r, b, s);
    else
        get_submit_2(r, b, s);
    s->status = get_below(b, QUIRE_INTERNAL + 1, "has a status that does not exist");
    s->retry_us = get_u64(b);
    if (s->status == QUIRE_OK)
        s->seqs = get_u32s(b, &r->seqs, s->sched.n);
    for (uint32_t i = 0; s->seqs && i < s->sched.n; i++)
        check_seq(b, s->seqs[i]);
}

static void get_plan(struct recording *r, struct body *b, struct recording_plan *p)
{
    p->step = get_u64(b);
    p->n_rows = get_u32(b);
    p->n_tokens = get_u32(b);
    p->token_budget = get_u32(b);
    p->n_preempted = get_u32(b);
    p->n_admitted = get_u32(b);
    p->n_refused = get_u32(b);
    p->n_moves = get_u32(b);
    p->n_drafts = r->header.version > 1 ? get_u32(b) : 0;
    get_key(b, &p->decisions);
    if (p->n_rows > r->header.config.max_num_seqs || (p->n_rows > 0) != (p->step > 0))
        wrong(b, "is a plan that cannot be");
}

/* Tokens first, so that results may point to them: they are as many as the body has room for. */
static void get_commit(struct recording *r, struct body *b, struct recording_commit *c)
{
    c->step = get_u64(b);
    c->launched_us = get_time(b);
    c->done_us = get_time(b);
    c->n_results = get_u32(b);
    size_t n_words = (size_t)(b->end - b->at) / 4;
    if (c->n_results > n_words / 2) {
        wrong(b, "is shorter than its fields");
        return;
    }
    struct sched_result *results = room(b, &r->results, c->n_results, sizeof *results);
    uint32_t *tokens = room(b, &r->tokens, n_words, sizeof *tokens);
    for (uint32_t i = 0; results && tokens && i < c->n_results && !b->wrong; i++) {
        uint32_t seq = check_seq(b, get_u32(b)), count = get_u32(b);
        size_t n = (count & ~RECORD_FINISHED) + (r->header.version > 1 ? 1u : 0u);
        const uint8_t *in = get_bytes(b, 4 * n);
        if (n == 0 || !in) {
            wrong(b, "has a result without its tokens");
            return;
        }
        results[i] = (struct sched_result){
            .seq = seq, .n_accepted = (uint32_t)n - 1, .tokens = tokens, .finished = count & RECORD_FINISHED};
        for (size_t k = 0; k < n; k++)
            *tokens++ = le_load_u32(in + 4 * (size_t)k);
    }
    c->results = results;
}

static void get_propose(struct recording *r, struct body *b, struct recording_propose *p)
{
    p->seq = check_seq(b, get_u32(b));
    p->n = get_u32(b);
    p->tokens = get_u32s(b, &r->tokens, p->n);
}

static void get_finish(struct recording *r, struct body *b, struct recording_finish *f)
{
    f->id = get_u64(b);
    f->n = get_u32(b);
    if (f->n == 0 || f->n > MAX_CHOICES) {
        wrong(b, "has choices that cannot be");
        return;
    }
    struct recording_choice *choices = room(b, &r->choices, f->n, sizeof *choices);
    for (uint32_t i = 0; choices && i < f->n; i++) {
        choices[i].finish = get_below(b, ENGINE_FINISH_REFUSED + 1, "ended in an unknown way");
        choices[i].n_tokens = get_u32(b);
        choices[i].n_prompt_logprobs = get_u32(b);
        get_key(b, &choices[i].digest);
    }
    f->choices = choices;
}

static void get_entry(struct recording *r, struct body *b, struct recording_entry *e)
{
    switch (e->kind) {
    case RECORDING_SUBMIT: get_submit(r, b, &e->submit); return;
    case RECORDING_COMMIT: get_commit(r, b, &e->commit); return;
    case RECORDING_RETIRED: e->seq = check_seq(b, get_u32(b)); return;
    case RECORDING_FINISH: get_finish(r, b, &e->finish); return;
    case RECORDING_PROPOSE: get_propose(r, b, &e->propose); return;
    case RECORDING_CLOSE:
        e->close.n_plans = get_u64(b);
        get_key(b, &e->close.decisions);
        return;
    default: break;
    }
    e->now_us = get_time(b);
    switch (e->kind) {
    case RECORDING_CANCEL: e->cancel = get_u64(b); return;
    case RECORDING_CANCEL_CHOICE: e->seq = check_seq(b, get_u32(b)); return;
    case RECORDING_NO_MORE: return;
    case RECORDING_PLAN: get_plan(r, b, &e->plan); return;
    case RECORDING_POLICY:
        e->policy.policy = get_policy(b);
        get_policy_options(b, r->weights, &e->policy.options);
        return;
    case RECORDING_UNPIN: e->tenant = get_u32(b); return;
    default: wrong(b, "is of a kind that this program does not know");
    }
}

/* ---- framing --------------------------------------------------------------------------------- */

static int corrupt(uint64_t at, const char *what, struct quire_error *err)
{
    return quire_fail(err, QUIRE_INVALID, "recording: byte %llu: the record that begins here %s",
                      (unsigned long long)at, what);
}

/* Finds the record at `at` and checks its sums. *body stays NULL where the file ends within it. */
static int frame(const struct recording *r, size_t at, uint32_t *kind, const uint8_t **body, uint32_t *n_body,
                 struct quire_error *err)
{
    const uint8_t *head = r->bytes + at;
    size_t n = r->n - at;
    uint8_t sum[RECORD_SUM_BYTES];
    *body = NULL;
    if (n < RECORD_HEAD_BYTES)
        return QUIRE_OK;
    *n_body = le_load_u32(head);
    *kind = le_load_u32(head + 4);
    record_sum(head - RECORD_SUM_BYTES, RECORD_SUM_BYTES + 8, sum, 4);
    if (memcmp(sum, head + 8, 4) != 0)
        return corrupt(at, "has a head that its check does not fit", err);
    if (n - RECORD_HEAD_BYTES < (size_t)*n_body + RECORD_SUM_BYTES)
        return QUIRE_OK;
    size_t covered = RECORD_HEAD_BYTES + (size_t)*n_body;
    record_sum(head - RECORD_SUM_BYTES, RECORD_SUM_BYTES + covered, sum, RECORD_SUM_BYTES);
    if (memcmp(sum, head + covered, RECORD_SUM_BYTES) != 0)
        return corrupt(at, "does not have the bytes that its checksum was made of", err);
    *body = head + RECORD_HEAD_BYTES;
    return QUIRE_OK;
}

static size_t after(size_t at, uint32_t n_body)
{
    return at + RECORD_HEAD_BYTES + n_body + RECORD_SUM_BYTES;
}

/* All of a body must have been read, and nothing wrong found in it. */
static int body_error(struct body *b, uint64_t at, struct quire_error *err)
{
    if (!b->wrong && b->at != b->end)
        b->wrong = "is longer than its fields";
    return b->wrong ? corrupt(at, b->wrong, err) : QUIRE_OK;
}

static int read_header(struct recording *r, struct quire_error *err)
{
    uint32_t kind, n_body;
    const uint8_t *bytes;
    if (r->n < RECORD_SUM_BYTES || memcmp(r->bytes, RECORD_MAGIC, RECORD_SUM_BYTES) != 0)
        return quire_fail(err, QUIRE_INVALID, "recording: byte 0: this is no recording");
    int status = frame(r, RECORD_SUM_BYTES, &kind, &bytes, &n_body, err);
    if (status != QUIRE_OK)
        return status;
    if (!bytes)
        return quire_fail(err, QUIRE_INVALID, "recording: it ends within its header");
    struct body b = {.at = bytes, .end = bytes + n_body};
    if (kind != RECORDING_HEADER)
        wrong(&b, "is not the header that must come first");
    get_header(r, &b);
    r->first = r->next = after(RECORD_SUM_BYTES, n_body);
    return body_error(&b, RECORD_SUM_BYTES, err);
}

/* ---- the door -------------------------------------------------------------------------------- */

int recording_open_memory(const void *data, size_t n, struct recording **out, struct quire_error *err)
{
    struct recording *r = calloc(1, sizeof *r);
    *out = NULL;
    if (!r)
        return quire_fail(err, QUIRE_NO_MEMORY, "recording: out of memory");
    r->bytes = data;
    r->n = n;
    int status = read_header(r, err);
    if (status != QUIRE_OK)
        recording_close(r);
    else
        *out = r;
    return status;
}

int recording_open(const char *path, struct recording **out, struct quire_error *err)
{
    struct stat st;
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return quire_fail(err, QUIRE_NOT_FOUND, "%s: cannot be opened: %s", path, strerror(errno));
    void *bytes = MAP_FAILED;
    int status = QUIRE_OK;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size < (off_t)RECORD_SUM_BYTES)
        status = quire_fail(err, QUIRE_INVALID, "%s: this is no recording", path);
    else
        bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (status == QUIRE_OK && bytes == MAP_FAILED)
        status = quire_fail(err, QUIRE_IO, "%s: cannot be mapped: %s", path, strerror(errno));
    close(fd);
    if (status != QUIRE_OK)
        return status;
    status = recording_open_memory(bytes, (size_t)st.st_size, out, err);
    if (status != QUIRE_OK) {
        munmap(bytes, (size_t)st.st_size);
        quire_error_prefix(err, "%s", path);
    } else {
        (*out)->mapped = true;
    }
    return status;
}

void recording_close(struct recording *r)
{
    if (!r)
        return;
    struct scratch *all[] = {&r->prompt,    &r->seqs,    &r->stops,  &r->biases, &r->allowed,
                             &r->bad_words, &r->results, &r->tokens, &r->choices};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]->data);
    request_spec_free(&r->spec);
    if (r->mapped)
        munmap((void *)(uintptr_t)r->bytes, r->n);
    free(r);
}

const struct recording_header *recording_header(const struct recording *r)
{
    return &r->header;
}

int recording_read_at(struct recording *r, uint64_t offset, struct recording_entry *out, struct quire_error *err)
{
    uint32_t kind, n_body;
    const uint8_t *bytes;
    *out = (struct recording_entry){.offset = offset};
    int status = frame(r, (size_t)offset, &kind, &bytes, &n_body, err);
    if (status != QUIRE_OK || !bytes)
        return status;
    struct body b = {.at = bytes, .end = bytes + n_body};
    uint32_t last = r->header.version > 1 ? RECORDING_PROPOSE : RECORDING_CLOSE;
    out->kind = kind <= last && kind > RECORDING_HEADER ? (enum recording_kind)kind : RECORDING_HEADER;
    get_entry(r, &b, out);
    return body_error(&b, offset, err);
}

int recording_next(struct recording *r, struct recording_entry *out, struct quire_error *err)
{
    size_t at = r->next;
    int status = recording_read_at(r, at, out, err);
    if (status != QUIRE_OK)
        return status;
    if (out->kind == RECORDING_END) {
        r->left_out = r->n - at;
        if (r->closed && r->left_out > 0)
            return corrupt(at, "follows the last one", err);
        return QUIRE_OK;
    }
    if (r->closed)
        return corrupt(at, "follows the last one", err);
    if (out->kind == RECORDING_PLAN) {
        if (out->now_us < r->last_plan_us)
            return corrupt(at, "is a plan of an earlier time than the one before", err);
        r->last_plan_us = out->now_us;
    }
    r->closed = out->kind == RECORDING_CLOSE;
    r->next = after(at, le_load_u32(r->bytes + at));
    return QUIRE_OK;
}

void recording_rewind(struct recording *r)
{
    r->next = r->first;
    r->last_plan_us = 0;
    r->closed = false;
    r->left_out = 0;
}

uint64_t recording_left_out(const struct recording *r)
{
    return r->left_out;
}

uint64_t recording_bytes(const struct recording *r)
{
    return r->n;
}

uint64_t recording_position(const struct recording *r)
{
    return r->next;
}
