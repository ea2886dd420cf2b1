#include "tools/sim/recording.h"

#include "engine/record/seqs.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NONE SIZE_MAX

static int out_of_memory(struct quire_error *err)
{
    return quire_fail(err, QUIRE_NO_MEMORY, "the recording: out of memory");
}

static void draw_point(void *context, uint64_t now_us, const struct sched_plan *plan, const struct sched *s)
{
    (void)plan;
    struct sim_recording *r = context;
    struct sim_point *point = sim_watch_point(r->live->watch, (double)now_us);
    const struct kv_usage usage = sched_kv_usage(s, 0);
    r->live->usage = usage;
    if (!point)
        return;
    const struct sched_stats stats = sched_stats(s);
    point->n_running = stats.n_running;
    point->n_waiting = stats.n_waiting;
    point->n_used_blocks = usage.n_blocks - usage.n_free;
    point->n_cached_blocks = usage.n_cached_free;
}

/* ---- requests ---- */

static uint32_t longest_answer(const struct recording_request *q)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < q->n; i++)
        most = q->n_outputs[i] > most ? q->n_outputs[i] : most;
    return most;
}

/* The number of a cache domain among those seen. A server has one for each tenant. */
static int find_domain(struct sim_workload *t, uint8_t (**domains)[RECORDING_DOMAIN_BYTES], const uint8_t *domain,
                       uint32_t *out)
{
    for (*out = 0; *out < t->n_domains; ++*out)
        if (memcmp((*domains)[*out], domain, RECORDING_DOMAIN_BYTES) == 0)
            return QUIRE_OK;
    void *grown = realloc(*domains, (t->n_domains + 1) * sizeof **domains);
    if (!grown)
        return QUIRE_NO_MEMORY;
    *domains = grown;
    memcpy((*domains)[t->n_domains++], domain, RECORDING_DOMAIN_BYTES);
    return QUIRE_OK;
}

static void add(struct sim_recording *r, const struct recording_request *q, const struct sched_request *asked,
                uint32_t domain)
{
    struct sim_workload *t = r->workload;
    uint32_t n_output = longest_answer(q), block = r->config->kv.block_tokens;
    /* Two threads may have submitted requests in another order than they arrived. */
    double arrival_s = ((double)q->arrival_us - (double)r->run.requests[0].arrival_us) * 1e-6;
    double least_s = t->n ? t->requests[t->n - 1].arrival_s : 0;
    t->requests[t->n] = (struct sim_request){
        .arrival_s = arrival_s > least_s ? arrival_s : least_s,
        .n_prompt = q->n_prompt,
        .n_output = n_output,
        .tenant = q->tenant,
        .class_index = q->class_index,
        .priority = asked->priority,
        .deadline_ms = asked->deadline_us > q->arrival_us ? (double)(asked->deadline_us - q->arrival_us) * 1e-3 : 0,
        .domain = domain,
        .max_tokens = q->max_tokens,
        .background = q->background,
    };
    r->live->records[t->n] = (struct sim_record){
        .fate = SIM_DONE,
        .admitted = true,
        .arrival_us = (double)q->arrival_us,
        .admitted_us = (double)q->admitted_us,
        .first_us = (double)q->first_us,
        .last_us = (double)q->last_us,
        .n_generated = n_output,
        .n_cached = q->n_cached,
        .n_preemptions = q->n_preemptions,
    };
    r->live->n_cached_tokens += q->n_cached;
    r->live->n_prompt_tokens += q->n_prompt;
    r->live->n_cached_blocks += q->n_cached / block;
    r->live->n_prompt_blocks += q->n_prompt / block;
    r->offsets[t->n++] = q->offset;
    uint32_t total = q->n_prompt + (q->max_tokens > n_output ? q->max_tokens : n_output);
    t->max_prompt = q->n_prompt > t->max_prompt ? q->n_prompt : t->max_prompt;
    t->max_total = total > t->max_total ? total : t->max_total;
}

