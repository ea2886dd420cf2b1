/* The waiting sequences that may be admitted: a binary heap, the policy's first at the top.
 * Push and remove are O(log n), top is O(1), nothing is allocated after creation.
 *
 * The queue holds names and reads the keys where the sequences lie; a key must not change while
 * its sequence is queued.
 */
#ifndef QUIRE_SCHEDULER_QUEUE_H
#define QUIRE_SCHEDULER_QUEUE_H

#include "scheduler/policy.h"

#include <stdint.h>

#define QUEUE_NONE UINT32_MAX

struct sequence;

struct queue {
    uint32_t *names; /* heap order */
    uint32_t n;
    struct sequence *seqs; /* by name; their key and queue_index are read and written here */
    const struct sched_policy *policy;
};

int queue_init(struct queue *queue, uint32_t capacity, struct sequence *seqs,
               const struct sched_policy *policy);
void queue_free(struct queue *queue);

/* QUEUE_NONE when empty. */
uint32_t queue_top(const struct queue *queue);
void queue_push(struct queue *queue, uint32_t name);
void queue_remove(struct queue *queue, uint32_t name);

#endif
