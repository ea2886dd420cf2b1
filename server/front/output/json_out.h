/* JSON text, appended piece by piece: what replies and events are made of.
 *
 * The writer knows no structure; whoever calls it places braces and commas. Strings are escaped,
 * and bytes that are not UTF-8 come out as U+FFFD, so that the result is always valid UTF-8. A
 * failed allocation shows in the buffer. One thread at a time.
 */
#ifndef QUIRE_FRONT_JSON_OUT_H
#define QUIRE_FRONT_JSON_OUT_H

#include "base/buffer.h"

#include <stddef.h>
#include <stdint.h>

void json_out_raw(struct buffer *o, const char *text);
/* Quoted and escaped. */
void json_out_string(struct buffer *o, const char *text, size_t n);
/* What it appends, or more. */
uint64_t json_out_string_bytes(const char *text, size_t n);
void json_out_text(struct buffer *o, const char *text);
/* Quoted, or null when text is NULL. */
void json_out_text_or_null(struct buffer *o, const char *text);
void json_out_i64(struct buffer *o, int64_t value);
void json_out_u64(struct buffer *o, uint64_t value);
/* Nine significant digits give back the same fp32. JSON knows no infinity: what is below -9999
 * (-inf too) is written -9999.0, as vLLM does; NaN as well. */
void json_out_logprob(struct buffer *o, float value);
/* [72,101]: the bytes as integers. */
void json_out_byte_array(struct buffer *o, const uint8_t *bytes, size_t n);

/* Characters in valid UTF-8 text. */
size_t utf8_count(const char *text, size_t n);

#endif
