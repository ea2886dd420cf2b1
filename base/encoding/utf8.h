/* Strict UTF-8: no overlong forms, no surrogates, nothing past U+10FFFF. Owns nothing. Any thread. */
#ifndef QUIRE_BASE_ENCODING_UTF8_H
#define QUIRE_BASE_ENCODING_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Returns the length of the valid character at the start of the n bytes at p, or 0 if the bytes start with no valid
 * character. */
size_t utf8_character(const uint8_t *p, size_t n);

#endif
