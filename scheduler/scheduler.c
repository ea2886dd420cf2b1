/* Invariants (sched_check, in check.c):
 *  1. Every name is in one state, and the counts of names by state are right.
 *  2. Queued are exactly the WAITING sequences that are not held, in heap order under the policy.
 *  3. The running list names every RUNNING sequence once; at most max_num_seqs run.
 *  4. n_computed <= n_planned <= min(n_known + n_sampling, n_positions), n_known + n_sampling <=
 *     n_prompt + max_tokens, and n_sampling is the number of uncommitted rows of the sequence that
 *     sample.
 *  5. RUNNING, LEAVING and ENDING sequences have a block table, nobody else; it covers the planned
 *     positions. Every table is held by one sequence or spare.
 *  6. LEAVING and ENDING sequences have a row in an uncommitted plan.
 *  7. A block of a sequence is published only when all its positions are computed.
 *  8. At most overlap_depth + 1 plans are uncommitted. Each keeps to the token budget and the logit
 *     rows, and has at most one row of a sequence.
 *  9. A request has n_live choices that are not over. Its choices follow only while one of them
 *     leads, and at most one does.
 * 10. No sequence that a launched step touches has given back a block that the step reads or
 *     writes.
 * 11. The invariants of memory/kv_cache.h.
 */
#include "scheduler/sequence.h"

#include <stdlib.h>

/* Counts of tokens and sequences stay far inside 32 bits, sums included. */
#define MAX_TOKENS (1u << 28)
#define MAX_SEQS (1u << 20)

static int check_config(const struct sched_config *c, struct quire_error *err)
{
    if (c->max_num_seqs == 0 || c->max_num_seqs > MAX_SEQS)
        return quire_fail(err, QUIRE_INVALID, "max_num_seqs: must be 1 to %u, got %u", MAX_SEQS,
                          c->max_num_seqs);
    if (c->max_num_batched_tokens == 0 || c->max_num_batched_tokens > MAX_TOKENS)
        return quire_fail(err, QUIRE_INVALID, "max_num_batched_tokens: must be 1 to %u, got %u",
                          MAX_TOKENS, c->max_num_batched_tokens);
    if (c->max_model_len == 0 || c->max_model_len > MAX_TOKENS)
        return quire_fail(err, QUIRE_INVALID, "max_model_len: must be 1 to %u, got %u", MAX_TOKENS,
                          c->max_model_len);
    if (c->max_queued_requests == 0 || c->max_queued_requests > MAX_SEQS)
        return quire_fail(err, QUIRE_INVALID, "max_queued_requests: must be 1 to %u, got %u",
                          MAX_SEQS, c->max_queued_requests);
    if (c->max_logit_rows < c->max_num_seqs)
        return quire_fail(err, QUIRE_INVALID,
                          "max_logit_rows: must be at least max_num_seqs (%u), got %u",
                          c->max_num_seqs, c->max_logit_rows);
    if (c->overlap_depth > 1)
        return quire_fail(err, QUIRE_INVALID, "overlap_depth: must be 0 or 1, got %u",
                          c->overlap_depth);
    if (!c->policy)
        return quire_fail(err, QUIRE_INVALID, "policy: there is none");
    return QUIRE_OK;
}

/* Everything of a fixed size. What was allocated before a failure is freed by sched_destroy. */
static int allocate(struct sched *s, struct quire_error *err)
{
    const struct sched_config *c = &s->config;
    int status = kv_cache_create(&c->kv, &s->kv, err);
    if (status)
        return status;
    uint32_t n_buckets = 1;
    while (n_buckets < s->n_names)
        n_buckets *= 2;
    s->bucket_mask = n_buckets - 1;
    s->seqs = calloc(s->n_names, sizeof *s->seqs);
    s->free_names = calloc(s->n_names, sizeof *s->free_names);
    s->retired = calloc(s->n_names, sizeof *s->retired);
    s->buckets = calloc(n_buckets, sizeof *s->buckets);
    s->running = calloc(c->max_num_seqs, sizeof *s->running);
    s->tables = calloc((size_t)c->max_num_seqs * (c->overlap_depth + 1), sizeof *s->tables);
    bool ok = s->seqs && s->free_names && s->retired && s->buckets && s->running && s->tables;
    ok = ok && queue_init(&s->queue, s->n_names, s->seqs, c->policy) == QUIRE_OK;
    for (uint32_t i = 0; i < c->overlap_depth + 2; i++) {
        s->slots[i].rows = calloc(c->max_num_seqs, sizeof *s->slots[i].rows);
        s->slots[i].preempted = calloc(c->max_num_seqs, sizeof *s->slots[i].preempted);
        s->slots[i].admitted = calloc(c->max_num_seqs, sizeof *s->slots[i].admitted);
        ok = ok && s->slots[i].rows && s->slots[i].preempted && s->slots[i].admitted;
    }
    return ok ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "scheduler: out of memory");
}

/* Block tables for everything that can hold blocks at once: the running, and those that a launched
 * step still touches. They have room for the longest sequence, so that a step never allocates. */
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
    /* Waiting, running, and those that are over but touched or not yet collected. */
    s->n_names = config->max_queued_requests + config->max_num_seqs * (config->overlap_depth + 2);
    status = allocate(s, err);
    if (!status)
        status = create_tables(s, err);
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
    for (uint32_t i = 0; s->buckets && i <= s->bucket_mask; i++)
        while (s->buckets[i]) {
            struct request *request = s->buckets[i];
            s->buckets[i] = request->next;
            free(request);
        }
    for (uint32_t i = 0; i < s->n_tables; i++)
        kv_table_destroy(s->tables[i]);
    for (uint32_t i = 0; i < PLAN_SLOTS_MAX; i++) {
        free(s->slots[i].rows);
        free(s->slots[i].preempted);
        free(s->slots[i].admitted);
    }
    queue_free(&s->queue);
    free(s->tables);
    free(s->running);
    free(s->buckets);
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

const uint32_t *sched_blocks(const struct sched *s, uint32_t seq, uint32_t group,
                             uint32_t *n_blocks)
{
    *n_blocks = 0;
    if (!s->seqs[seq].table)
        return NULL;
    return kv_table_blocks(s->seqs[seq].table, group, n_blocks);
}

uint32_t sched_cached_tokens(const struct sched *s, uint32_t seq)
{
    return s->seqs[seq].cached_tokens;
}

struct sched_stats sched_stats(const struct sched *s)
{
    return s->stats;
}

struct kv_usage sched_kv_usage(const struct sched *s, uint32_t group)
{
    return kv_cache_usage(s->kv, group);
}

bool sched_idle(const struct sched *s)
{
    return s->n_free_names == s->n_names && s->step == s->committed;
}
