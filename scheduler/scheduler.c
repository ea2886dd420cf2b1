/* Invariants (sched_check, in check.c):
 *  1. Every name is in one state, and the counts of names by state are correct.
 *  2. Exactly the WAITING sequences are queued, each in the heap of its flow, in heap
 *     order of rank and submission; the queue's counts are correct.
 *  3. The running list names every RUNNING sequence once; at most max_num_seqs run.
 *  4. n_computed <= n_planned <= min(n_known + n_sampling, n_positions), n_known + n_sampling <=
 *     n_prompt + max_tokens, and n_sampling is the number of uncommitted rows of the sequence that
 *     give a token. A row that verifies drafts is the sequence's only one, n_drafting is the number of
 *     its drafts, and n_planned is n_known + n_drafting. Only running sequences have waiting drafts, and
 *     only while none of their tokens is being sampled.
 *  5. Exactly the RUNNING, LEAVING and ENDING sequences have a block table; it covers the planned
 *     positions. Every table is held by one sequence or spare.
 *  6. LEAVING and ENDING sequences have a row in an uncommitted plan.
 *  7. A block of a sequence is published only when all its positions are computed.
 *  8. At most overlap_depth + 1 plans are uncommitted. Each respects the token budget and the logit
 *     rows, and has at most one row per sequence.
 *  9. A request has n_live choices that are not over. Its choices follow only while one of them
 *     leads, and at most one leads.
 * 10. No sequence that a launched step touches has released a block that the step reads or
 *     writes.
 * 11. The counters of a tenant are those of its sequences; live sequences are counted by flow. A tenant
 *     is within its limits.
 * 12. A pin holds its blocks, filled ones in a list, and the sum of all pins' blocks is correct.
 * 13. The invariants of memory/kv_cache.h. */
#include "memory/kv_table.h"
#include "scheduler/sequence.h"
#include "scheduler/state/checked.h"
#include "scheduler/state/scheduler_state.h"
#include "scheduler/state/sequence_state.h"

#include <stdlib.h>
#include <string.h>

/* Counts of tokens and sequences, including sums, stay far below 32 bits. */
#define MAX_TOKENS (1u << 28)
#define MAX_SEQS (1u << 20)

static int check_config(const struct sched_config *c, struct quire_error *err)
{
    if (c->max_num_seqs == 0 || c->max_num_seqs > MAX_SEQS)
        return quire_fail(err, QUIRE_INVALID, "max_num_seqs: must be 1 to %u, got %u", MAX_SEQS, c->max_num_seqs);
    if (c->max_num_batched_tokens == 0 || c->max_num_batched_tokens > MAX_TOKENS)
        return quire_fail(err, QUIRE_INVALID, "max_num_batched_tokens: must be 1 to %u, got %u", MAX_TOKENS,
                          c->max_num_batched_tokens);
    if (c->max_model_len == 0 || c->max_model_len > MAX_TOKENS)
        return quire_fail(err, QUIRE_INVALID, "max_model_len: must be 1 to %u, got %u", MAX_TOKENS, c->max_model_len);
    if (c->max_queued_requests == 0 || c->max_queued_requests > MAX_SEQS)
        return quire_fail(err, QUIRE_INVALID, "max_queued_requests: must be 1 to %u, got %u", MAX_SEQS,
                          c->max_queued_requests);
    if (c->max_logit_rows < c->max_num_seqs)
        return quire_fail(err, QUIRE_INVALID, "max_logit_rows: must be at least max_num_seqs (%u), got %u",
                          c->max_num_seqs, c->max_logit_rows);
    if (c->overlap_depth > 1)
        return quire_fail(err, QUIRE_INVALID, "overlap_depth: must be 0 or 1, got %u", c->overlap_depth);
    if (!c->policy)
        return quire_fail(err, QUIRE_INVALID, "policy: is missing");
    if (c->policy_options.n_tenants > SCHED_MAX_TENANTS)
        return quire_fail(err, QUIRE_INVALID, "n_tenants: must be at most %u, got %u", SCHED_MAX_TENANTS,
                          c->policy_options.n_tenants);
    if (c->max_pinned_percent > 100 && c->max_pinned_percent != SCHED_NO_PINS)
        return quire_fail(err, QUIRE_INVALID, "max_pinned_percent: must be at most 100, got %u", c->max_pinned_percent);
    return c->cost ? sched_cost_check(c->cost, err) : QUIRE_OK;
}

