/* Suffix decoding (arXiv 2411.04975): what a sequence's last tokens were followed by before, in its own text and in its
 * domain's earlier answers, and how often.
 *
 * The paper keeps suffix trees. Here tokens lie in blocks, and every place is chained to the place before it where the
 * same 1, 2, 4 and 8 tokens went before; the 16 latest places vote. The longer the run that agrees, up to
 * max_tree_depth, the more is drafted, and no more than its chance is worth: token by token the most frequent
 * continuation, until the chance of all of it is below min_token_prob. Of all lengths of the run, and of own text and
 * domain, those drafts are taken of which most are likely to be right. Where a run was seen up to 16 times its
 * frequencies are a suffix tree's, elsewhere those of the latest 16; on prose that costs nothing (suffix_test compares).
 *
 * Unlike in a tree, a run goes on beyond one token that was replaced, put in or left out where three more agree. Of pages
 * copied with an edit at 7 % of their tokens that makes 4.01 tokens a step of 8 drafts from 3.28, and nothing worse.
 *
 * A domain sees its own answers only: domains are compared whole, no hash is trusted. History has a number of bytes, and
 * when they are full the oldest answer of the tenant that holds most is forgotten: nobody loses any for the sake of
 * somebody who holds more.
 */
#ifndef QUIRE_SPECULATION_SUFFIX_H
#define QUIRE_SPECULATION_SUFFIX_H

#include "speculation/drafter.h"

#define SUFFIX_MAX_DEPTH 64u

struct suffix_config {
    uint32_t n_slots;
    uint32_t max_model_len;
    /* Of all running sequences together that are remembered: what the KV cache holds, for example; of what is more, nothing is
     * drafted. More than n_slots x max_model_len is never needed. */
    uint64_t n_tokens;
    uint64_t history_bytes; /* for earlier answers, 53 a token */
    /* vLLM's suffix_decoding_*, and its defaults. */
    uint32_t max_tree_depth; /* 24: tokens that agree, at most; 1 … SUFFIX_MAX_DEPTH */
    uint32_t max_cached_requests; /* 10000 answers; 0: own text only, and no bytes for history */
    float max_spec_factor; /* 1: drafts for each token that agrees */
    float min_token_prob; /* 0.1 */
};

uint64_t suffix_bytes(const struct suffix_config *config);
int suffix_create(const struct suffix_config *config, struct drafter **out, struct quire_error *err);

#endif
