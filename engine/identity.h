/* What an engine's bits depend on beside the request, the tokenizer and config.json, as one value to compare: a cache of
 * answers, of K and V or of logits may be used by engines of the same identity only.
 *
 * The canonical text is what is hashed: one `name=value` a line, always all of them, in this order, each
 * line ended by a line feed. docs/protocol.md lists the values. Pure; any thread.
 */
#ifndef QUIRE_ENGINE_IDENTITY_H
#define QUIRE_ENGINE_IDENTITY_H

#include "base/hash.h"

#include <stddef.h>
#include <stdint.h>

#define ENGINE_IDENTITY_BYTES 512u

struct engine_identity {
    uint32_t law; /* K_LAW_VERSION: of docs/numerics.md */
    struct key256 weights; /* checkpoint_digest() */
    const char *weight_format; /* these texts are static */
    const char *form; /* of GEMMs: "lane", "tile", "mma" */
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
