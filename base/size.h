/* Formats memory sizes for people: "1.5 GiB", "640.0 KiB", "512 B". Owns nothing. Any thread. */
#ifndef QUIRE_BASE_SIZE_H
#define QUIRE_BASE_SIZE_H

#include <stdint.h>

struct quire_size {
    char text[16];
};
/* Returns by value, so a message with five sizes needs no five buffers: "%s", quire_size(n).text. */
struct quire_size quire_size(uint64_t n_bytes);

#endif
