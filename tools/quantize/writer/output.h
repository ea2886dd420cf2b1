/* A model that is being written: OUT.partial until it is complete, then renamed to OUT. A journal next to it,
 * OUT.partial.journal, lists the finished units (tensors with what belongs to them), so that the same command continues
 * after a crash. The data file's size and the place of each unit are fixed before the first byte is written, and the
 * bytes of a unit do not depend on when it is written.
 *
 * Owns the files and a lock on the journal. One thread. Errors are QUIRE_IO with the path, or QUIRE_INVALID. */
#ifndef QUIRE_TOOLS_QUANTIZE_OUTPUT_H
#define QUIRE_TOOLS_QUANTIZE_OUTPUT_H

#include "base/hash.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct quantizer_output;

/* An output and everything that its bytes depend on. */
struct quantizer_output_plan {
    const char *path; /* OUT */
    const char *data_name; /* the data file in the directory OUT; NULL: OUT is the data file */
    struct key256 identity;
    uint64_t n_bytes; /* of the data file */
    uint32_t n_units;
};

/* Rejects an OUT that exists, and an OUT.partial of another identity. Reserves the space of the data file. */
int quantizer_output_open(const struct quantizer_output_plan *plan, struct quantizer_output **out,
                          struct quire_error *err);
/* Returns whether an earlier run wrote this unit. */
bool quantizer_output_has(const struct quantizer_output *o, uint32_t unit);
uint32_t quantizer_output_n_done(const struct quantizer_output *o);

/* Writes bytes of the data file. */
int quantizer_output_write(struct quantizer_output *o, uint64_t at, const void *data, uint64_t n,
                           struct quire_error *err);
/* Reads bytes of a finished unit. */
int quantizer_output_read(const struct quantizer_output *o, uint64_t at, void *data, uint64_t n,
                          struct quire_error *err);
/* The unit's bytes are on the disk from now on. */
int quantizer_output_done(struct quantizer_output *o, uint32_t unit, struct quire_error *err);
/* Writes a small file of the directory, "NAME" or "FOLDER/NAME". */
int quantizer_output_file(struct quantizer_output *o, const char *name, const void *data, size_t n,
                          struct quire_error *err);

/* The complete output's name until it is finished: OUT.partial. Of `o`. */
const char *quantizer_output_partial(const struct quantizer_output *o);
/* Renames the complete output to OUT. */
int quantizer_output_finish(struct quantizer_output *o, struct quire_error *err);
/* Removes an output that is not finished, unless `keep`. NULL is fine. */
void quantizer_output_close(struct quantizer_output *o, bool keep);

#endif
