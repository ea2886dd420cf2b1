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
 * 11. The counters of a tenant are those of its sequences; live sequences are counted by flow.
 * 12. A pin holds its blocks, filled ones in a list, and the sum of all pins' blocks is correct.
 * 13. The invariants of memory/kv_cache.h. */
#include "memory/kv_table.h"
#include "scheduler/checked.h"
#include "scheduler/sequence.h"
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
    if (c->max_pinned_percent > 100)
        return quire_fail(err, QUIRE_INVALID, "max_pinned_percent: must be at most 100, got %u", c->max_pinned_percent);
    if (c->step_target_us > 0 && c->cost.n_points == 0)
        return quire_fail(err, QUIRE_INVALID, "step_target_us: needs a cost model");
    return c->cost.n_points > 0 ? sched_cost_check(&c->cost, err) : QUIRE_OK;
}

/* ---- the policy and its flows ---- */

/* A policy's state and its queue. On an error both are freed. */
struct policy_parts {
    void *state;
    struct queue queue;
    uint32_t *flow_live, *flow_order, *flow_at, *flow_given;
    uint64_t *flow_wants;
};

static void free_parts(const struct sched_policy *policy, struct policy_parts *p)
{
    queue_free(&p->queue);
    free(p->flow_live);
    free(p->flow_order);
    free(p->flow_at);
    free(p->flow_given);
    free(p->flow_wants);
    if (policy->destroy)
        policy->destroy(p->state);
    *p = (struct policy_parts){0};
}

static int make_parts(const struct sched *s, const struct sched_policy *policy,
                      const struct sched_policy_options *options, struct policy_parts *p, struct quire_error *err)
{
    *p = (struct policy_parts){0};
    int status = policy->create ? policy->create(options, &p->state, err) : QUIRE_OK;
    if (status)
        return status;
    uint32_t n = policy->n_flows ? policy->n_flows(p->state) : 1;
    p->flow_live = calloc(n + 1, sizeof *p->flow_live);
    p->flow_order = calloc(n + 1, sizeof *p->flow_order);
    p->flow_at = calloc(n + 1, sizeof *p->flow_at);
    p->flow_given = calloc(n + 1, sizeof *p->flow_given);
    p->flow_wants = calloc(n + 1, sizeof *p->flow_wants);
    if (!p->flow_live || !p->flow_order || !p->flow_at || !p->flow_given || !p->flow_wants ||
        queue_init(&p->queue, n, s->seqs, policy, p->state)) {
        free_parts(policy, p);
        return quire_fail(err, QUIRE_NO_MEMORY, "policy: out of memory");
    }
    for (uint32_t i = 0; i <= n; i++)
        p->flow_order[i] = i;
    return QUIRE_OK;
}

static void take_parts(struct sched *s, const struct sched_policy *policy, const struct policy_parts *p)
{
    s->config.policy = policy;
    s->policy_state = p->state;
    s->queue = p->queue;
    s->flow_live = p->flow_live;
    s->flow_order = p->flow_order;
    s->flow_at = p->flow_at;
    s->flow_given = p->flow_given;
    s->flow_wants = p->flow_wants;
}

static struct policy_parts parts_of(const struct sched *s)
{
    return (struct policy_parts){.state = s->policy_state,
                                 .queue = s->queue,
                                 .flow_live = s->flow_live,
                                 .flow_order = s->flow_order,
                                 .flow_at = s->flow_at,
                                 .flow_given = s->flow_given,
                                 .flow_wants = s->flow_wants};
}

/* Counts the live sequences by their flow under the new policy and reserves space for all of them. */
static int reserve_flows(struct sched *s, const struct sched_policy *policy, struct policy_parts *p)
{
    for (uint32_t i = 0; i < s->n_names; i++) {
        struct sequence *q = &s->seqs[i];
        if (!q->job)
            continue;
        uint32_t flow = policy->flow ? policy->flow(p->state, &q->key) : 0;
        p->flow_live[q->key.background ? p->queue.n_flows : flow]++;
    }
    for (uint32_t i = 0; i <= p->queue.n_flows; i++)
        if (queue_reserve(&p->queue, i, p->flow_live[i]))
            return QUIRE_NO_MEMORY;
    return QUIRE_OK;
}