static int take_requests(struct sim_recording *r, size_t *places, struct quire_error *err)
{
    uint8_t(*domains)[RECORDING_DOMAIN_BYTES] = NULL;
    int status = QUIRE_OK;
    for (size_t i = 0; i < r->run.n_requests && status == QUIRE_OK; i++) {
        const struct recording_request *q = &r->run.requests[i];
        struct recording_entry e;
        uint32_t domain = 0;
        places[i] = NONE;
        if (q->refused || q->first_us == 0) {
            r->workload->n_left_out++;
            continue;
        }
        places[i] = r->workload->n;
        status = recording_read_at(r->file, q->offset, &e, err);
        if (status == QUIRE_OK && find_domain(r->workload, &domains, e.submit->domain, &domain) != QUIRE_OK)
            status = out_of_memory(err);
        if (status == QUIRE_OK)
            add(r, q, &e.submit->sched, domain);
    }
    free(domains);
    return status;
}

static int name_tenants(struct sim_recording *r, struct quire_error *err)
{
    struct sim_workload *t = r->workload;
    const struct sched_policy_options *o = &r->config->policy_options;
    t->n_tenants = o->n_tenants ? o->n_tenants : 1;
    t->tenants = calloc(t->n_tenants, sizeof *t->tenants);
    if (!t->tenants)
        return out_of_memory(err);
    for (uint32_t i = 0; i < t->n_tenants; i++) {
        const struct sched_tenant share = o->tenants ? o->tenants[i] : (struct sched_tenant){.weight = 1};
        t->tenants[i].weight = share.weight;
        t->tenants[i].group_weight = share.group_weight;
        t->tenants[i].max_seats = share.max_seats;
        t->tenants[i].max_kv_blocks = share.max_kv_blocks;
        if (share.group > 0)
            snprintf(t->tenants[i].group, sizeof t->tenants[i].group, "%u", share.group);
        snprintf(t->tenants[i].name, sizeof t->tenants[i].name, "%u", i);
    }
    return QUIRE_OK;
}

/* ---- records ---- */

/* Maps names to requests, from the records along the way. */
static int follow_names(const struct sim_recording *r, struct recording_seqs *seqs, const struct recording_entry *e,
                        size_t *n_submits)
{
    int status = QUIRE_OK;
    if (e->kind == RECORDING_RETIRED)
        recording_seqs_drop(seqs, e->seq);
    if (e->kind != RECORDING_SUBMIT || (*n_submits)++ >= r->run.n_requests || e->submit->status != QUIRE_OK)
        return QUIRE_OK;
    for (uint32_t i = 0; i < e->submit->sched.n && status == QUIRE_OK; i++)
        status = recording_seqs_set(seqs, e->submit->seqs[i], *n_submits - 1, i);
    return status;
}

/* Handles every record of known requests. */
static int walk(struct sim_recording *r,
                void (*see)(struct sim_recording *r, const struct recording_seqs *seqs, const struct recording_entry *e,
                            void *context),
                void *context, struct quire_error *err)
{
    struct recording_seqs seqs = {0};
    struct recording_entry e;
    size_t n_submits = 0;
    int status = QUIRE_OK;
    recording_rewind(r->file);
    while (status == QUIRE_OK && (status = recording_next(r->file, &e, err)) == QUIRE_OK && e.kind != RECORDING_END &&
           n_submits <= r->run.n_requests) {
        status = follow_names(r, &seqs, &e, &n_submits);
        if (status == QUIRE_OK)
            see(r, &seqs, &e, context);
    }
    recording_seqs_free(&seqs);
    return status;
}

/* ---- gaps between tokens ---- */

struct gaps {
    const size_t *places;
    double *last_us; /* [workload.n] */
};

