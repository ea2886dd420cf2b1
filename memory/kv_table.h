/* The block tables of one sequence, one for each KV group of its cache (kv_cache.h). A kv_table owns references on
 * blocks and must be destroyed before the cache. Pure; one thread at a time. Lengths are in positions (tokens), except
 * where a name says blocks. */
#ifndef QUIRE_MEMORY_KV_TABLE_H
#define QUIRE_MEMORY_KV_TABLE_H

#include "base/hash.h"
#include "base/status.h"

#include <stdint.h>

struct kv_cache;
struct kv_table;

int kv_table_create(struct kv_cache *cache, struct kv_table **out, struct quire_error *err);
/* Drops every reference, tail first, and frees the table. NULL is allowed. */
void kv_table_destroy(struct kv_table *table);

/* Allocates entries for n_tokens positions, so later calls on this table allocate nothing while it stays within them.
 * Takes no block. QUIRE_NO_MEMORY leaves the table unchanged. */
int kv_table_prepare(struct kv_table *table, uint32_t n_tokens);

/* Takes references on the longest prefix that every group still holds: whole blocks only, at most max_tokens positions.
 * The table must be empty. Returns the number of positions covered. A windowed group needs only the blocks that the
 * next position can read; entries before them are KV_NO_BLOCK. */
uint32_t kv_table_match(struct kv_table *table, const struct key256 *hashes, uint32_t n_hashes, uint32_t max_tokens);

/* Returns how many positions kv_table_load can add to a table that kv_table_match has just filled: whole blocks, at
 * most max_tokens in total, that every group still holds on the device or on the host tier. Returns 0 without a tier.
 */
uint32_t kv_table_loadable(const struct kv_table *table, const struct key256 *hashes, uint32_t n_hashes,
                           uint32_t max_tokens);

/* Extends the table by n_tokens positions (whole blocks) that kv_table_loadable has just found. Takes references on the
 * blocks that are on the device. For each block that is only on the host, takes a device block, names it and records
 * the copy; the host block is free afterwards. All or nothing: QUIRE_EXHAUSTED (no device blocks, or no space for
 * moves), QUIRE_NOT_FOUND (a block is on neither tier; possible in a windowed group when n_tokens is less than
 * kv_table_loadable returned) and QUIRE_NO_MEMORY take no block.
 */
int kv_table_load(struct kv_table *table, const struct key256 *hashes, uint32_t n_tokens);

/* Ensures that positions [0, n_tokens) have blocks, except those outside the window. n_computed: positions already
 * computed, <= n_tokens. A windowed group first releases the blocks that no position >= n_computed can read. The rest
 * is all or nothing: QUIRE_EXHAUSTED, or QUIRE_NO_MEMORY if the table had to grow, takes no block. */
int kv_table_reserve(struct kv_table *table, uint32_t n_computed, uint32_t n_tokens);

/* Names the computed, full block `index` (in blocks) of every group, so that other tables can match it. A hash that is
 * already named keeps its first block. Does nothing without prefix caching. */
void kv_table_publish(struct kv_table *table, uint32_t index, const struct key256 *hash);

/* Fills the empty table `to` with references on the first n_blocks blocks of `from`, which must be computed. This lets
 * the choices of one request share their prompt. In a windowed group, `to` gets only the blocks that position n_blocks
 * * block_tokens can read. Returns QUIRE_NOT_FOUND if `from` no longer holds those; `to` then stays empty. */
int kv_table_share(const struct kv_table *from, uint32_t n_blocks, struct kv_table *to);

/* Sets the tenant that owns the blocks which the table publishes from now on. It is below n_tenants, and 0 for a new
 * table. */
void kv_table_set_owner(struct kv_table *table, uint32_t tenant);

/* Releases the blocks past the first n_tokens positions. They must not be published: their content is no longer
 * needed. */
void kv_table_cut(struct kv_table *table, uint32_t n_tokens);

/* Releases all blocks, tail first. The empty table keeps its allocated entries. */
void kv_table_clear(struct kv_table *table);

/* Returns the block ids of one group. Entry i covers positions [i, i + 1) * block_tokens. Valid until the table
 * changes. */
const uint32_t *kv_table_blocks(const struct kv_table *table, uint32_t group, uint32_t *n_blocks);

/* Returns the number of blocks of a group on which the table holds references. */
uint32_t kv_table_held(const struct kv_table *table, uint32_t group);
/* Returns how many of the held blocks other tables hold as well. O(blocks). */
uint32_t kv_table_shared(const struct kv_table *table, uint32_t group);

#endif
