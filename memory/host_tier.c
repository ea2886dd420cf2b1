#include "memory/host_tier.h"

#include <stdlib.h>

struct host_tier *host_tier_create(uint32_t group, uint32_t n_host_blocks, uint32_t n_history, struct kv_ledger *ledger)
{
    struct host_tier *tier = calloc(1, sizeof *tier);
    if (!tier)
        return NULL;
    tier->ledger = ledger;
    tier->group = group;
    if (name_queue_init(&tier->blocks, n_host_blocks) || name_queue_init(&tier->history, n_history)) {
        host_tier_destroy(tier);
        return NULL;
    }
    return tier;
}

void host_tier_destroy(struct host_tier *tier)
{
    if (!tier)
        return;
    name_queue_free(&tier->blocks);
    name_queue_free(&tier->history);
    free(tier);
}

static void record(struct host_tier *tier, uint32_t device_block, uint32_t host_block, bool to_host)
{
    struct kv_ledger *ledger = tier->ledger;
    ledger->moves[ledger->n_moves++] = (struct kv_move){
        .group = tier->group,
        .device_block = device_block,
        .host_block = host_block,
        .to_host = to_host,
    };
}

void host_tier_lose(struct host_tier *tier, const struct key256 *name, struct kv_label label)
{
    struct name_queue *history = &tier->history;
    tier->n_lost++;
    tier->ledger->n_evicted[label.owner]++;
    if (history->n_slots == 0)
        return;
    if (history->spare == KV_NO_BLOCK)
        name_queue_remove(history, history->oldest);
    name_queue_push(history, name, label);
}

void host_tier_give_up(struct host_tier *tier, uint32_t device_block, const struct key256 *name, struct kv_label label)
{
    struct name_queue *blocks = &tier->blocks;
    const struct kv_ledger *ledger = tier->ledger;
    /* If no host block is spare and no name is queued, all host blocks are being loaded. */
    bool has_block = blocks->spare != KV_NO_BLOCK || blocks->n_queued > 0;
    if (!has_block || ledger->n_moves == ledger->capacity) {
        host_tier_lose(tier, name, label);
        return;
    }
    if (blocks->spare == KV_NO_BLOCK) {
        uint32_t oldest = blocks->oldest;
        struct key256 lost = blocks->names.hashes[oldest];
        struct kv_label lost_label = blocks->slots[oldest].label;
        name_queue_remove(blocks, oldest);
        host_tier_lose(tier, &lost, lost_label);
    }
    record(tier, device_block, name_queue_push(blocks, name, label), true);
    tier->n_spilled++;
}

uint32_t host_tier_take_back(struct host_tier *tier, const struct key256 *name)
{
    struct name_queue *places[] = {&tier->blocks, &tier->history};
    for (int i = 0; i < 2; i++) {
        uint32_t slot = name_queue_find(places[i], name);
        if (slot == KV_NO_BLOCK)
            continue;
        name_queue_remove(places[i], slot);
        return places[i]->slots[slot].label.uses;
    }
    return 0;
}

void host_tier_load(struct host_tier *tier, uint32_t host_block, uint32_t device_block)
{
    record(tier, device_block, host_block, false);
    name_queue_spare(&tier->blocks, host_block);
    tier->n_loaded++;
}

void host_tier_drop(struct host_tier *tier)
{
    while (tier->blocks.oldest != KV_NO_BLOCK) {
        uint32_t owner = tier->blocks.slots[tier->blocks.oldest].label.owner;
        name_queue_remove(&tier->blocks, tier->blocks.oldest);
        tier->n_lost++;
        tier->ledger->n_evicted[owner]++;
    }
    while (tier->history.oldest != KV_NO_BLOCK)
        name_queue_remove(&tier->history, tier->history.oldest);
}

int host_tier_check(const struct host_tier *tier, struct quire_error *err)
{
    int status = name_queue_check(&tier->blocks, "host blocks", tier->group, err);
    if (!status)
        status = name_queue_check(&tier->history, "remembered names", tier->group, err);
    if (status)
        return status;
    for (uint32_t i = tier->blocks.oldest; i != KV_NO_BLOCK; i = tier->blocks.slots[i].next)
        if (name_queue_find(&tier->history, &tier->blocks.names.hashes[i]) != KV_NO_BLOCK)
            return quire_fail(err, QUIRE_INTERNAL, "kv 6: group %u: host block %u has a name that is lost", tier->group,
                              i);
    return QUIRE_OK;
}
