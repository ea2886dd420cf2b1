/* A scratch directory for a test's checkpoint files. */
#ifndef QUIRE_TESTS_SCRATCH_H
#define QUIRE_TESTS_SCRATCH_H

#include <stddef.h>

struct scratch {
    char dir[64];
};

/* Aborts on failure, like every call here: a test cannot go on without its files. */
void scratch_open(struct scratch *s);
void scratch_write(const struct scratch *s, const char *name, const void *data, size_t n);
void scratch_remove(const struct scratch *s, const char *name);
/* Removes the directory and everything in it. */
void scratch_close(struct scratch *s);

/* A safetensors image: header text, padded with spaces to a multiple of 8, and n_data bytes of data
 * that count up. malloc'd; *n is its size. */
unsigned char *scratch_image(const char *header, size_t n_data, size_t *n);

#endif
