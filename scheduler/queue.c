#include "scheduler/queue.h"

#include "base/status.h"
#include "scheduler/state/sequence_state.h"

#include <stdlib.h>
#include <string.h>

int queue_init(struct queue *queue, uint32_t n_flows, uint32_t n_lanes, const struct sequence *seqs, uint32_t n_names,
               const struct sched_policy *policy, void *state)
{
    *queue = (struct queue){.n_flows = n_flows, .n_lanes = n_lanes, .seqs = seqs, .policy = policy, .state = state};
    queue->heaps = calloc(queue_n_heaps(queue), sizeof *queue->heaps);
    queue->active = calloc(queue_n_heaps(queue), sizeof *queue->active);
    queue->n_waiting = calloc(n_flows + 1, sizeof *queue->n_waiting);
    queue->at = malloc(n_names * sizeof *queue->at);
    if (!queue->heaps || !queue->active || !queue->n_waiting || !queue->at) {
        queue_free(queue);
        return QUIRE_NO_MEMORY;
    }
    for (uint32_t i = 0; i < n_names; i++)
        queue->at[i] = QUEUE_NONE;
    return QUIRE_OK;
}

void queue_free(struct queue *queue)
{
    for (uint32_t i = 0; queue->heaps && i < queue_n_heaps(queue); i++)
        free(queue->heaps[i].names);
    free(queue->heaps);
    free(queue->active);
    free(queue->n_waiting);
    free(queue->at);
    memset(queue, 0, sizeof *queue);
}

int queue_reserve(struct queue *queue, uint32_t index, uint32_t n)
{
    struct queue_heap *heap = &queue->heaps[index];
    if (n <= heap->capacity)
        return QUIRE_OK;
    uint32_t capacity = heap->capacity < 8 ? 8 : heap->capacity;
    while (capacity < n)
        capacity *= 2;
    uint32_t *names = realloc(heap->names, capacity * sizeof *names);
    if (!names)
        return QUIRE_NO_MEMORY;
    heap->names = names;
    heap->capacity = capacity;
    return QUIRE_OK;
}

bool queue_flow_before(const struct queue *queue, uint32_t a, uint32_t b)
{
    if (a == queue->n_flows || b == queue->n_flows || !queue->policy->flow_ranks)
        return a < b;
    const struct sched_flow_groups *groups = queue_groups(queue);
    if (groups && groups->of[a] != groups->of[b]) {
        a = groups->of[a];
        b = groups->of[b];
        return groups->ranks[a] != groups->ranks[b] ? groups->ranks[a] < groups->ranks[b] : a < b;
    }
    const uint64_t *ranks = queue->policy->flow_ranks(queue->state);
    return ranks[a] != ranks[b] ? ranks[a] < ranks[b] : a < b;
}

uint32_t queue_top(const struct queue *queue)
{
    uint32_t best = QUEUE_NONE;
    for (uint32_t i = 0; i < queue->n_active; i++) {
        if (queue->heaps[queue->active[i]].passed)
            continue;
        uint32_t top = queue->heaps[queue->active[i]].names[0];
        if (best == QUEUE_NONE || queue_before(queue, &queue->seqs[top].key, &queue->seqs[best].key))
            best = top;
    }
    return best;
}

void queue_pass(struct queue *queue, uint32_t flow)
{
    for (uint32_t i = 0; i < queue->n_active; i++) {
        struct queue_heap *heap = &queue->heaps[queue->active[i]];
        heap->passed |= queue->seqs[heap->names[0]].key.flow == flow;
    }
}

static uint32_t heap_of(const struct queue *queue, uint32_t name)
{
    const struct sched_candidate *key = &queue->seqs[name].key;
    return queue_heap_of(queue, key->flow, key->tenant);
}

void queue_pass_heap(struct queue *queue, uint32_t name)
{
    queue->heaps[heap_of(queue, name)].passed = true;
}

void queue_pass_none(struct queue *queue)
{
    for (uint32_t i = 0; i < queue->n_active; i++)
        queue->heaps[queue->active[i]].passed = false;
}

/* ---- one heap: of one flow, so ranks and orders alone decide ---- */

static bool goes_before(const struct queue *queue, uint32_t a, uint32_t b)
{
    const struct sched_candidate *x = &queue->seqs[a].key, *y = &queue->seqs[b].key;
    return x->rank != y->rank ? x->rank < y->rank : x->order < y->order;
}

static void put(struct queue *queue, struct queue_heap *heap, uint32_t index, uint32_t name)
{
    heap->names[index] = name;
    queue->at[name] = index;
}

/* Moves `name` up from the hole at `index` to its position. */
static void sift_up(struct queue *queue, struct queue_heap *heap, uint32_t index, uint32_t name)
{
    while (index > 0 && goes_before(queue, name, heap->names[(index - 1) / 2])) {
        put(queue, heap, index, heap->names[(index - 1) / 2]);
        index = (index - 1) / 2;
    }
    put(queue, heap, index, name);
}

static void sift_down(struct queue *queue, struct queue_heap *heap, uint32_t index, uint32_t name)
{
    for (;;) {
        uint32_t child = 2 * index + 1;
        if (child >= heap->n)
            break;
        if (child + 1 < heap->n && goes_before(queue, heap->names[child + 1], heap->names[child]))
            child++;
        if (!goes_before(queue, heap->names[child], name))
            break;
        put(queue, heap, index, heap->names[child]);
        index = child;
    }
    put(queue, heap, index, name);
}

/* ---- flows come and go ---- */

static void count(struct queue *queue, uint32_t index, const struct sequence *q, bool in)
{
    struct queue_heap *heap = &queue->heaps[index];
    uint32_t flow = q->key.flow;
    uint64_t n_tokens = q->key.n_known;
    queue->n += in ? 1 : -1u;
    queue->n_waiting[flow] += in ? 1 : -1u;
    heap->n_tokens += in ? n_tokens : -n_tokens;
    queue->n_tokens += in ? n_tokens : -n_tokens;
    if (in && heap->n == 1) {
        heap->in_active = queue->n_active;
        queue->active[queue->n_active++] = index;
    } else if (!in && heap->n == 0) {
        uint32_t last = queue->active[--queue->n_active];
        queue->active[heap->in_active] = last;
        queue->heaps[last].in_active = heap->in_active;
    }
}

void queue_put_back(struct queue *queue, uint32_t name)
{
    uint32_t index = heap_of(queue, name);
    struct queue_heap *heap = &queue->heaps[index];
    sift_up(queue, heap, heap->n++, name);
    count(queue, index, &queue->seqs[name], true);
}

void queue_push(struct queue *queue, uint32_t name)
{
    uint32_t flow = queue->seqs[name].key.flow;
    queue_put_back(queue, name);
    if (queue->n_waiting[flow] == 1 && queue->policy->flow_begins && flow < queue->n_flows)
        queue->policy->flow_begins(queue->state, flow);
}

void queue_remove(struct queue *queue, uint32_t name)
{
    uint32_t index = queue->at[name], of = heap_of(queue, name);
    struct queue_heap *heap = &queue->heaps[of];
    uint32_t last = heap->names[--heap->n];
    queue->at[name] = QUEUE_NONE;
    if (last != name) {
        if (index > 0 && goes_before(queue, last, heap->names[(index - 1) / 2]))
            sift_up(queue, heap, index, last);
        else
            sift_down(queue, heap, index, last);
    }
    count(queue, of, &queue->seqs[name], false);
}
