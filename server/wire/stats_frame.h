/* The contents of a STATS frame, and the entries of its lists. Any thread. Times are in microseconds. */
#ifndef QUIRE_SERVER_WIRE_STATS_FRAME_H
#define QUIRE_SERVER_WIRE_STATS_FRAME_H

#include "base/stats/members.h"
#include "base/stats/rows.h"
#include "base/stats/tenant_rows.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The first members come from base/stats/rows.h. Texts are not NUL-terminated. A list has an array for the encoder,
 * and bytes that the decoder sets and NAME_get() reads. */
struct wire_stats {
    STATS_ROWS(STATS_WIRE_MEMBER)
    const char *policy;
    size_t n_policy;
    const char *figure_name; /* name of the policy's own figure; empty: the policy has no figure */
    size_t n_figure_name;
    const uint32_t *tenants; /* WIRE_TENANT_WORDS each, wire_tenant_get() */
    const uint8_t *tenant_bytes;
    uint32_t n_tenants;
    const char *shadow_policy; /* the shadow policy; n_shadow_policy 0: no shadow policy */
    size_t n_shadow_policy;
    const uint32_t *shadow_buckets; /* WIRE_SHADOW_BUCKET_WORDS, wire_shadow_bucket_get() */
    const uint8_t *shadow_bucket_bytes;
    uint32_t n_shadow_buckets;
    const uint32_t *step_buckets; /* WIRE_STEP_BUCKET_WORDS, wire_step_bucket_get() */
    const uint8_t *step_bucket_bytes;
    uint32_t n_step_buckets;
    const char *cache_dtype; /* dtype of the KV cache: "float16" */
    size_t n_cache_dtype;
    const uint32_t *accepted_at; /* WIRE_ACCEPTED_WORDS, wire_accepted_get(). For each position of a draft in a */
    const uint8_t *accepted_at_bytes; /* row: the rows whose draft at this position was accepted */
    uint32_t n_accepted_at;
    const char *draft_method; /* the server's: "none", "ngram", "suffix" */
    size_t n_draft_method;
    const uint32_t *rank_waits; /* WIRE_RANK_WAIT_WORDS, wire_rank_wait_get(). For each rank in order, the time it */
    const uint8_t *rank_wait_bytes; /* waited for each rank: the square of the number of ranks */
    uint32_t n_rank_waits;
    const uint32_t
        *expert_tokens; /* WIRE_EXPERT_WORDS, wire_expert_get(). For each expert the tokens that it computed, */
    const uint8_t *expert_token_bytes; /* over the layers */
    uint32_t n_expert_tokens;
};
struct wire_step_bucket { /* steps with at most n_tokens tokens */
    uint64_t n_tokens, n_steps;
};
#define WIRE_STEP_BUCKET_WORDS 4u
#define WIRE_MAX_STEP_BUCKETS 64u
void wire_step_bucket_put(uint32_t *words, const struct wire_step_bucket *bucket);
void wire_step_bucket_get(const struct wire_stats *stats, uint32_t index, struct wire_step_bucket *out);
#define WIRE_ACCEPTED_WORDS 2u
#define WIRE_MAX_ACCEPTED 64u
void wire_accepted_put(uint32_t *words, uint64_t n_rows);
uint64_t wire_accepted_get(const struct wire_stats *stats, uint32_t place);
#define WIRE_RANK_WAIT_WORDS 2u
#define WIRE_MAX_RANK_WAITS 64u
void wire_rank_wait_put(uint32_t *words, uint64_t us);
uint64_t wire_rank_wait_get(const struct wire_stats *stats, uint32_t index);
#define WIRE_EXPERT_WORDS 2u
#define WIRE_MAX_EXPERTS 512u
void wire_expert_put(uint32_t *words, uint64_t n_tokens);
uint64_t wire_expert_get(const struct wire_stats *stats, uint32_t expert);
struct wire_shadow_bucket { /* requests whose first token came within the bound */
    uint64_t bound_us, n_live, n_shadow;
};
#define WIRE_SHADOW_BUCKET_WORDS 6u
#define WIRE_MAX_SHADOW_BUCKETS 64u
void wire_shadow_bucket_put(uint32_t *words, const struct wire_shadow_bucket *bucket);
void wire_shadow_bucket_get(const struct wire_stats *stats, uint32_t index, struct wire_shadow_bucket *out);
struct wire_tenant { /* the engine's counters of one tenant */
    STATS_TENANT_ROWS(STATS_TENANT_MEMBER)
};
#define WIRE_TENANT_WORDS 12u
/* words holds WIRE_TENANT_WORDS. */
void wire_tenant_put(uint32_t *words, const struct wire_tenant *tenant);
/* index must be below stats->n_tenants. */
void wire_tenant_get(const struct wire_stats *stats, uint32_t index, struct wire_tenant *out);

#endif
