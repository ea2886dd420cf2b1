/* One SHA-256 over the output of a choice: every token and every logprob bit. A recording stores it, and a replay
 * computes it again.
 *
 * The input holds each TOKEN and PROMPT_LOGPROB event, in order, as little-endian integers:
 *
 *   u32 kind (0 token, 1 prompt logprob)   u32 token   u32 position
 *   u32 n_top, or 0xffffffff without a logprob; with one also:
 *   u32 logprob's bits   u32 rank   n_top times { u32 id, u32 logprob's bits }
 *
 * Any thread on its own values. */
#ifndef QUIRE_ENGINE_RECORD_DIGEST_H
#define QUIRE_ENGINE_RECORD_DIGEST_H

#include "base/hash.h"
#include "engine/event.h"

struct record_digest {
    struct quire_sha256_state state;
    uint32_t n_tokens, n_prompt_logprobs; /* number of each in the digest */
};

void record_digest_begin(struct record_digest *d);
/* Ignores events of other kinds. */
void record_digest_add(struct record_digest *d, const struct engine_event *event);
struct key256 record_digest_now(const struct record_digest *d);

#endif
