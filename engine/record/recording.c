#include "engine/record/recording.h"

#include "engine/engine.h"
#include "engine/model/quantization/quantization.h"
#include "engine/record/format.h"
#include "engine/record/sections.h"
#include "engine/record/submit.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct recording {
    const uint8_t *bytes;
    size_t n;
    bool mapped;
    size_t first;    /* the record after the header */
    size_t next;
    size_t left_out;
    uint64_t last_plan_us;
    bool closed;     /* the CLOSE record was read */
    bool salvages;
    struct quire_error damage; /* no text: none was found */
    struct recording_header *header; /* owned */
    struct recording_engine *engine; /* owned; the header's, with the next three */
    struct sched_config *config;
    struct sched_tenant *tenants; /* [SCHED_MAX_TENANTS] */
    struct sched_cost *cost;
    struct submit_reader *submit; /* owned */
    struct recording_last *last; /* owned */
};

/* Behind the pointers of the last record. */
struct recording_last {
    struct scratch results, tokens, choices;
    struct length_reason lengths;
    struct sched_cost cost;
    struct sched_policy_options options;
    struct sched_tenant tenants[SCHED_MAX_TENANTS];
};

/* ---- the header ------------------------------------------------------------------------------ */

static const struct sched_policy *get_policy(struct body *b)
{
    char name[64] = "";
    body_text(b, name, sizeof name);
    const struct sched_policy *policy = sched_policy_find(name);
    if (!policy)
        body_wrong(b, "names a scheduling policy that this program does not have");
    return policy;
}

static void get_policy_options(struct body *b, struct sched_tenant tenants[SCHED_MAX_TENANTS],
                               struct sched_policy_options *o)
{
    o->ageing_us = body_u64(b);
    o->n_tenants = body_u32(b);
    uint32_t n_words = body_u32(b), n = o->n_tenants;
    bool plain = n_words == n;
    if (n > SCHED_MAX_TENANTS || (n_words != 0 && !plain && n_words != n * RECORD_TENANT_WORDS)) {
        body_wrong(b, "has more tenants than there may be");
        n_words = 0;
    }
    for (uint32_t i = 0; n_words > 0 && i < n; i++) {
        tenants[i] = (struct sched_tenant){.weight = body_u32(b)};
        if (plain)
            continue;
        tenants[i].group = body_u32(b);
        tenants[i].group_weight = body_u32(b);
        tenants[i].max_seats = body_u32(b);
        tenants[i].max_kv_blocks = body_u32(b);
    }
    o->tenants = n_words ? tenants : NULL;
    for (uint32_t i = 0; i < SCHED_MAX_CLASSES; i++)
        o->class_weights[i] = body_u32(b);
    for (uint32_t i = 0; i < SCHED_MAX_CLASSES; i++)
        o->class_ttft_us[i] = body_u64(b);
    o->prompt_price = body_u32(b);
    o->output_price = body_u32(b);
    o->prefill_share = body_u32(b);
}

static void get_kv(struct body *b, struct kv_config *kv)
{
    kv->block_tokens = body_u32(b);
    kv->n_groups = body_u32(b);
    kv->prefix_caching = body_bool(b);
    kv->eviction = body_below(b, KV_EVICT_REUSE + 1, "has an eviction that does not exist");
    kv->n_tenants = body_u32(b);
    if (kv->block_tokens == 0 || kv->n_groups == 0 || kv->n_groups > KV_MAX_GROUPS ||
        kv->n_tenants > SCHED_MAX_TENANTS) {
        body_wrong(b, "has KV groups, blocks or tenants that cannot be");
        return;
    }
    for (uint32_t g = 0; g < kv->n_groups; g++) {
        kv->groups[g].n_blocks = body_u32(b);
        kv->groups[g].n_host_blocks = body_u32(b);
        kv->groups[g].window = body_u32(b);
    }
}

static void get_cost(struct body *b, struct sched_cost *cost)
{
    cost->n_points = body_u32(b);
    if (cost->n_points > SCHED_COST_MAX_POINTS) {
        body_wrong(b, "has a cost model of too many points");
        return;
    }
    for (uint32_t i = 0; i < cost->n_points; i++) {
        cost->points[i].n_tokens = body_u32(b);
        cost->points[i].us = body_f64(b);
    }
    cost->row_us = body_f64(b);
    cost->logit_us = body_f64(b);
    cost->context_us = body_f64(b);
    cost->pair_us = body_f64(b);
    cost->block_copy_us = body_f64(b);
    if (!b->wrong && cost->n_points > 0 && sched_cost_check(cost, NULL) != QUIRE_OK)
        body_wrong(b, "has a cost model that cannot be");
}

