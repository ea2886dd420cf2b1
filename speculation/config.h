/* The value of --speculative-config: the part of vLLM's JSON that Quire supports. Pure functions; any thread. */
#ifndef QUIRE_SPECULATION_CONFIG_H
#define QUIRE_SPECULATION_CONFIG_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPECULATIVE_MAX_LOOKUP 16u
#define SPECULATIVE_MAX_PATH 1024u

enum draft_method {
    DRAFT_NONE, /* only drafts from the requests themselves: `prediction` */
    DRAFT_NGRAM,
    DRAFT_SUFFIX,
    DRAFT_MODEL,
    DRAFT_N_METHODS
};
/* "none", "ngram", "suffix", "draft_model". */
const char *draft_method_name(enum draft_method method);
/* Returns DRAFT_N_METHODS if no method has this name. */
enum draft_method draft_method_find(const char *name);

struct speculative_config {
    enum draft_method method;
    uint32_t num_speculative_tokens; /* maximum per row, 1 … DRAFT_MAX */
    bool adaptive; /* the number of drafts follows from their benefit (length.h); false: always the maximum */
    uint32_t prompt_lookup_min, prompt_lookup_max; /* ngram: tokens that must agree, 1 <= min <= max */
    /* suffix: vLLM's suffix_decoding_* (suffix.h), and the bytes for earlier answers */
    uint32_t max_tree_depth, max_cached_requests, max_cached_bytes;
    double max_spec_factor, min_token_prob;
    char model[SPECULATIVE_MAX_PATH];              /* draft_model: its directory, or ORG/NAME as typed */
};

/* The value without the option: no method, and predictions of up to this many tokens per row. */
#define SPECULATIVE_CONFIG_DEFAULT \
    {.num_speculative_tokens = 16, \
     .adaptive = true, \
     .prompt_lookup_min = 2, \
     .prompt_lookup_max = 5, \
     .max_tree_depth = 24, \
     .max_cached_requests = 10000, \
     .max_cached_bytes = 64u << 20, \
     .max_spec_factor = 1, \
     .min_token_prob = 0.1}
void speculative_config_default(struct speculative_config *config);
/* Reads {"method": "ngram", …}; docs/guides/speculation.md lists the members. The error begins with the member's name:
 * QUIRE_INVALID, or QUIRE_UNSUPPORTED for a method that Quire does not have, such as eagle3. */
int speculative_config_parse(const char *json, size_t n_bytes, struct speculative_config *out, struct quire_error *err);

#endif
