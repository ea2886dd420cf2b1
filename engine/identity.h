/* The identity of an engine: everything that can change an answer to a prompt of token ids, as one value to compare.
 * An engine may use answers, K and V, or logits of another engine only if both identities are equal.
 *
 * It covers the arithmetic, the weights, the model's description as the engine computes with it, and the ids that
 * end an answer. It omits everything that changes no bit: drafts, ranks, threads, the scheduler, the prefix cache.
 * It does not cover text. A cache whose key is taken before tokenization must add the tokenizer, the chat template
 * and the generation defaults (quire_text_digest(), server/front/prompt_identity.h).
 *
 * Every new feature that changes answers (an adapter, a grammar) must add a line here.
 *
 * The hash covers the canonical text: one `name=value` per line, all names always present, in this order, each line
 * ended by a line feed. protocol.md lists the values. Pure functions; any thread.
 */
#ifndef QUIRE_ENGINE_IDENTITY_H
#define QUIRE_ENGINE_IDENTITY_H

#include "base/hash.h"

#include <stddef.h>
#include <stdint.h>

#define ENGINE_IDENTITY_BYTES 512u

struct engine_identity {
    uint32_t numerics; /* K_NUMERICS_VERSION: of numerics.md */
    struct key256 weights; /* checkpoint_digest() */
    struct key256 model; /* model_identity() */
    const char *weight_format; /* these texts are static */
    const char *form; /* form of GEMMs: "lane", "tile", "mma" */
    const char *activation; /* dtype of activations in them, "float32", "int8" */
    const char *kv_format;
    const char *invariance; /* "strict", or "off": then nothing that was computed may be used again */
    const char *adapters; /* "none" */
    /* Set by engine_identity_seal() from those above: */
    char text[ENGINE_IDENTITY_BYTES];
    struct key256 digest; /* SHA-256 of text, without its NUL */
};

void engine_identity_seal(struct engine_identity *identity);

#endif