static void get_config(struct recording *r, struct body *b, struct sched_config *c)
{
    get_kv(b, &c->kv);
    c->max_num_seqs = body_u32(b);
    c->max_num_batched_tokens = body_u32(b);
    c->max_model_len = body_u32(b);
    c->max_queued_requests = body_u32(b);
    c->max_queued_tokens = body_u64(b);
    c->max_logit_rows = body_u32(b);
    c->overlap_depth = body_u32(b);
    c->policy = get_policy(b);
    get_policy_options(b, r->tenants, &c->policy_options);
    c->long_prefill_token_threshold = body_u32(b);
    c->max_partial_prefills = body_u32(b);
    c->step_target_us = body_u64(b);
    c->adaptive_budget = body_bool(b);
    c->batching = body_below(b, SCHED_STATIC + 1, "has a batching that does not exist");
    c->max_batch_size = body_u32(b);
    c->max_wait_us = body_u64(b);
    c->preemption = body_below(b, SCHED_PREEMPT_NEVER + 1, "has a preemption that does not exist");
    c->max_pinned_percent = body_u32(b);
    get_cost(b, r->cost);
    c->cost = r->cost->n_points > 0 ? r->cost : NULL;
}

static void get_weights(struct recording_engine *e, struct body *b)
{
    const uint8_t dtype = body_u8(b);
    const struct quantization_made *made = dtype & RECORD_MADE ? quantization_made_of(dtype & ~RECORD_MADE) : NULL;
    e->quantization = made ? made->name : NULL;
    e->weight_dtype = made ? K_F32 : dtype;
    if (!made && dtype > K_E5M2)
        body_wrong(b, "has a dtype that does not exist");
}

static void get_header(struct recording *r, struct body *b)
{
    struct recording_header *h = r->header;
    struct recording_engine *e = r->engine;
    h->engine = e;
    h->config = r->config;
    h->version = body_u32(b);
    if (h->version != 1 && h->version != RECORD_VERSION)
        body_wrong(b, "is of a version that this program does not read");
    e->numerics = 1;
    if (h->version > 1) {
        e->numerics = body_u32(b);
        body_key(b, &e->identity);
    }
    body_u64(b); /* the wall clock at its beginning, for people */
    body_text(b, e->model, sizeof e->model);
    body_key(b, &e->config_sha256);
    body_text(b, e->device, sizeof e->device);
    uint8_t form = body_u8(b);
    e->not_invariant = (form & RECORD_NOT_INVARIANT) != 0;
    e->gemm_form = form & ~RECORD_NOT_INVARIANT;
    if (e->gemm_form >= K_N_FORMS || (e->not_invariant && e->gemm_form != K_FORM_MMA))
        body_wrong(b, "has a GEMM form that does not exist");
    get_weights(e, b);
    e->kv_dtype = body_below(b, K_E5M2 + 1, "has a dtype that does not exist");
    if (e->kv_dtype == K_BF16)
        body_wrong(b, "has a KV cache in a dtype that does not exist");
    e->vocab_size = body_u32(b);
    get_config(r, b, r->config);
    if (h->version > 1)
        record_sections_read(b, &record_header_sections, r->config);
}

/* ---- other records ------------------------------------------------------------------------------ */

static void get_plan(struct recording *r, struct body *b, struct recording_plan *p)
{
    p->step = body_u64(b);
    p->n_rows = body_u32(b);
    p->n_tokens = body_u32(b);
    p->token_budget = body_u32(b);
    p->n_preempted = body_u32(b);
    p->n_admitted = body_u32(b);
    p->n_refused = body_u32(b);
    p->n_moves = body_u32(b);
    p->n_drafts = r->header->version > 1 ? body_u32(b) : 0;
    body_key(b, &p->decisions);
    if (p->n_rows > r->header->config->max_num_seqs || (p->n_rows > 0) != (p->step > 0))
        body_wrong(b, "is a plan that cannot be");
}