int sched_set_policy(struct sched *s, const struct sched_policy *policy, const struct sched_policy_options *options,
                     struct quire_error *err)
{
    struct sched_policy_options changed = *options;
    struct policy_parts parts, old = parts_of(s);
    changed.n_tenants = s->n_tenants;
    int status = make_parts(s, policy, &changed, &parts, err);
    if (status)
        return status;
    if (reserve_flows(s, policy, &parts)) {
        free_parts(policy, &parts);
        return quire_fail(err, QUIRE_NO_MEMORY, "policy: out of memory");
    }
    const struct sched_policy *before = s->config.policy;
    take_parts(s, policy, &parts);
    for (uint32_t i = 0; i < s->n_names; i++) {
        struct sequence *q = &s->seqs[i];
        bool queued = q->queue_index != QUEUE_NONE;
        if (!q->job)
            continue;
        q->queue_index = QUEUE_NONE;
        sched_rank(s, q);
        if (queued)
            sched_queue_push(s, q);
    }
    s->config.policy_options = changed;
    s->config.policy_options.tenant_weights = NULL; /* the policy has its copy */
    s->blocked_order = 0;
    free_parts(before, &old);
    SCHED_CHECKED(s);
    return QUIRE_OK;
}

const struct sched_policy *sched_policy_of(const struct sched *s)
{
    return s->config.policy;
}

double sched_policy_figure(const struct sched *s, const char **name)
{
    *name = NULL;
    return s->config.policy->figure ? s->config.policy->figure(s->policy_state, name) : 0;
}

/* ---- creation ---- */

/* Allocates everything of fixed size. After an error, sched_destroy frees it. */
static int allocate(struct sched *s, struct quire_error *err)
{
    const struct sched_config *c = &s->config;
    int status = kv_cache_create(&c->kv, &s->kv, err);
    if (status)
        return status;
    s->seqs = calloc(s->n_names, sizeof *s->seqs);
    s->free_names = calloc(s->n_names, sizeof *s->free_names);
    s->retired = calloc(s->n_names, sizeof *s->retired);
    s->running = calloc(c->max_num_seqs, sizeof *s->running);
    s->scratch = calloc(c->max_num_seqs, sizeof *s->scratch);
    s->prefills = calloc(c->max_num_seqs, sizeof *s->prefills);
    s->computing = calloc(c->max_num_seqs, sizeof *s->computing);
    s->tenants = calloc(s->n_tenants, sizeof *s->tenants);
    s->tables = calloc((size_t)c->max_num_seqs * (c->overlap_depth + 1), sizeof *s->tables);
    bool ok = s->seqs && s->free_names && s->retired && s->running && s->tables && s->scratch && s->prefills &&
              s->computing && s->tenants;
    for (uint32_t i = 0; i < c->overlap_depth + 2; i++) {
        s->slots[i].rows = calloc(c->max_num_seqs, sizeof *s->slots[i].rows);
        s->slots[i].preempted = calloc(c->max_num_seqs, sizeof *s->slots[i].preempted);
        s->slots[i].admitted = calloc(c->max_num_seqs, sizeof *s->slots[i].admitted);
        s->slots[i].refused = calloc(SCHED_MAX_REFUSED, sizeof *s->slots[i].refused);
        ok = ok && s->slots[i].rows && s->slots[i].preempted && s->slots[i].admitted && s->slots[i].refused;
    }
    if (!ok)
        return quire_fail(err, QUIRE_NO_MEMORY, "scheduler: out of memory");
    struct policy_parts parts;
    status = make_parts(s, c->policy, &c->policy_options, &parts, err);
    if (!status)
        take_parts(s, c->policy, &parts);
    return status;
}

