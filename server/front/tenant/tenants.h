/* API keys and their limits: one tenant for each API key, from --tenants FILE or from --api-key. http-api.md describes
 * the file.
 *
 * The key alone identifies the tenant of a request. A tenant keeps its index, its buckets and its running requests as
 * long as the process lives: the engine counts by index, and a reloaded file must not cancel a debt. Without keys,
 * every request belongs to tenant 0, "default".
 *
 * Loop's thread only. Pointers to tenants are valid until tenants_free().
 */
#ifndef QUIRE_FRONT_TENANTS_H
#define QUIRE_FRONT_TENANTS_H

#include "base/hash.h"
#include "base/status.h"
#include "server/front/tenant/bucket.h"
#include "server/wire/frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TENANTS_MAX WIRE_MAX_TENANTS /* including tenant 0 */
#define TENANT_MAX_NAME 64
#define TENANT_MAX_KEY 512
#define TENANT_MAX_WEIGHT 1000
#define TENANT_CLASSES 8

/* What was found in the texts of answers. */
struct answer_counts {
    uint64_t n_calls, n_malformed; /* tool calls; texts that began as a call and came back as text */
    uint64_t n_reasoning; /* tokens of reasoning */
};

struct tenant {
    uint32_t index;
    char name[TENANT_MAX_NAME + 1];
    bool has_key; /* false: tenant 0, and those that the file no longer lists */
    struct key256 key; /* the key's SHA-256, hashed with a secret of this process */
    char organisation[TENANT_MAX_NAME + 1]; /* "": none */
    uint32_t weight, organisation_weight, class_index;
    int32_t priority_min, priority_max; /* range that its requests may set */
    uint64_t requests_per_minute, tokens_per_minute; /* 0: no limit; here and below */
    uint32_t max_concurrent, max_queued;
    uint32_t max_seats, max_kv_blocks; /* the scheduler's */
    uint32_t batch_concurrency; /* running lines of its batches; 0: the server's default */
    bool admin;
    bool in_bulk; /* of tenants_in_bulk() */

    struct bucket requests, tokens;
    uint32_t n_concurrent, n_queued;
    uint64_t n_limited; /* requests refused because of its limits */
    struct answer_counts answers;
};

struct tenants;

/* Without keys: only tenant 0, for every request. Keys are copied as hashes. now_us: CLOCK_MONOTONIC, as everywhere
 * below. QUIRE_INVALID: an empty or repeated key, or too many. */
int tenants_from_keys(const char *const *keys, size_t n_keys, uint64_t now_us, struct tenants **out,
                      struct quire_error *err);
/* QUIRE_INVALID: the message names the entry and the field. */
int tenants_from_file(const char *path, uint64_t now_us, struct tenants **out, struct quire_error *err);
/* Reads the file again. A failure changes nothing. Tenants of the same name continue; those missing from the file lose
 * their key. QUIRE_EXHAUSTED: more names than indices since the start. */
int tenants_reload(struct tenants *t, uint64_t now_us, struct quire_error *err);
void tenants_free(struct tenants *t);

/* Returns whether requests need a key. */
bool tenants_ask_key(const struct tenants *t);
/* Returns the key's tenant; NULL: unknown. Compares every key, in constant time. */
struct tenant *tenants_find(const struct tenants *t, const char *key);
/* index below tenants_n(). */
struct tenant *tenants_at(const struct tenants *t, uint32_t index);
uint32_t tenants_n(const struct tenants *t);
/* NULL: unknown. */
struct tenant *tenants_named(const struct tenants *t, const char *name);
/* The same tenant for the lines of its batches: its index, class, weight and range of priorities, without its limits of
 * live requests and tokens, which bulk work must not use up. An unknown name is tenant 0. Never NULL. */
struct tenant *tenants_in_bulk(struct tenants *t, const char *name);

/* ---- for its tests ---- */

/* Checks a file's text, without any effect. */
int tenants_check(const char *text, size_t n_bytes, struct quire_error *err);

#endif
