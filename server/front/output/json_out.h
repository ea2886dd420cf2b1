/* Appends JSON text piece by piece, for replies and events.
 *
 * The writer does not track the structure; the caller writes braces and commas. Strings are escaped, and bytes that
 * are not UTF-8 become U+FFFD, so that the result is always valid UTF-8. A failed allocation sets `failed` in the
 * buffer. One thread at a time.
 */
#ifndef QUIRE_FRONT_JSON_OUT_H
#define QUIRE_FRONT_JSON_OUT_H

#include "base/buffer.h"

#include <stddef.h>
#include <stdint.h>

void json_out_raw(struct buffer *o, const char *text);
/* Quoted and escaped. */
void json_out_string(struct buffer *o, const char *text, size_t n);
/* Upper bound of the bytes that json_out_string() appends. */
uint64_t json_out_string_bytes(const char *text, size_t n);
void json_out_text(struct buffer *o, const char *text);
/* Quoted, or null when text is NULL. */
void json_out_text_or_null(struct buffer *o, const char *text);
void json_out_i64(struct buffer *o, int64_t value);
void json_out_u64(struct buffer *o, uint64_t value);
/* Nine significant digits reproduce the same fp32. JSON has no infinity: values below -9999 (-inf too) are written as
 * -9999.0, as in vLLM; NaN as well. */
void json_out_logprob(struct buffer *o, float value);
/* Writes the bytes as integers: [72,101]. */
void json_out_byte_array(struct buffer *o, const uint8_t *bytes, size_t n);

/* Number of characters in valid UTF-8 text. */
size_t utf8_count(const char *text, size_t n);

#endif