/* ---- the policy and its flows ---- */

/* Counts the live sequences by their flow under the new policy and reserves space for all of them. */
static int reserve_flows(const struct sched *s, struct sched_flows *f)
{
    for (uint32_t i = 0; i < s->names->n; i++) {
        const struct sequence *q = &s->seqs[i];
        if (!q->job)
            continue;
        uint32_t flow = f->policy->flow ? f->policy->flow(f->state, &q->key) : 0;
        f->live[q->key.background ? f->queue.n_flows : flow]++;
    }
    for (uint32_t i = 0; i < s->names->n; i++) {
        const struct sequence *q = &s->seqs[i];
        if (!q->job)
            continue;
        uint32_t flow = q->key.background ? f->queue.n_flows : f->policy->flow ? f->policy->flow(f->state, &q->key) : 0;
        uint32_t n = f->queue.n_lanes > 1 && flow < f->queue.n_flows ? sched_n_live(s, q->key.tenant) : f->live[flow];
        if (queue_reserve(&f->queue, queue_heap_of(&f->queue, flow, q->key.tenant), n))
            return QUIRE_NO_MEMORY;
    }
    return QUIRE_OK;
}

int sched_set_policy(struct sched *s, const struct sched_policy *policy, const struct sched_policy_options *options,
                     struct quire_error *err)
{
    struct sched_policy_options changed = *options;
    struct sched_flows *flows, *old = s->flows;
    changed.n_tenants = s->n_tenants;
    int status = flows_create(policy, &changed, s->config->cost, s->caps != NULL, s->seqs, s->names->n, &flows, err);
    if (status)
        return status;
    if (reserve_flows(s, flows)) {
        flows_destroy(flows);
        return quire_fail(err, QUIRE_NO_MEMORY, "policy: out of memory");
    }
    s->flows = flows;
    for (uint32_t i = 0; i < s->names->n; i++) {
        struct sequence *q = &s->seqs[i];
        if (!q->job)
            continue;
        sched_rank(s, q);
        if (queue_has(&old->queue, i))
            sched_queue_push(s, q);
    }
    flows_destroy(old);
    s->admission->blocked_order = 0;
    SCHED_CHECKED(s);
    return QUIRE_OK;
}

int sched_set_cost(struct sched *s, const struct sched_cost *cost, struct quire_error *err)
{
    struct sched_config *own = s->config;
    if (s->step != s->committed)
        return quire_fail(err, QUIRE_INVALID, "cost model: step %llu must be committed first",
                          (unsigned long long)(s->committed + 1));
    if (cost->n_points == 0)
        return quire_fail(err, QUIRE_INVALID, "cost model: has no points");
    int status = sched_cost_check(cost, err);
    if (status != QUIRE_OK) {
        quire_error_prefix(err, "cost model");
        return status;
    }
    own->cost = memcpy(own + 1, cost, sizeof *cost);
    budget_new_model(s->budget);
    if (s->flows->policy->use_cost)
        s->flows->policy->use_cost(s->flows->state, own->cost);
    s->stats.n_cost_changes++;
    SCHED_CHECKED(s);
    return QUIRE_OK;
}

const struct sched_policy *sched_policy_of(const struct sched *s)
{
    return s->flows->policy;
}

double sched_policy_figure(const struct sched *s, const char **name)
{
    *name = NULL;
    return s->flows->policy->figure ? s->flows->policy->figure(s->flows->state, name) : 0;
}

/* ---- creation ---- */

/* The plans' memory. */
static bool allocate_slots(struct sched *s)
{
    size_t n = s->config->max_num_seqs;
    s->slots = calloc(s->config->overlap_depth + 2, sizeof *s->slots);
    bool ok = s->slots != NULL;
    for (uint32_t i = 0; ok && i < s->config->overlap_depth + 2; i++) {
        struct plan_slot *slot = &s->slots[i];
        slot->rows = calloc(n, sizeof *slot->rows);
        slot->preempted = calloc(n, sizeof *slot->preempted);
        slot->admitted = calloc(n, sizeof *slot->admitted);
        slot->refused = calloc(SCHED_MAX_REFUSED, sizeof *slot->refused);
        ok = slot->rows && slot->preempted && slot->admitted && slot->refused;
    }
    s->scratch.order = calloc(n, sizeof *s->scratch.order);
    s->scratch.prefills = calloc(n, sizeof *s->scratch.prefills);
    s->scratch.computing = calloc(n, sizeof *s->scratch.computing);
    return ok && s->scratch.order && s->scratch.prefills && s->scratch.computing;
}

