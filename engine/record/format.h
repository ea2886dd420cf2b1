/* The framing of a recording, shared by the recorder, its writer and the reader. recording.md describes the format byte by
 * byte. Only these three include this header. */
#ifndef QUIRE_ENGINE_RECORD_FORMAT_H
#define QUIRE_ENGINE_RECORD_FORMAT_H

#include "base/encoding/little_endian.h"
#include "base/hash.h"

#include <stdint.h>
#include <string.h>

#define RECORD_VERSION 2u /* the version written; version 1 can be read, too */
#define RECORD_MAGIC "QUIREREC"
#define RECORD_SUM_BYTES 8u /* also the length of the magic, which precedes the first record */
#define RECORD_HEAD_BYTES 12u /* u32 length of the body, u32 kind, u32 check of these */

enum record_flags {
    RECORD_PROMPT_LOGPROBS = 1,
    RECORD_NO_PREFIX_HITS = 2,
    RECORD_BACKGROUND = 4, /* version 1; in version 2 these are fields of the request */
    RECORD_HOST_GATED = 8,
    RECORD_RESTRICTED = 16, /* version 1 */
    RECORD_VECTOR = 32, /* version 2 */
};
#define RECORD_FLAGS_1 31u
#define RECORD_FLAGS_2 (RECORD_PROMPT_LOGPROBS | RECORD_NO_PREFIX_HITS | RECORD_HOST_GATED | RECORD_VECTOR)

/* Of a tenant that has more than a weight: weight, group, group weight, limits of seats and of KV blocks. */
#define RECORD_TENANT_WORDS 5u
#define RECORD_NOT_INVARIANT 0x80u /* bit of the GEMM form */
#define RECORD_MADE \
    0x80u /* bit of the weights' dtype: the rest is the code that plain weights were converted to at load */
#define RECORD_FINISHED 0x80000000u /* bit of a result's number of accepted drafts; version 1: of tokens */

/* The first bytes of BLAKE2b-256 under this label. `from` points to the sum of the previous record, so each sum
 * covers everything before it. A changed, missing, repeated or moved record is therefore detected. */
static inline void record_sum(const uint8_t *from, size_t n, uint8_t *out, size_t n_out)
{
    struct key256 k = quire_labelled_hash("quire recording ", from, n);
    memcpy(out, k.bytes, n_out);
}

#endif