/* Tokens first, so that results may point to them. The body's length bounds their number. */
static void get_commit(struct recording *r, struct body *b, struct recording_commit *c)
{
    c->step = body_u64(b);
    c->launched_us = body_time(b);
    c->done_us = body_time(b);
    c->n_results = body_u32(b);
    size_t n_words = (size_t)(b->end - b->at) / 4;
    if (c->n_results > n_words / 2) {
        body_wrong(b, "is shorter than its fields");
        return;
    }
    struct sched_result *results = body_scratch(b, &r->last->results, c->n_results, sizeof *results);
    uint32_t *tokens = body_scratch(b, &r->last->tokens, n_words, sizeof *tokens);
    for (uint32_t i = 0; results && tokens && i < c->n_results && !b->wrong; i++) {
        uint32_t seq = body_seq(b), count = body_u32(b);
        size_t n = (count & ~RECORD_FINISHED) + (r->header->version > 1 ? 1u : 0u);
        const uint8_t *in = body_bytes(b, 4 * n);
        if (n == 0 || !in) {
            body_wrong(b, "has a result without its tokens");
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
    p->seq = body_seq(b);
    p->n = body_u32(b);
    p->tokens = body_u32s(b, &r->last->tokens, p->n);
}

static void get_served(struct recording *r, struct body *b, struct recording_served *s)
{
    s->n = body_u32(b);
    if (s->n > ENGINE_MAX_SERVED) {
        body_wrong(b, "reports more served answers than there may be");
        s->n = 0;
    }
    s->items = body_u32s(b, &r->last->tokens, 3 * s->n);
}

static void get_finish(struct recording *r, struct body *b, struct recording_finish *f)
{
    f->id = body_u64(b);
    f->n = body_u32(b);
    if (f->n == 0 || f->n > REQUEST_MAX_CHOICES) {
        body_wrong(b, "has choices that cannot be");
        return;
    }
    struct recording_choice *choices = body_scratch(b, &r->last->choices, f->n, sizeof *choices);
    for (uint32_t i = 0; choices && i < f->n; i++) {
        choices[i].finish = body_below(b, ENGINE_FINISH_REFUSED + 1, "ended in an unknown way");
        choices[i].n_tokens = body_u32(b);
        choices[i].n_prompt_logprobs = body_u32(b);
        body_key(b, &choices[i].digest);
    }
    f->choices = choices;
}

static void get_lengths(struct body *b, struct length_reason *reason)
{
    reason->n_rows = body_u32(b);
    reason->n_items = body_u32(b);
    reason->n_offered = body_u32(b);
    reason->n_chosen = body_u32(b);
    reason->n_right = body_f64(b);
    reason->us_without = body_f64(b);
    reason->us_with = body_f64(b);
    if (reason->n_chosen > reason->n_offered || !isfinite(reason->n_right) || !isfinite(reason->us_without) ||
        !isfinite(reason->us_with))
        body_wrong(b, "chooses drafts as nobody can");
}

static void get_submit(struct recording *r, struct body *b, struct recording_entry *e)
{
    struct recording_submit *s = submit_read(r->submit, r->header, b);
    if (r->header->version > 1)
        record_sections_read(b, &record_submit_sections, s);
    e->submit = s;
}

static void get_entry(struct recording *r, struct body *b, struct recording_entry *e)
{
    switch (e->kind) {
    case RECORDING_SUBMIT: get_submit(r, b, e); return;
    case RECORDING_COMMIT: get_commit(r, b, &e->commit); return;
    case RECORDING_RETIRED: e->seq = body_seq(b); return;
    case RECORDING_FINISH: get_finish(r, b, &e->finish); return;
    case RECORDING_PROPOSE: get_propose(r, b, &e->propose); return;
    case RECORDING_LENGTHS:
        get_lengths(b, &r->last->lengths);
        e->lengths = &r->last->lengths;
        return;
    case RECORDING_GATE:
        e->gate.seq = body_seq(b);
        e->gate.gated = body_bool(b);
        return;
    case RECORDING_CLOSE:
        e->close.n_plans = body_u64(b);
        body_key(b, &e->close.decisions);
        return;
    default: break;
    }
    e->now_us = body_time(b);
    switch (e->kind) {
    case RECORDING_CANCEL: e->cancel = body_u64(b); return;
    case RECORDING_CANCEL_CHOICE: e->seq = body_seq(b); return;
    case RECORDING_NO_MORE: return;
    case RECORDING_PLAN: get_plan(r, b, &e->plan); return;
    case RECORDING_POLICY:
        e->policy.policy = get_policy(b);
        r->last->options = (struct sched_policy_options){0};
        get_policy_options(b, r->last->tenants, &r->last->options);
        e->policy.options = &r->last->options;
        return;
    case RECORDING_UNPIN: e->tenant = body_u32(b); return;
    case RECORDING_SERVED: get_served(r, b, &e->served); return;
    case RECORDING_COST:
        get_cost(b, &r->last->cost);
        if (r->last->cost.n_points == 0)
            body_wrong(b, "has a cost model without points");
        e->cost = &r->last->cost;
        return;
    default: body_wrong(b, "is of a kind that this program does not know");
    }
}

/* ---- framing --------------------------------------------------------------------------------- */

static int corrupt(uint64_t at, const char *what, struct quire_error *err)
{
    return quire_fail(err, QUIRE_INVALID, "recording: byte %llu: the record that begins here %s",
                      (unsigned long long)at, what);
}

/* Finds the record at `at` and checks its sums. *body stays NULL if the file ends within it. */
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

/* The body must be read completely and without faults. */
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
        body_wrong(&b, "is not the header that must come first");
    get_header(r, &b);
    r->submit = submit_reader_create(r->header->version);
    if (!r->submit)
        return quire_fail(err, QUIRE_NO_MEMORY, "recording: out of memory");
    r->first = r->next = after(RECORD_SUM_BYTES, n_body);
    return body_error(&b, RECORD_SUM_BYTES, err);
}

/* ---- public functions --------------------------------------------------------------------------- */

int recording_open_memory(const void *data, size_t n, struct recording **out, struct quire_error *err)
{
    struct recording *r = calloc(1, sizeof *r);
    *out = NULL;
    if (r) {
        r->header = calloc(1, sizeof *r->header);
        r->engine = calloc(1, sizeof *r->engine);
        r->config = calloc(1, sizeof *r->config);
        r->tenants = calloc(SCHED_MAX_TENANTS, sizeof *r->tenants);
        r->cost = calloc(1, sizeof *r->cost);
        r->last = calloc(1, sizeof *r->last);
    }
    if (!r || !r->header || !r->engine || !r->config || !r->tenants || !r->cost || !r->last) {
        recording_close(r);
        return quire_fail(err, QUIRE_NO_MEMORY, "recording: out of memory");
    }
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
    if (r->last) {
        free(r->last->results.data);
        free(r->last->tokens.data);
        free(r->last->choices.data);
    }
    free(r->last);
    submit_reader_destroy(r->submit);
    free(r->header);
    free(r->engine);
    free(r->config);
    free(r->tenants);
    free(r->cost);
    if (r->mapped)
        munmap((void *)(uintptr_t)r->bytes, r->n);
    free(r);
}

const struct recording_header *recording_header(const struct recording *r)
{
    return r->header;
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
    uint32_t last = r->header->version > 1 ? RECORDING_COST : RECORDING_CLOSE;
    out->kind = kind <= last && kind > RECORDING_HEADER ? (enum recording_kind)kind : RECORDING_HEADER;
    get_entry(r, &b, out);
    if (r->header->version > 1 && out->kind != RECORDING_SUBMIT)
        record_sections_read(&b, NULL, NULL);
    return body_error(&b, offset, err);
}

void recording_salvage(struct recording *r)
{
    r->salvages = true;
}

const char *recording_damage(const struct recording *r)
{
    return r->damage.text[0] ? r->damage.text : NULL;
}

static int next_entry(struct recording *r, struct recording_entry *out, struct quire_error *err)
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

int recording_next(struct recording *r, struct recording_entry *out, struct quire_error *err)
{
    if (!r->salvages)
        return next_entry(r, out, err);
    int status = next_entry(r, out, &r->damage);
    if (status == QUIRE_INVALID) {
        r->left_out = r->n - r->next;
        *out = (struct recording_entry){.kind = RECORDING_END, .offset = r->next};
        return QUIRE_OK;
    }
    if (status != QUIRE_OK && err)
        *err = r->damage;
    return status;
}

void recording_rewind(struct recording *r)
{
    r->next = r->first;
    r->last_plan_us = 0;
    r->closed = false;
    r->left_out = 0;
    r->damage.text[0] = 0;
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