/* The parts that have headers of their own, without the flows. */
static bool allocate_parts(struct sched *s)
{
    s->waits = calloc(1, sizeof *s->waits);
    s->admission = calloc(1, sizeof *s->admission);
    s->pins = calloc(1, sizeof *s->pins);
    s->budget = calloc(1, sizeof *s->budget);
    s->pace = calloc(1, sizeof *s->pace);
    if (!s->waits || !s->admission || !s->pins || !s->budget || !s->pace)
        return false;
    s->waits->seqs = calloc(s->names->n, sizeof *s->waits->seqs);
    const bool reserves = s->config->preemption == SCHED_PREEMPT_NEVER;
    if (reserves)
        s->admission->shared = calloc(s->names->n, sizeof *s->admission->shared);
    batches_init(&s->admission->batches);
    budget_init(s->budget, s->config->step_target_us, s->config->adaptive_budget);
    pace_init(s->pace, s->config->step_target_us);
    return s->waits->seqs && (!reserves || s->admission->shared);
}

/* Allocates everything of fixed size. After an error, sched_destroy frees it. */
static int allocate(struct sched *s, struct quire_error *err)
{
    const struct sched_config *c = s->config;
    int status = kv_cache_create(&c->kv, &s->kv, err);
    if (status)
        return status;
    /* Waiting, running, and sequences that are over but touched or not yet collected. */
    s->names = names_create(c->max_queued_requests + c->max_num_seqs * (c->overlap_depth + 2));
    if (!s->names)
        return quire_fail(err, QUIRE_NO_MEMORY, "scheduler: out of memory");
    s->seqs = calloc(s->names->n, sizeof *s->seqs);
    s->adapters = calloc(s->names->n, sizeof *s->adapters);
    s->running = calloc(c->max_num_seqs, sizeof *s->running);
    s->tenants = calloc(s->n_tenants, sizeof *s->tenants);
    s->tables = calloc((size_t)c->max_num_seqs * (c->overlap_depth + 1), sizeof *s->tables);
    bool ok = s->seqs && s->adapters && s->running && s->tables && s->tenants;
    if (!allocate_parts(s) || !allocate_slots(s) || !ok)
        return quire_fail(err, QUIRE_NO_MEMORY, "scheduler: out of memory");
    status = caps_create(&c->policy_options, &s->caps, err);
    return status ? status
                  : flows_create(c->policy, &c->policy_options, c->cost, s->caps != NULL, s->seqs, s->names->n,
                                 &s->flows, err);
}

/* Block tables for everything that can hold blocks at the same time: running sequences, and those that a launched step
 * still touches. Each has space for the longest sequence, so a step never allocates. */
static int create_tables(struct sched *s, struct quire_error *err)
{
    uint32_t n = s->config->max_num_seqs * (s->config->overlap_depth + 1);
    while (s->n_tables < n) {
        int status = kv_table_create(s->kv, &s->tables[s->n_tables], err);
        if (status)
            return status;
        s->n_tables++;
        if (kv_table_prepare(s->tables[s->n_tables - 1], s->config->max_model_len))
            return quire_fail(err, QUIRE_NO_MEMORY, "scheduler: out of memory for block tables");
    }
    s->n_spare = s->n_tables;
    return QUIRE_OK;
}

/* With the cost model, or the space for a later one, in one allocation. The tenants stay the caller's. */
static struct sched_config *copy_config(const struct sched_config *config)
{
    struct sched_config *own = malloc(sizeof *own + sizeof *config->cost);
    if (!own)
        return NULL;
    *own = *config;
    if (config->cost)
        own->cost = memcpy(own + 1, config->cost, sizeof *config->cost);
    return own;
}

