#include "memory/name_queue.h"

#include "memory/kv_cache.h"

#include <stdlib.h>
#include <string.h>

int name_queue_init(struct name_queue *q, uint32_t n_slots)
{
    *q = (struct name_queue){.oldest = KV_NO_BLOCK, .newest = KV_NO_BLOCK, .spare = KV_NO_BLOCK};
    if (n_slots == 0)
        return QUIRE_OK;
    q->slots = calloc(n_slots, sizeof *q->slots);
    if (!q->slots)
        return QUIRE_NO_MEMORY;
    int status = prefix_index_init(&q->names, n_slots);
    if (status) {
        name_queue_free(q);
        return status;
    }
    for (uint32_t i = 0; i < n_slots; i++)
        q->slots[i].next = i + 1 < n_slots ? i + 1 : KV_NO_BLOCK;
    q->n_slots = n_slots;
    q->spare = 0;
    return QUIRE_OK;
}

void name_queue_free(struct name_queue *q)
{
    prefix_index_free(&q->names);
    free(q->slots);
    memset(q, 0, sizeof *q);
}

uint32_t name_queue_find(const struct name_queue *q, const struct key256 *name)
{
    return q->n_queued > 0 ? prefix_index_find(&q->names, name) : KV_NO_BLOCK;
}

uint32_t name_queue_push(struct name_queue *q, const struct key256 *name, struct kv_label label)
{
    uint32_t slot = q->spare;
    struct queue_slot *s = &q->slots[slot];
    q->spare = s->next;
    *s = (struct queue_slot){.prev = q->newest, .next = KV_NO_BLOCK, .label = label};
    if (q->newest != KV_NO_BLOCK)
        q->slots[q->newest].next = slot;
    else
        q->oldest = slot;
    q->newest = slot;
    q->n_queued++;
    prefix_index_insert(&q->names, slot, name);
    return slot;
}

void name_queue_detach(struct name_queue *q, uint32_t slot)
{
    const struct queue_slot *s = &q->slots[slot];
    if (s->prev != KV_NO_BLOCK)
        q->slots[s->prev].next = s->next;
    else
        q->oldest = s->next;
    if (s->next != KV_NO_BLOCK)
        q->slots[s->next].prev = s->prev;
    else
        q->newest = s->prev;
    q->n_queued--;
    prefix_index_remove(&q->names, slot, prefix_tag(&q->names.hashes[slot]));
}

void name_queue_spare(struct name_queue *q, uint32_t slot)
{
    q->slots[slot].next = q->spare;
    q->spare = slot;
}

void name_queue_remove(struct name_queue *q, uint32_t slot)
{
    name_queue_detach(q, slot);
    name_queue_spare(q, slot);
}

int name_queue_check(const struct name_queue *q, const char *what, uint32_t group, struct quire_error *err)
{
    uint32_t n_queued = 0, n_spare = 0, prev = KV_NO_BLOCK;
    for (uint32_t i = q->oldest; i != KV_NO_BLOCK; prev = i, i = q->slots[i].next) {
        if (i >= q->n_slots || ++n_queued > q->n_slots || q->slots[i].prev != prev)
            return quire_fail(err, QUIRE_INTERNAL, "kv 6: group %u: the list of %s is broken", group, what);
        if (prefix_index_find(&q->names, &q->names.hashes[i]) != i)
            return quire_fail(err, QUIRE_INTERNAL, "kv 6: group %u: %s %u is not what its name finds", group, what, i);
    }
    for (uint32_t i = q->spare; i != KV_NO_BLOCK; i = q->slots[i].next)
        if (i >= q->n_slots || ++n_spare > q->n_slots || prefix_index_find(&q->names, &q->names.hashes[i]) == i)
            return quire_fail(err, QUIRE_INTERNAL, "kv 6: group %u: the spare %s are broken", group, what);
    if (q->newest != prev || n_queued != q->n_queued || n_queued + n_spare != q->n_slots)
        return quire_fail(err, QUIRE_INTERNAL, "kv 6: group %u: %u %s listed (counted %u) and %u spare of %u", group,
                          n_queued, what, q->n_queued, n_spare, q->n_slots);
    return QUIRE_OK;
}
