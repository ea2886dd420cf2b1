/* Decoders of frames' bodies. Any thread.
 *
 * They check everything and never read past the body. Decoded pointers are borrowed from the body. */
#ifndef QUIRE_SERVER_WIRE_DECODE_H
#define QUIRE_SERVER_WIRE_DECODE_H

#include "base/status.h"
#include "request/spec.h"
#include "server/wire/records.h"
#include "server/wire/stats_frame.h"

#include <stddef.h>
#include <stdint.h>

/* Decoders of a body. The message of QUIRE_INVALID names the field. QUIRE_UNSUPPORTED: the body has an unknown field
 * that must be understood. */
int wire_get_hello(const uint8_t *body, size_t n, struct wire_hello *out, struct quire_error *err);
/* The caller owns the contents of out. */
int wire_get_submit(const uint8_t *body, size_t n, struct request_spec *out, struct quire_error *err);
int wire_get_refuse(const uint8_t *body, size_t n, struct wire_refuse *out, struct quire_error *err);
int wire_get_done(const uint8_t *body, size_t n, struct wire_done *out, struct quire_error *err);
int wire_get_vector(const uint8_t *body, size_t n, struct wire_vector *out, struct quire_error *err);
int wire_get_predict(const uint8_t *body, size_t n, struct wire_predict *out, struct quire_error *err);
int wire_get_hit_report(const uint8_t *body, size_t n, struct wire_hit_report *out, struct quire_error *err);
int wire_get_cancel(const uint8_t *body, size_t n, int64_t *choice, struct quire_error *err);
int wire_get_credit(const uint8_t *body, size_t n, uint64_t *n_bytes, struct quire_error *err);
int wire_get_control(const uint8_t *body, size_t n, const char **command, size_t *n_command, struct quire_error *err);
int wire_get_accept(const uint8_t *body, size_t n, uint64_t *id, struct quire_error *err);
int wire_get_stats_request(const uint8_t *body, size_t n, uint32_t *n_tenants, struct quire_error *err);
int wire_get_stats(const uint8_t *body, size_t n, struct wire_stats *out, struct quire_error *err);
int wire_get_error(const uint8_t *body, size_t n, uint32_t *status, const char **message, size_t *n_message,
                   struct quire_error *err);
/* DRAIN has no fields: only the framing and the must-understand bits are checked. */
int wire_get_drain(const uint8_t *body, size_t n, struct quire_error *err);

/* TOKENS and PROMPT_LOGPROBS: call with *cursor = 0 until it returns 0. 1: *out holds a token. Negative:
 * -QUIRE_INVALID or -QUIRE_UNSUPPORTED. */
int wire_next_token(const uint8_t *body, size_t n, size_t *cursor, struct wire_token *out, struct quire_error *err);

uint32_t wire_u32(const void *bytes, size_t index);
float wire_f32(const void *bytes, size_t index);

#endif
