/* The waiting sequences that may be admitted: a binary heap for each flow, the lower rank and then
 * the lower order at the top, and one more for background work. Push and remove are O(log n), top is
 * O(flows that have somebody waiting), and nothing is allocated after queue_reserve().
 *
 * The queue holds names and reads the keys where the sequences lie; rank, order and flow must not
 * change while a sequence is queued. Flow ranks may.
 */
#ifndef QUIRE_SCHEDULER_QUEUE_H
#define QUIRE_SCHEDULER_QUEUE_H

#include "scheduler/policy.h"

#include <stdbool.h>
#include <stdint.h>

#define QUEUE_NONE UINT32_MAX

struct sequence;

struct queue_heap {
    uint32_t *names; /* heap order */
    uint32_t n, capacity;
    uint64_t n_tokens;   /* known tokens of those queued */
    uint32_t in_active;  /* its place in active, when n > 0 */
    bool passed;         /* queue_top() looks past it */
};

struct queue {
    uint32_t n;           /* queued in all */
    uint32_t n_flows;     /* heaps[n_flows] is the background's */
    struct queue_heap *heaps;
    uint32_t *active;     /* heaps that are not empty */
    uint32_t n_active;
    uint64_t n_tokens;
    struct sequence *seqs; /* by name; key and queue_index are read, queue_index written */
    const struct sched_policy *policy;
    void *state;          /* the policy's, borrowed */
};

int queue_init(struct queue *queue, uint32_t n_flows, struct sequence *seqs, const struct sched_policy *policy,
               void *state);
void queue_free(struct queue *queue);

/* Room for n sequences of a flow, so that pushes cannot fail. QUIRE_NO_MEMORY. */
int queue_reserve(struct queue *queue, uint32_t flow, uint32_t n);

/* QUEUE_NONE when empty, or all flows are passed over. */
uint32_t queue_top(const struct queue *queue);
/* Passes a flow over until queue_pass_none(). */
void queue_pass(struct queue *queue, uint32_t flow);
void queue_pass_none(struct queue *queue);
void queue_push(struct queue *queue, uint32_t name);
void queue_remove(struct queue *queue, uint32_t name);

/* Does flow a go before flow b, as they stand now? */
bool queue_flow_before(const struct queue *queue, uint32_t a, uint32_t b);

/* Does a go before b under the policy, as its flows stand now? */
static inline bool queue_before(const struct queue *queue, const struct sched_candidate *a,
                                const struct sched_candidate *b)
{
    if (a->flow != b->flow)
        return queue_flow_before(queue, a->flow, b->flow);
    return a->rank != b->rank ? a->rank < b->rank : a->order < b->order;
}

#endif
