/* The waiting sequences that may be admitted: a binary heap for each flow, or for each tenant in it, ordered by rank and
 * then by submission order, and one more for background work. Push and remove are O(log n), top is O(flows with waiting sequences).
 * Nothing is allocated after queue_reserve().
 *
 * The queue holds names and reads the keys in the sequences. Rank, order and flow must not change while a sequence is
 * queued; flow ranks may.
 */
#ifndef QUIRE_SCHEDULER_QUEUE_H
#define QUIRE_SCHEDULER_QUEUE_H

#include "scheduler/policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QUEUE_NONE UINT32_MAX

struct sequence;

struct queue_heap {
    uint32_t *names; /* heap order */
    uint32_t n, capacity;
    uint64_t n_tokens; /* known tokens of the queued sequences */
    uint32_t in_active; /* its index in active, if n > 0 */
    bool passed; /* queue_top() skips it */
};

struct queue {
    uint32_t n; /* queued in all */
    uint32_t n_flows; /* sequences of flow n_flows are the background */
    uint32_t n_lanes; /* heaps of a flow: 1, or one for each tenant */
    struct queue_heap *heaps; /* [queue_n_heaps()] */
    uint32_t *n_waiting; /* [n_flows + 1] */
    uint32_t *active; /* heaps that are not empty */
    uint32_t n_active;
    uint64_t n_tokens;
    const struct sequence *seqs; /* [n_names]; the queue reads their keys */
    uint32_t *at; /* [n_names] index of each in its heap; QUEUE_NONE: not queued */
    const struct sched_policy *policy;
    void *state; /* the policy's, borrowed */
};

/* n_lanes: 1, or the number of tenants if those of one flow can pass each other. */
int queue_init(struct queue *queue, uint32_t n_flows, uint32_t n_lanes, const struct sequence *seqs, uint32_t n_names,
               const struct sched_policy *policy, void *state);
void queue_free(struct queue *queue);

/* All heaps, with the background's, which is the last. */
static inline uint32_t queue_n_heaps(const struct queue *queue)
{
    return queue->n_flows * queue->n_lanes + 1;
}

/* The heap of a flow and tenant. */
static inline uint32_t queue_heap_of(const struct queue *queue, uint32_t flow, uint32_t tenant)
{
    return flow * queue->n_lanes + (queue->n_lanes > 1 && flow < queue->n_flows ? tenant : 0);
}

/* Reserves space for n sequences of a heap, so that pushes cannot fail. QUIRE_NO_MEMORY. */
int queue_reserve(struct queue *queue, uint32_t heap, uint32_t n);

/* Returns QUEUE_NONE if the queue is empty or all heaps are skipped. */
uint32_t queue_top(const struct queue *queue);
/* Skips the heaps of a flow, or the heap of one sequence, until queue_pass_none(). */
void queue_pass(struct queue *queue, uint32_t flow);
void queue_pass_heap(struct queue *queue, uint32_t name);
void queue_pass_none(struct queue *queue);
void queue_push(struct queue *queue, uint32_t name);
/* The same for a sequence that was removed for a moment: its flow did not stop waiting. */
void queue_put_back(struct queue *queue, uint32_t name);
void queue_remove(struct queue *queue, uint32_t name);
static inline bool queue_has(const struct queue *queue, uint32_t name)
{
    return queue->at[name] != QUEUE_NONE;
}

/* NULL: the policy has no groups of flows. */
static inline const struct sched_flow_groups *queue_groups(const struct queue *queue)
{
    return queue->policy->flow_groups ? queue->policy->flow_groups(queue->state) : NULL;
}

/* Returns whether flow a is currently before flow b. */
bool queue_flow_before(const struct queue *queue, uint32_t a, uint32_t b);

/* Returns whether a is currently before b under the policy. */
static inline bool queue_before(const struct queue *queue, const struct sched_candidate *a,
                                const struct sched_candidate *b)
{
    if (a->flow != b->flow)
        return queue_flow_before(queue, a->flow, b->flow);
    return a->rank != b->rank ? a->rank < b->rank : a->order < b->order;
}

#endif
