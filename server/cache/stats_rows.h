/* The counters of the response cache, as a table. A counter is one row here and the code that counts it: the structs,
 * /metrics and /cache/stats are made of the rows. Counts of one layer are in struct cache_layer. Macros only.
 *
 *   ROW(member, type, group, name, label, help, key)
 *
 * member      Its name in the structs.
 * type        U64, or F64.
 * group       Its place in /cache/stats: FIRST, or LAST behind the pinned blocks.
 * name, help  Its texts in /metrics; NULL: not there. Rows of one name follow each other, each with a label.
 * label       ",kind=\"…\"", or "".
 * key         Its name in /cache/stats; NULL: not there.
 *
 * Rows are in the order of /metrics. */
#ifndef QUIRE_CACHE_STATS_ROWS_H
#define QUIRE_CACHE_STATS_ROWS_H

#include <stdint.h>

#define CACHE_C_U64 uint64_t
#define CACHE_C_F64 double
#define CACHE_STATS_MEMBER(member, type, ...) CACHE_C_##type member;

/* clang-format off */
#define CACHE_STATS_ROWS(ROW) \
    /* Joined an identical request that was being computed. */ \
    ROW(n_joined, U64, FIRST, "quire:response_cache_joined_total", "", \
        "Requests that waited for an identical one in flight.", "joined") \
    ROW(n_computed, U64, FIRST, "quire:response_cache_computed_total", "", \
        "Requests that were computed.", NULL) \
    /* Answers that continue a shorter one, and the tokens of the shorter ones. */ \
    ROW(n_resumed, U64, FIRST, "quire:response_cache_resumed_total", "", \
        "The part of these that began as a shorter cached answer.", "resumed") \
    ROW(n_tokens_resumed, U64, FIRST, "quire:response_cache_tokens_resumed_total", "", \
        "Tokens that these did not compute.", "tokens_resumed") \
    ROW(n_stored, U64, FIRST, "quire:response_cache_stored_total", "", \
        "Answers that were kept.", "stored") \
    ROW(n_not_stored, U64, FIRST, NULL, "", NULL, "not_stored") \
    ROW(n_unseeded_hits, U64, LAST, NULL, "", NULL, "unseeded_hits") \
    /* The store returned an invalid answer. */ \
    ROW(n_unsound, U64, LAST, "quire:response_cache_unsound_total", "", \
        "Invalid answers of a store, which were dropped.", "unsound") \
    ROW(n_verified, U64, LAST, "quire:response_cache_verified_total", "", \
        "Cached answers that were computed again and are the same.", "verified") \
    /* The cached response differed from the computed one and was dropped. */ \
    ROW(n_differing, U64, LAST, "quire:response_cache_differing_total", "", \
        "Those that are not: 0, or a bug.", "differing") \
    ROW(n_prompt_tokens_saved, U64, LAST, "quire:response_cache_tokens_saved_total", ",kind=\"prompt\"", \
        "Tokens that were not computed.", "prompt_tokens_saved") \
    ROW(n_tokens_saved, U64, LAST, "quire:response_cache_tokens_saved_total", ",kind=\"generated\"", \
        "Tokens that were not computed.", "tokens_saved") \
    /* Prompt tokens that the prefix cache held when the answers were computed; for their price. */ \
    ROW(n_cached_tokens_saved, U64, LAST, NULL, "", NULL, NULL) \
    ROW(seconds_saved, F64, LAST, "quire:response_cache_seconds_saved_total", "", \
        "The time that cached answers took when they were computed.", "seconds_saved")
/* clang-format on */

#endif
