#include "memory/kv_table.h"
#include "scheduler/sequence.h"
#include "scheduler/state/scheduler_state.h"
#include "scheduler/state/sequence_state.h"

#include <stdlib.h>

void sched_rank(struct sched *s, struct sequence *q)
{
    const struct sched_policy *policy = s->flows->policy;
    uint32_t bt = s->config->kv.block_tokens;
    if (!policy->ranks_by_cache)
        q->key.n_cached = 0; /* another policy may have set it */
    else if (seq_may_hit(s, q))
        q->key.n_cached = bt * kv_cache_peek(s->kv, seq_hashes(q), q->n_hashes, q->key.n_cached / bt);
    if (q->key.background)
        q->key.flow = s->flows->queue.n_flows;
    else
        q->key.flow = policy->flow ? policy->flow(s->flows->state, &q->key) : 0;
    q->key.rank = policy->rank ? policy->rank(s->flows->state, &q->key) : 0;
    q->lent_rank = UINT64_MAX;
}

void sched_queue_push(struct sched *s, struct sequence *q)
{
    queue_push(&s->flows->queue, sched_name(s, q));
}

void sched_queue_remove(struct sched *s, struct sequence *q)
{
    queue_remove(&s->flows->queue, sched_name(s, q));
}

void sched_enqueue(struct sched *s, struct sequence *q)
{
    q->state = SEQ_WAITING;
    q->key.n_known = q->n_known;
    q->key.n_computed = 0;
    sched_rank(s, q);
    sched_queue_push(s, q);
}

void sched_starts_running(struct sched *s, struct sequence *q)
{
    s->stats.n_waiting--;
    s->n_live_waiting -= !q->key.background;
    s->stats.n_running++;
    s->tenants[q->key.tenant].n_waiting--;
    s->tenants[q->key.tenant].n_running++;
    caps_starts(s, q);
}

void sched_stops_running(struct sched *s, struct sequence *q)
{
    s->stats.n_running--;
    s->stats.n_waiting++;
    s->n_live_waiting += !q->key.background;
    s->tenants[q->key.tenant].n_running--;
    s->tenants[q->key.tenant].n_waiting++;
    caps_stops(s, q);
    s->admission->batch_left += s->config->batching != SCHED_CONTINUOUS;
    seq_waits(s, q)->account.n_preemptions++;
    seq_drop_proposal(s, q);
    seq_waits(s, q)->since_us = s->waits->now_us;
}

void sched_release_followers(struct sched *s, struct sequence *leader)
{
    const struct sched_job *job = leader->job;
    leader->leads = false;
    for (uint32_t i = 0; i < job->n; i++) {
        struct sequence *q = &s->seqs[job->seqs[i]];
        if (q->job != job || q->state != SEQ_FOLLOWING)
            continue;
        s->admission->batch_left += s->config->batching != SCHED_CONTINUOUS;
        sched_enqueue(s, q);
    }
}

void sched_drop_table(struct sched *s, struct sequence *q)
{
    kv_table_clear(q->table);
    s->tables[s->n_spare++] = q->table;
    q->table = NULL;
    q->n_reserved = 0;
}

void sched_requeue(struct sched *s, struct sequence *q)
{
    sched_drop_table(s, q);
    q->n_computed = q->n_planned = q->n_published = 0;
    sched_enqueue(s, q);
}

void sched_retire(struct sched *s, struct sequence *q)
{
    if (q->table)
        sched_drop_table(s, q);
    q->state = SEQ_RETIRED;
    names_retire(s->names, sched_name(s, q));
}

/* The leader ended before its prompt was planned: the next choice becomes the leader. */
static void pass_on_lead(struct sched *s, const struct sched_job *job)
{
    for (uint32_t i = 0; i < job->n; i++) {
        struct sequence *q = &s->seqs[job->seqs[i]];
        if (q->job != job || q->state != SEQ_FOLLOWING)
            continue;
        q->leads = true;
        q->n_prompt_logits = job->prompt_logprobs ? 0 : SEQ_NO_LOGITS;
        sched_enqueue(s, q);
        return;
    }
}

static void leave_job(struct sched *s, struct sequence *q)
{
    struct sched_job *job = q->job;
    q->job = NULL;
    if (--job->n_live > 0) {
        if (q->leads)
            pass_on_lead(s, job);
        return;
    }
    s->stats.n_waiting_tokens -= job->n_waiting_tokens;
    pins_forget(s, job->pin);
    id_map_remove(&s->jobs, job->id);
    free(job);
}

void sched_end(struct sched *s, struct sequence *q)
{
    bool was_leaving = q->state == SEQ_LEAVING;
    struct sched_tenant_stats *tenant = &s->tenants[q->key.tenant];
    if (q->state == SEQ_RUNNING) {
        s->stats.n_running--;
        tenant->n_running--;
        caps_stops(s, q);
    } else {
        s->stats.n_waiting--;
        s->n_live_waiting -= !q->key.background;
        tenant->n_waiting--;
    }
    if (queue_has(&s->flows->queue, sched_name(s, q))) {
        sched_queue_remove(s, q);
        s->admission->batch_left -= s->admission->batch_left > 0; /* it may have been one that was to join */
    }
    s->flows->live[q->key.flow]--;
    seq_drop_proposal(s, q);
    s->waits->n_new -= !q->was_admitted;
    q->state = SEQ_ENDING;
    leave_job(s, q);
    if (q->table && q->last_step > s->committed) {
        s->n_touched += !was_leaving;
        return;
    }
    s->n_touched -= was_leaving;
    sched_retire(s, q);
}
