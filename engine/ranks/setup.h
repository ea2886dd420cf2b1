/* What rank 0 tells the others before they load: the options that make a rank's share of the engine, with the numbers that
 * rank 0 has decided in place of defaults. The payload of a group's first plan frame.
 *
 *     "QRS1"; of each text a u32 length (UINT32_MAX: NULL) and its bytes; of each number a u64
 *
 * in the order of setup.c's tables. Pure; any thread.
 */
#ifndef QUIRE_ENGINE_RANKS_SETUP_H
#define QUIRE_ENGINE_RANKS_SETUP_H

#include "engine/options.h"

#include <stddef.h>

#define SETUP_MAX_BYTES 65536u

/* QUIRE_INVALID: more text than fits. *n_bytes: of at most SETUP_MAX_BYTES. */
int setup_write(const struct engine_options *options, void *to, size_t *n_bytes, struct quire_error *err);

/* What two ranks were given, each on its own command line, must be the same, but for what is a host's own: where the model and what
 * loading made of it lie, threads and CPUs. QUIRE_INVALID names the option and both values. */
int setup_compare(const struct engine_options *first, const struct engine_options *own, uint32_t rank,
                  struct quire_error *err);

/* The texts of *out lie in `texts`, which is the caller's: [SETUP_MAX_BYTES]. What the frame does not have *out keeps. */
int setup_read(const void *from, size_t n_bytes, char *texts, struct engine_options *out, struct quire_error *err);

#endif