/* For requests with one choice. The records contain their last token's time. */
static void see_gap(struct sim_recording *r, const struct recording_seqs *seqs, const struct recording_entry *e,
                    void *context)
{
    struct gaps *g = context;
    for (uint32_t i = 0; e->kind == RECORDING_COMMIT && i < e->commit.n_results; i++) {
        const struct recording_owner *owner = recording_seqs_owner(seqs, e->commit.results[i].seq);
        size_t place = owner ? g->places[owner->request] : NONE;
        double done_us = (double)e->commit.done_us;
        if (place == NONE || r->run.requests[owner->request].n != 1)
            continue;
        const struct sim_request *q = &r->workload->requests[place];
        for (uint32_t k = 0; k <= e->commit.results[i].n_accepted; k++) { /* tokens of one step arrive together */
            if (g->last_us[place] > 0)
                sim_watch_token_gap(r->live->watch, q->tenant, q->class_index, (done_us - g->last_us[place]) * 1e-3);
            g->last_us[place] = done_us;
        }
    }
}

static int take_gaps(struct sim_recording *r, const size_t *places, struct quire_error *err)
{
    struct gaps g = {.places = places, .last_us = calloc(r->workload->n + 1, sizeof *g.last_us)};
    int status = g.last_us ? walk(r, see_gap, &g, err) : out_of_memory(err);
    free(g.last_us);
    return status;
}

/* ---- drafts ---- */

struct answers { /* of the first choices, one after the other */
    const size_t *places;
    size_t *begins;   /* [workload.n] */
    uint32_t *n;      /* [workload.n] tokens so far */
    bool *gated;      /* [workload.n] */
    uint32_t *tokens;
    bool are_known;
};

/* At this position of the request nothing is proposed, unless a later record says otherwise. */
static void see_answer(struct sim_recording *r, struct answers *a, size_t place, const struct sched_result *result)
{
    uint32_t n_output = r->workload->requests[place].n_output;
    for (uint32_t k = 0; k <= result->n_accepted && a->n[place] < n_output; k++)
        a->tokens[a->begins[place] + a->n[place]++] = result->tokens[k];
    if (a->n[place] < n_output)
        r->guesses[a->begins[place] + a->n[place]] = (struct sim_guess){.gated = a->gated[place]};
}

static void see_proposal(struct sim_recording *r, struct answers *a, size_t place, const struct recording_propose *p)
{
    uint32_t at = a->n[place], left = r->workload->requests[place].n_output - at;
    uint32_t n = p->n < left ? p->n : left, right = 0;
    while (right < n && p->tokens[right] == a->tokens[a->begins[place] + at + right])
        right++;
    for (uint32_t k = 0; k < n && k <= right; k++)
        r->guesses[a->begins[place] + at + k] = (struct sim_guess){
            .n = (uint8_t)(p->n - k), .n_right = (uint8_t)(right > k ? right - k : 0), .gated = true};
}

static void see_gate(struct sim_recording *r, struct answers *a, size_t place, bool gated)
{
    a->gated[place] = gated;
    if (a->n[place] < r->workload->requests[place].n_output)
        r->guesses[a->begins[place] + a->n[place]].gated = gated;
}

static void see_drafts(struct sim_recording *r, const struct recording_seqs *seqs, const struct recording_entry *e,
                       void *context)
{
    struct answers *a = context;
    bool is_commit = e->kind == RECORDING_COMMIT;
    bool is_gate = e->kind == RECORDING_GATE;
    uint32_t n = is_commit ? e->commit.n_results : a->are_known && (is_gate || e->kind == RECORDING_PROPOSE);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t seq = is_commit ? e->commit.results[i].seq : is_gate ? e->gate.seq : e->propose.seq;
        const struct recording_owner *owner = recording_seqs_owner(seqs, seq);
        size_t place = owner && owner->choice == 0 ? a->places[owner->request] : NONE;
        if (place == NONE)
            continue;
        if (is_commit)
            see_answer(r, a, place, &e->commit.results[i]);
        else if (is_gate)
            see_gate(r, a, place, e->gate.gated);
        else
            see_proposal(r, a, place, &e->propose);
    }
}

