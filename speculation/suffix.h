/* Suffix decoding (arXiv 2411.04975): the tokens that followed a sequence's last tokens before, in its own text and in
 * earlier answers of its domain, with their frequencies.
 *
 * The paper uses suffix trees. Here, tokens are stored in blocks, and every position is linked to the previous position
 * after the same 1, 2, 4 and 8 tokens; the 16 latest positions vote. The longer the agreeing run, up to max_tree_depth,
 * the more tokens are drafted, but only as many as their probability justifies: the most frequent continuation, token
 * by token, until the probability of all of it is below min_token_prob. Of all lengths of the run, and of own text and
 * domain, the drafts with the most expected accepted tokens are used. For runs seen up to 16 times, the frequencies
 * equal a suffix tree's; otherwise they are those of the latest 16, which costs nothing on prose (suffix_test
 * compares).
 *
 * Unlike in a tree, a run continues beyond one token that was replaced, inserted or removed, if three more tokens
 * agree. For pages copied with an edit at 7 % of their tokens, this gives 4.01 tokens per step with 8 drafts instead of
 * 3.28, and no case gets worse.
 *
 * A domain uses only its own answers: domains are compared as a whole, not by hash. The history has a fixed size. When
 * it is full, the oldest answer of the tenant with the most memory is evicted, so a tenant never loses answers to one
 * that has more.
 */
#ifndef QUIRE_SPECULATION_SUFFIX_H
#define QUIRE_SPECULATION_SUFFIX_H

#include "speculation/drafter.h"

#define SUFFIX_MAX_DEPTH 64u

struct suffix_config {
    uint32_t n_slots;
    uint32_t max_model_len;
    /* Tokens of all running sequences together that are stored, for example as many as the KV cache holds; the rest
     * gets no drafts. At most n_slots x max_model_len are needed. */
    uint64_t n_tokens;
    uint64_t history_bytes; /* for earlier answers, 53 bytes per token */
    /* vLLM's suffix_decoding_* and its defaults. */
    uint32_t max_tree_depth; /* 24: maximum of agreeing tokens; 1 … SUFFIX_MAX_DEPTH */
    uint32_t max_cached_requests; /* 10000 answers; 0: own text only, without history */
    float max_spec_factor; /* 1: drafts per agreeing token */
    float min_token_prob; /* 0.1 */
};

uint64_t suffix_bytes(const struct suffix_config *config);
int suffix_create(const struct suffix_config *config, struct drafter **out, struct quire_error *err);

#endif
