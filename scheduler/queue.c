#include "scheduler/queue.h"

#include "base/status.h"
#include "scheduler/sequence.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int queue_init(struct queue *queue, uint32_t capacity, struct sequence *seqs,
               const struct sched_policy *policy)
{
    *queue = (struct queue){.seqs = seqs, .policy = policy};
    queue->names = calloc(capacity, sizeof *queue->names);
    return queue->names ? QUIRE_OK : QUIRE_NO_MEMORY;
}

void queue_free(struct queue *queue)
{
    free(queue->names);
    memset(queue, 0, sizeof *queue);
}

uint32_t queue_top(const struct queue *queue)
{
    return queue->n > 0 ? queue->names[0] : QUEUE_NONE;
}

static bool goes_before(const struct queue *queue, uint32_t a, uint32_t b)
{
    return queue->policy->compare(&queue->seqs[a].key, &queue->seqs[b].key) < 0;
}

static void put(struct queue *queue, uint32_t index, uint32_t name)
{
    queue->names[index] = name;
    queue->seqs[name].queue_index = index;
}

/* Moves `name` up from the hole at `index` to where it belongs. */
static void sift_up(struct queue *queue, uint32_t index, uint32_t name)
{
    while (index > 0 && goes_before(queue, name, queue->names[(index - 1) / 2])) {
        put(queue, index, queue->names[(index - 1) / 2]);
        index = (index - 1) / 2;
    }
    put(queue, index, name);
}

static void sift_down(struct queue *queue, uint32_t index, uint32_t name)
{
    for (;;) {
        uint32_t child = 2 * index + 1;
        if (child >= queue->n)
            break;
        if (child + 1 < queue->n &&
            goes_before(queue, queue->names[child + 1], queue->names[child]))
            child++;
        if (!goes_before(queue, queue->names[child], name))
            break;
        put(queue, index, queue->names[child]);
        index = child;
    }
    put(queue, index, name);
}

void queue_push(struct queue *queue, uint32_t name)
{
    sift_up(queue, queue->n++, name);
}

void queue_remove(struct queue *queue, uint32_t name)
{
    uint32_t index = queue->seqs[name].queue_index;
    uint32_t last = queue->names[--queue->n];
    queue->seqs[name].queue_index = QUEUE_NONE;
    if (last == name)
        return;
    if (index > 0 && goes_before(queue, last, queue->names[(index - 1) / 2]))
        sift_up(queue, index, last);
    else
        sift_down(queue, index, last);
}