/* Reads the answers first, then the drafts proposed for them. */
static int take_guesses(struct sim_recording *r, const size_t *places, struct quire_error *err)
{
    struct answers a = {.places = places};
    size_t n = r->workload->n, n_tokens = 0;
    if (r->run.drafts.n_drafts == 0)
        return QUIRE_OK;
    a.begins = calloc(n + 1, sizeof *a.begins);
    a.n = calloc(n + 1, sizeof *a.n);
    a.gated = calloc(n + 1, sizeof *a.gated);
    for (size_t i = 0; a.begins && i < n; i++) {
        a.begins[i] = n_tokens;
        n_tokens += r->workload->requests[i].n_output;
    }
    a.tokens = calloc(n_tokens + 1, sizeof *a.tokens);
    r->guesses = calloc(n_tokens + 1, sizeof *r->guesses);
    int status = a.begins && a.n && a.gated && a.tokens && r->guesses ? walk(r, see_drafts, &a, err)
                                                                      : out_of_memory(err);
    if (status == QUIRE_OK) {
        memset(a.n, 0, n * sizeof *a.n);
        a.are_known = true;
        status = walk(r, see_drafts, &a, err);
    }
    for (size_t i = 0; status == QUIRE_OK && i < n; i++)
        r->workload->requests[i].guesses = r->guesses + a.begins[i];
    free(a.begins);
    free(a.n);
    free(a.gated);
    free(a.tokens);
    return status;
}

/* ---- opening ---- */

static void read_prompt(void *context, size_t i, uint32_t *out)
{
    struct sim_recording *r = context;
    struct recording_entry e;
    memset(out, 0, r->workload->requests[i].n_prompt * sizeof *out);
    if (recording_read_at(r->file, r->offsets[i], &e, NULL) == QUIRE_OK) /* unchanged since it was opened */
        memcpy(out, e.submit->sched.prompt, e.submit->sched.n_prompt * sizeof *out);
}

static int read_all(struct sim_recording *r, struct quire_error *err)
{
    int status = recording_drive(r->file, draw_point, r, &r->run, err);
    if (status != QUIRE_OK)
        return status;
    size_t n = r->run.n_requests;
    size_t *places = calloc(n + 1, sizeof *places);
    r->workload->requests = calloc(n + 1, sizeof *r->workload->requests);
    r->live->records = calloc(n + 1, sizeof *r->live->records);
    r->offsets = calloc(n + 1, sizeof *r->offsets);
    if (!places || !r->workload->requests || !r->live->records || !r->offsets)
        status = out_of_memory(err);
    if (status == QUIRE_OK)
        status = take_requests(r, places, err);
    if (status == QUIRE_OK)
        status = take_gaps(r, places, err);
    if (status == QUIRE_OK)
        status = take_guesses(r, places, err);
    free(places);
    if (status == QUIRE_OK && r->workload->n == 0)
        status = quire_fail(err, QUIRE_INVALID, "the recording: no request got a token");
    return status;
}

int sim_recording_open(const char *path, struct sim_recording *out, struct sim_workload *workload,
                       struct sim_result *live, struct quire_error *err)
{
    double began = quire_now_s();
    *workload = (struct sim_workload){0};
    *live = (struct sim_result){.recorded = true};
    *out = (struct sim_recording){.workload = workload, .live = live};
    int status = recording_open(path, &out->file, err);
    if (status != QUIRE_OK)
        return status;
    out->config = recording_header(out->file)->config;
    status = name_tenants(out, err);
    if (status == QUIRE_OK)
        status = sim_watch_create(workload->n_tenants, SCHED_MAX_CLASSES, &live->watch, err);
    if (status == QUIRE_OK)
        status = read_all(out, err);
    if (status != QUIRE_OK)
        return status;
    live->n_records = workload->n;
    live->stats = out->run.stats;
    live->drafts = out->run.drafts;
    live->decisions = out->run.decisions;
    live->began_us = (double)out->run.requests[0].arrival_us;
    for (size_t i = 0; i < live->n_records; i++)
        if (live->records[i].last_us > live->ended_us)
            live->ended_us = live->records[i].last_us;
    live->wall_s = quire_now_s() - began;
    workload->read_prompt = read_prompt;
    workload->context = out;
    return QUIRE_OK;
}

void sim_recording_close(struct sim_recording *r)
{
    recording_close(r->file);
    recording_run_free(&r->run);
    free(r->offsets);
    free(r->guesses);
    r->offsets = NULL;
    r->guesses = NULL;
}
