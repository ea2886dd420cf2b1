/* UTF-8, strictly: no overlong forms, no surrogates, nothing past U+10FFFF. Any thread. */
#ifndef QUIRE_BASE_UTF8_H
#define QUIRE_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* The length of the one valid character that n bytes at p begin with, 0 when there is none. */
size_t utf8_character(const uint8_t *p, size_t n);

#endif
