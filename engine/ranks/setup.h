/* The setup that rank 0 sends to the other ranks before they load: the options that determine a rank's share of the
 * engine, with rank 0's decisions in place of defaults. It is the payload of a group's first plan frame.
 *
 *     "QRS1"; of each text a u32 length (UINT32_MAX: NULL) and its bytes; of each number a u64
 *
 * in the order of setup.c's tables. Pure functions; any thread.
 */
#ifndef QUIRE_ENGINE_RANKS_SETUP_H
#define QUIRE_ENGINE_RANKS_SETUP_H

#include "engine/options.h"

#include <stddef.h>

#define SETUP_MAX_BYTES 65536u

/* QUIRE_INVALID: more text than fits. *n_bytes: of at most SETUP_MAX_BYTES. */
int setup_write(const struct engine_options *options, void *to, size_t *n_bytes, struct quire_error *err);

/* Compares the options of two ranks, each from its own command line. They must be equal, except for the host's own
 * settings: the paths of the model and of repacked rows, threads and CPUs. Returns QUIRE_INVALID with the option and
 * both values. */
int setup_compare(const struct engine_options *first, const struct engine_options *own, uint32_t rank,
                  struct quire_error *err);

/* Replaces the host's own settings, which the frame has or not, by those of this rank's own options. */
void setup_keep_own(struct engine_options *options, const struct engine_options *own);

/* The texts of *out lie in `texts`, which belongs to the caller: [SETUP_MAX_BYTES]. *out keeps fields that the frame
 * does not contain. */
int setup_read(const void *from, size_t n_bytes, char *texts, struct engine_options *out, struct quire_error *err);

#endif