int sched_create(const struct sched_config *config, struct sched **out, struct quire_error *err)
{
    *out = NULL;
    int status = check_config(config, err);
    if (status)
        return status;
    struct sched *s = calloc(1, sizeof *s);
    struct sched_config *own = copy_config(config);
    if (!s || !own) {
        free(s);
        free(own);
        return quire_fail(err, QUIRE_NO_MEMORY, "scheduler: out of memory");
    }
    s->config = own;
    s->next_order = 1;
    s->n_tenants = config->policy_options.n_tenants ? config->policy_options.n_tenants : 1;
    own->policy_options.n_tenants = own->kv.n_tenants = s->n_tenants;
    status = allocate(s, err);
    if (!status)
        status = create_tables(s, err);
    own->policy_options.tenants = NULL; /* the policy has its copy */
    if (status) {
        sched_destroy(s);
        return status;
    }
    *out = s;
    return QUIRE_OK;
}

/* The live requests, with their blocks. */
static void end_requests(struct sched *s)
{
    for (uint32_t i = 0; s->seqs && i < s->names->n; i++) {
        if (s->seqs[i].table)
            sched_drop_table(s, &s->seqs[i]);
        free(s->seqs[i].tokens);
    }
    size_t at = 0;
    for (struct sched_job *job; (job = (struct sched_job *)id_map_next(&s->jobs, &at));) {
        pins_forget(s, job->pin);
        free(job);
    }
    if (s->pins)
        pins_drop(s, UINT32_MAX);
}

static void free_slots(struct sched *s)
{
    for (uint32_t i = 0; s->slots && i < s->config->overlap_depth + 2; i++) {
        free(s->slots[i].rows);
        free(s->slots[i].preempted);
        free(s->slots[i].admitted);
        free(s->slots[i].refused);
    }
    free(s->slots);
    free(s->scratch.order);
    free(s->scratch.prefills);
    free(s->scratch.computing);
}

void sched_destroy(struct sched *s)
{
    if (!s)
        return;
    end_requests(s);
    for (uint32_t i = 0; i < s->n_tables; i++)
        kv_table_destroy(s->tables[i]);
    free_slots(s);
    flows_destroy(s->flows);
    if (s->waits)
        free(s->waits->seqs);
    free(s->waits);
    if (s->admission)
        free(s->admission->shared);
    free(s->admission);
    free(s->pins);
    free(s->budget);
    free(s->pace);
    free(s->caps);
    free(s->tenants);
    free(s->tables);
    free(s->running);
    id_map_free(&s->jobs);
    free(s->adapters);
    free(s->seqs);
    free(s->names);
    kv_cache_destroy(s->kv);
    free(s->config);
    free(s);
}

const uint32_t *sched_tokens(const struct sched *s, uint32_t seq, uint32_t *n_tokens)
{
    const struct sequence *q = &s->seqs[seq];
    *n_tokens = q->n_planned > q->n_known ? q->n_planned : q->n_known;
    return q->tokens;
}

const uint32_t *sched_blocks(const struct sched *s, uint32_t seq, uint32_t group, uint32_t *n_blocks)
{
    *n_blocks = 0;
    if (!s->seqs[seq].table)
        return NULL;
    return kv_table_blocks(s->seqs[seq].table, group, n_blocks);
}

uint32_t sched_cached_tokens(const struct sched *s, uint32_t seq)
{
    return s->waits->seqs[seq].account.n_cached;
}

struct sched_account sched_account(const struct sched *s, uint32_t seq)
{
    return s->waits->seqs[seq].account;
}

struct sched_stats sched_stats(const struct sched *s)
{
    struct sched_stats stats = s->stats;
    stats.n_pins = s->pins->n;
    stats.n_pinned_blocks = s->pins->n_blocks;
    stats.n_kept = s->pins->n_kept;
    stats.n_kept_blocks = s->pins->n_kept_blocks;
    stats.budget_ratio = s->budget->used;
    stats.batch_wait = s->admission->batches.wait;
    stats.batch_size = s->admission->batches.size;
    return stats;
}

struct sched_tenant_stats sched_tenant_stats(const struct sched *s, uint32_t tenant)
{
    struct sched_tenant_stats stats = s->tenants[tenant];
    stats.n_evicted_blocks = kv_cache_evicted(s->kv, tenant);
    return stats;
}

struct kv_usage sched_kv_usage(const struct sched *s, uint32_t group)
{
    return kv_cache_usage(s->kv, group);
}

bool sched_idle(const struct sched *s)
{
    return s->names->n_free == s->names->n && s->step == s->committed;
}
