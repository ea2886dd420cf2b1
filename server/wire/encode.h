/* Encoders of frames. Any thread.
 *
 * They append to a growable buffer (base/buffer.h) that the caller owns. */
#ifndef QUIRE_SERVER_WIRE_ENCODE_H
#define QUIRE_SERVER_WIRE_ENCODE_H

#include "base/buffer.h"
#include "request/spec.h"
#include "server/wire/records.h"
#include "server/wire/stats_frame.h"

#include <stddef.h>
#include <stdint.h>

/* Encoders append one whole frame. They return QUIRE_NO_MEMORY (b->failed), or QUIRE_INVALID if a count or the body
 * is over its limit; then b is unchanged. They omit fields that have their default. They cut texts to WIRE_MAX_TEXT
 * bytes, and before a byte that is not UTF-8. */
int wire_put_hello(struct buffer *b, const struct wire_hello *hello);
int wire_put_submit(struct buffer *b, uint64_t request, const struct request_spec *spec);
/* The same without the prompt's ids. The caller sends these from their own memory at *prompt_at in b. */
int wire_put_submit_around(struct buffer *b, uint64_t request, const struct request_spec *spec, size_t *prompt_at);
/* id: the engine's id of the request, equal for every client, as in wire_account.blocker. 0: unknown. */
int wire_put_accept(struct buffer *b, uint64_t request, uint64_t id);
int wire_put_refuse(struct buffer *b, uint64_t request, const struct wire_refuse *refuse);
int wire_put_tokens(struct buffer *b, uint64_t request, const struct wire_token *tokens, uint32_t n_tokens);
int wire_put_prompt_logprobs(struct buffer *b, uint64_t request, const struct wire_token *tokens, uint32_t n_tokens);
/* The same in parts, for one pass over a step's events: begin, add at least one, end. type is WIRE_TOKENS or
 * WIRE_PROMPT_LOGPROBS; pass *mark to end. The caller must end a frame before it exceeds its limit. */
int wire_tokens_begin(struct buffer *b, uint16_t type, uint64_t request, size_t *mark);
int wire_tokens_add(struct buffer *b, const struct wire_token *token);
int wire_tokens_end(struct buffer *b, size_t mark);
int wire_put_done(struct buffer *b, uint64_t request, const struct wire_done *done);
int wire_put_vector(struct buffer *b, uint64_t request, const struct wire_vector *vector);
int wire_put_predict(struct buffer *b, uint64_t request, const struct wire_predict *predict);
int wire_put_hit_report(struct buffer *b, const struct wire_hit_report *report);
int wire_put_cancel(struct buffer *b, uint64_t request, int64_t choice); /* choice -1: all choices */
int wire_put_credit(struct buffer *b, uint64_t n_bytes);
int wire_put_control(struct buffer *b, const char *command);
/* n_tenants: also request the counters of tenants 0 to n_tenants - 1. */
int wire_put_stats_request(struct buffer *b, uint32_t n_tenants);
int wire_put_stats(struct buffer *b, const struct wire_stats *stats);
int wire_put_drain(struct buffer *b);
int wire_put_error(struct buffer *b, uint32_t status, const char *message);

#endif
