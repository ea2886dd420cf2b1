/* A complete example of every frame, and a decoder for any of them: for tests, the fuzzer's corpus and the examples
 * of protocol.md. */
#ifndef QUIRE_TESTS_WIRE_SAMPLES_H
#define QUIRE_TESTS_WIRE_SAMPLES_H

#include "base/buffer.h"
#include "request/spec.h"
#include "server/wire/records.h"
#include "server/wire/stats_frame.h"

#define SAMPLE_TOKENS 3
#define SAMPLE_FRAMES 18

void sample_hello(struct wire_hello *out);
void sample_submit(struct request_spec *out);
void sample_tokens(struct wire_token out[SAMPLE_TOKENS]);
void sample_done(struct wire_done *out);
void sample_stats(struct wire_stats *out);

/* Appends frame `which` of SAMPLE_FRAMES to b. */
void sample_frame(size_t which, struct buffer *b);

/* Decodes the body of a frame of `type` (an empty STATS is the request). */
int sample_decode(uint16_t type, const uint8_t *body, size_t n, struct quire_error *err);

#endif
