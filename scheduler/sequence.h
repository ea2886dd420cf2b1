/* What the files of scheduler/ do with a sequence: the questions that each step asks of it, and its transitions, which
 * sequence.c makes (state/sequence_state.h lists them). Private to this folder; one thread at a time. */
#ifndef QUIRE_SCHEDULER_SEQUENCE_H
#define QUIRE_SCHEDULER_SEQUENCE_H

#include "scheduler/state/scheduler_state.h"

/* Positions that could be planned now. 0 if all max_tokens are known or being sampled, or while the number of accepted
 * drafts is unknown. */
static inline uint32_t seq_remaining(const struct sequence *q)
{
    if (q->n_drafting > 0)
        return 0;
    uint32_t known = q->n_known + (q->gates ? 0 : q->n_sampling);
    return (known < q->n_positions ? known : q->n_positions) - q->n_planned;
}

/* Returns whether a row that ends before position `end`, without drafts, gives the next token. */
static inline bool seq_samples(const struct sequence *q, uint32_t end)
{
    return end == q->n_known + q->n_sampling && q->key.max_tokens > 0;
}

static inline void seq_drop_proposal(struct sched *s, struct sequence *q)
{
    s->n_proposals -= q->n_proposed > 0;
    q->n_proposed = 0;
}

/* Returns whether the sequence may take blocks from the prefix cache. */
static inline bool seq_may_hit(const struct sched *s, const struct sequence *q)
{
    return s->config->kv.prefix_caching && !q->job->no_prefix_hits;
}

/* Maximum of prompt positions that a hit may cover. The last known position is computed for its logits, and so are
 * positions whose logits are needed. */
static inline uint32_t seq_most_hit(const struct sequence *q)
{
    uint32_t most = q->n_known - 1;
    return most > q->n_prompt_logits ? q->n_prompt_logits : most;
}

/* Gets flow and rank from the policy. Not while the sequence is queued. */
void sched_rank(struct sched *s, struct sequence *q);
/* The sequence waits, again or for the first time: adds it to the queue. The caller keeps the counts. */
void sched_enqueue(struct sched *s, struct sequence *q);
/* Adds to and removes from the queue, with all related counters. */
void sched_queue_push(struct sched *s, struct sequence *q);
void sched_queue_remove(struct sched *s, struct sequence *q);
/* Moves between waiting and running, with all counters: admission and preemption. */
void sched_starts_running(struct sched *s, struct sequence *q);
void sched_stops_running(struct sched *s, struct sequence *q);
/* The load for a policy that rejects requests. n_tokens_before stays 0. */
struct sched_load sched_load_of(const struct sched *s, const struct sequence *q, uint64_t now_us);
/* The leader's prompt is planned: the other choices may be admitted from the next plan on. */
void sched_release_followers(struct sched *s, struct sequence *leader);
/* Releases the blocks and the table of a sequence. */
void sched_drop_table(struct sched *s, struct sequence *q);
/* A preempted sequence that no launched step touches restarts from its known tokens. */
void sched_requeue(struct sched *s, struct sequence *q);
/* Puts a sequence that is over and untouched on the retired list. */
void sched_retire(struct sched *s, struct sequence *q);
/* Ends a live sequence. The last choice of a request frees the request. */
void sched_end(struct sched *s, struct sequence *q);

#endif