/* Block tables for everything that can hold blocks at the same time: running sequences, and those that a launched step
 * still touches. Each has space for the longest sequence, so a step never allocates. */
static int create_tables(struct sched *s, struct quire_error *err)
{
    uint32_t n = s->config.max_num_seqs * (s->config.overlap_depth + 1);
    while (s->n_tables < n) {
        int status = kv_table_create(s->kv, &s->tables[s->n_tables], err);
        if (status)
            return status;
        s->n_tables++;
        if (kv_table_prepare(s->tables[s->n_tables - 1], s->config.max_model_len))
            return quire_fail(err, QUIRE_NO_MEMORY, "scheduler: out of memory for block tables");
    }
    s->n_spare = s->n_tables;
    return QUIRE_OK;
}

int sched_create(const struct sched_config *config, struct sched **out, struct quire_error *err)
{
    *out = NULL;
    int status = check_config(config, err);
    if (status)
        return status;
    struct sched *s = calloc(1, sizeof *s);
    if (!s)
        return quire_fail(err, QUIRE_NO_MEMORY, "scheduler: out of memory");
    s->config = *config;
    s->next_order = 1;
    s->n_tenants = config->policy_options.n_tenants ? config->policy_options.n_tenants : 1;
    s->config.policy_options.n_tenants = s->config.kv.n_tenants = s->n_tenants;
    budget_init(&s->budget, config->step_target_us, config->adaptive_budget);
    /* Waiting, running, and sequences that are over but touched or not yet collected. */
    s->n_names = config->max_queued_requests + config->max_num_seqs * (config->overlap_depth + 2);
    status = allocate(s, err);
    if (!status)
        status = create_tables(s, err);
    s->config.policy_options.tenant_weights = NULL; /* the policy has its copy */
    if (status) {
        sched_destroy(s);
        return status;
    }
    for (uint32_t i = 0; i < s->n_names; i++) {
        s->seqs[i].queue_index = QUEUE_NONE;
        s->free_names[s->n_free_names++] = s->n_names - 1 - i;
    }
    *out = s;
    return QUIRE_OK;
}

void sched_destroy(struct sched *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; s->seqs && i < s->n_names; i++) {
        if (s->seqs[i].table)
            sched_drop_table(s, &s->seqs[i]);
        free(s->seqs[i].tokens);
    }
    size_t at = 0;
    for (struct sched_job *job; (job = (struct sched_job *)id_map_next(&s->jobs, &at));) {
        pins_forget(s, job->pin);
        free(job);
    }
    pins_drop(s, UINT32_MAX);
    for (uint32_t i = 0; i < s->n_tables; i++)
        kv_table_destroy(s->tables[i]);
    for (uint32_t i = 0; i < PLAN_SLOTS_MAX; i++) {
        free(s->slots[i].rows);
        free(s->slots[i].preempted);
        free(s->slots[i].admitted);
        free(s->slots[i].refused);
    }
    if (s->flow_order) { /* the policy was created */
        struct policy_parts parts = parts_of(s);
        free_parts(s->config.policy, &parts);
    }
    free(s->tenants);
    free(s->computing);
    free(s->prefills);
    free(s->scratch);
    free(s->tables);
    free(s->running);
    id_map_free(&s->jobs);
    free(s->retired);
    free(s->free_names);
    free(s->seqs);
    kv_cache_destroy(s->kv);
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
    return s->seqs[seq].account.n_cached;
}

struct sched_account sched_account(const struct sched *s, uint32_t seq)
{
    return s->seqs[seq].account;
}

struct sched_stats sched_stats(const struct sched *s)
{
    struct sched_stats stats = s->stats;
    stats.n_pins = s->pins.n;
    stats.n_pinned_blocks = s->pins.n_blocks;
    stats.n_kept = s->pins.n_kept;
    stats.n_kept_blocks = s->pins.n_kept_blocks;
    stats.budget_ratio = s->budget.ratio;
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
    return s->n_free_names == s->n_names && s->step == s->committed;
}
