/* The statistics of one tenant, as a table like rows.h. Macros only, for every module. */
#ifndef QUIRE_BASE_STATS_TENANT_ROWS_H
#define QUIRE_BASE_STATS_TENANT_ROWS_H

/* clang-format off */

/* Of one tenant: ROW(member, type, at, shown, name, help). `at`: its byte in the record of 48 bytes in STATS. The record is
 * full, because peers of other versions read records of this size, and a frame for 1,024 tenants has room for 6 more bytes
 * of each. A further counter needs a field of its own and another limit of tenants. */
#define STATS_TENANT_ROWS(ROW) \
    ROW(n_prompt_tokens, U64, 0, COUNTER, "quire:tenant_prompt_tokens_total", \
        "Prompt tokens computed for the tenant.") \
    ROW(n_generated_tokens, U64, 8, COUNTER, "quire:tenant_generation_tokens_total", \
        "Tokens generated for the tenant.") \
    ROW(n_prefix_queries, U64, 16, COUNTER, "quire:tenant_prefix_cache_queries_total", \
        "The tenant's prompt tokens looked up in the prefix cache.") \
    ROW(n_prefix_hits, U64, 24, COUNTER, "quire:tenant_prefix_cache_hits_total", \
        "The tenant's prompt tokens found there, which were not computed.") \
    ROW(n_evicted_blocks, U64, 32, COUNTER, "quire:tenant_kv_blocks_evicted_total", \
        "The tenant's cached KV blocks that were given up.") \
    ROW(n_running, U32, 40, GAUGE, "quire:tenant_requests_running", \
        "The tenant's sequences in the running batch.") \
    ROW(n_waiting, U32, 44, GAUGE, "quire:tenant_requests_waiting", \
        "The tenant's sequences waiting to be run.")
/* clang-format on */

#endif
