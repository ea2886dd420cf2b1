/* Sizes of memory for people: "1.5 GiB", "640.0 KiB", "512 B". Any thread. */
#ifndef QUIRE_BASE_SIZE_H
#define QUIRE_BASE_SIZE_H

#include <stdint.h>

struct quire_size {
    char text[16];
};
/* By value, so that a message with five of them needs no five buffers: "%s", quire_size(n).text. */
struct quire_size quire_size(uint64_t n_bytes);

#endif
