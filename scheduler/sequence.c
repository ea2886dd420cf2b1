#include "scheduler/sequence.h"

#include <stdlib.h>

void sched_enqueue(struct sched *s, struct sequence *q)
{
    q->state = SEQ_WAITING;
    q->key.n_known = q->n_known;
    q->key.n_computed = 0;
    if (!q->held)
        queue_push(&s->queue, sched_name(s, q));
}

void sched_release_followers(struct sched *s, struct sequence *leader)
{
    const struct request *request = leader->request;
    leader->leads = false;
    for (uint32_t i = 0; i < request->n; i++) {
        struct sequence *q = &s->seqs[request->seqs[i]];
        if (q->request == request && q->state == SEQ_FOLLOWING)
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
    s->retired[(s->retired_head + s->n_retired++) % s->n_names] = sched_name(s, q);
}

/* The leader is over before it had the prompt planned: the next choice takes its place. */
static void pass_on_lead(struct sched *s, const struct request *request)
{
    for (uint32_t i = 0; i < request->n; i++) {
        struct sequence *q = &s->seqs[request->seqs[i]];
        if (q->request != request || q->state != SEQ_FOLLOWING)
            continue;
        q->leads = true;
        q->prompt_logits = request->prompt_logprobs;
        sched_enqueue(s, q);
        return;
    }
}

static void leave_request(struct sched *s, struct sequence *q)
{
    struct request *request = q->request;
    q->request = NULL;
    if (--request->n_live > 0) {
        if (q->leads)
            pass_on_lead(s, request);
        return;
    }
    s->stats.n_waiting_tokens -= request->n_waiting_tokens;
    struct request **link = &s->buckets[request->id & s->bucket_mask];
    while (*link != request)
        link = &(*link)->next;
    *link = request->next;
    free(request);
}

void sched_end(struct sched *s, struct sequence *q)
{
    bool was_leaving = q->state == SEQ_LEAVING;
    if (q->state == SEQ_RUNNING)
        s->stats.n_running--;
    else
        s->stats.n_waiting--;
    if (q->queue_index != QUEUE_NONE)
        queue_remove(&s->queue, sched_name(s, q));
    q->state = SEQ_ENDING;
    leave_request(s, q);
    if (q->table && q->last_step > s->committed) {
        s->n_touched += !was_leaving;
        return;
    }
    s->n_touched -= was_leaving;
    sched_retire(s, q);
}
