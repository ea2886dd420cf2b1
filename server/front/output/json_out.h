/* JSON text, appended piece by piece: what replies and events are made of.
 *
 * The writer knows no structure; whoever calls it places braces and commas. Strings are escaped,
 * and bytes that are not UTF-8 come out as U+FFFD, so that the result is always valid UTF-8. Zero
 * a struct json_out to begin; json_out_free() ends it. One thread at a time.
 */
#ifndef QUIRE_FRONT_JSON_OUT_H
#define QUIRE_FRONT_JSON_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_out {
    char *data; /* not NUL-terminated */
    size_t n, capacity;
    bool failed; /* an allocation failed: the contents are void */
};

void json_out_free(struct json_out *o);
/* Keeps the memory, drops the text. */
void json_out_clear(struct json_out *o);

void json_out_bytes(struct json_out *o, const void *bytes, size_t n);
void json_out_raw(struct json_out *o, const char *text);
/* Quoted and escaped. */
void json_out_string(struct json_out *o, const char *text, size_t n);
void json_out_text(struct json_out *o, const char *text);
/* Quoted, or null when text is NULL. */
void json_out_text_or_null(struct json_out *o, const char *text);
void json_out_i64(struct json_out *o, int64_t value);
void json_out_u64(struct json_out *o, uint64_t value);
/* Nine significant digits give back the same fp32. JSON knows no infinity: what is below -9999
 * (-inf too) is written -9999.0, as vLLM does; NaN as well. */
void json_out_logprob(struct json_out *o, float value);
/* [72,101]: the bytes as integers. */
void json_out_byte_array(struct json_out *o, const uint8_t *bytes, size_t n);

/* Characters in valid UTF-8 text. */
size_t utf8_count(const char *text, size_t n);

#endif
