/* Stands in until the host tier is there: its definitions replace these weak ones. */
#include "memory/kv_cache.h"

#define WEAK __attribute__((weak))

WEAK uint32_t kv_table_loadable(const struct kv_table *table, const struct key256 *hashes,
                                uint32_t n_hashes, uint32_t max_tokens)
{
    (void)table, (void)hashes, (void)n_hashes, (void)max_tokens;
    return 0;
}

WEAK int kv_table_load(struct kv_table *table, const struct key256 *hashes, uint32_t n_tokens)
{
    (void)table, (void)hashes, (void)n_tokens;
    return QUIRE_OK;
}

WEAK const struct kv_move *kv_cache_moves(const struct kv_cache *cache, uint32_t *n_moves)
{
    (void)cache;
    *n_moves = 0;
    return NULL;
}

WEAK void kv_cache_clear_moves(struct kv_cache *cache)
{
    (void)cache;
}

WEAK void kv_table_set_owner(struct kv_table *table, uint32_t tenant)
{
    (void)table, (void)tenant;
}

WEAK uint64_t kv_cache_evicted(const struct kv_cache *cache, uint32_t tenant)
{
    (void)cache, (void)tenant;
    return 0;
}
