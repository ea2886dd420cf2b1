/* The recording's framing, for its writer and its reader; recording.md is the format, byte by
 * byte. Nobody else includes this. */
#ifndef QUIRE_ENGINE_RECORD_FORMAT_H
#define QUIRE_ENGINE_RECORD_FORMAT_H

#include "base/hash.h"
#include "base/little_endian.h"

#include <stdint.h>
#include <string.h>

#define RECORD_VERSION 2u /* what is written; version 1 is read, too */
#define RECORD_MAGIC "QUIREREC"
#define RECORD_SUM_BYTES 8u  /* also the magic: what stands before the first record */
#define RECORD_HEAD_BYTES 12u /* u32 length of the body, u32 kind, u32 check of these */

enum record_flags {
    RECORD_PROMPT_LOGPROBS = 1,
    RECORD_NO_PREFIX_HITS = 2,
    RECORD_BACKGROUND = 4, /* of version 1: what follows is among the request's fields in version 2 */
    RECORD_HOST_GATED = 8,
    RECORD_RESTRICTED = 16, /* of version 1 */
    RECORD_VECTOR = 32,     /* of version 2 */
};
#define RECORD_FLAGS_1 31u
#define RECORD_FLAGS_2 (RECORD_PROMPT_LOGPROBS | RECORD_NO_PREFIX_HITS | RECORD_HOST_GATED | RECORD_VECTOR)

#define RECORD_NOT_INVARIANT 0x80u /* in the GEMM form */
#define RECORD_MADE \
    0x80u /* in the dtype of weights: the code of what plain ones were made into when they were loaded */
#define RECORD_FINISHED 0x80000000u /* in a result's number of accepted drafts; in version 1 of tokens */

/* The first bytes of BLAKE2b-256 under this label. `from` is where the sum before the record lies,
 * so that each sum holds all before it: a record that is changed, missing, doubled or moved shows. */
static inline void record_sum(const uint8_t *from, size_t n, uint8_t *out, size_t n_out)
{
    struct key256 k = quire_labelled_hash("quire recording ", from, n);
    memcpy(out, k.bytes, n_out);
}

#endif
