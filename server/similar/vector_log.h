/* The vectors of an index in a file, so that a server that begins again knows what was asked.
 *
 * A log (vector_records.h): what is added or gone is appended, by a thread of its own. It was chosen before a picture of the whole
 * index because nothing has to be copied or held still for it: to tell the log of a vector takes the loop's thread
 * some microseconds, whatever the index holds. A process that is killed leaves whole records and at most one torn one, a power
 * failure perhaps zeros to the end of the file: both are cut off. When the file is twice what it was after it was last written anew, the thread writes what still holds
 * to PATH.new, which takes the file's place once it is on the disk.
 *
 * The loop's thread calls. The file is for its owner alone (0600), and one process has it open. */
#ifndef QUIRE_SIMILAR_VECTOR_LOG_H
#define QUIRE_SIMILAR_VECTOR_LOG_H

#include "base/hash.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct vector_log;

/* What the file holds, in its order; vector NULL: there is no such answer any more. Vectors that have expired come too. */
typedef void vector_log_told(void *context, const struct key256 *around, const float *vector,
                             const struct key256 *answer, int64_t expires_ms);

/* identity: of who makes the vectors (weights, version). max_entries: what writing anew keeps, the newest. Before it returns
 * told is called for each record, or for none. QUIRE_INVALID: a file that is damaged, foreign or of another identity, for
 * the caller to set aside; it is as it was. QUIRE_EXHAUSTED: another process has it open. QUIRE_IO, QUIRE_NO_MEMORY. */
int vector_log_open(const char *path, const struct key256 *identity, uint32_t n_numbers, uint32_t max_entries,
                    vector_log_told *told, void *context, struct vector_log **out, struct quire_error *err);
/* Written some time; never waits. A vector is dropped and counted where 16 MiB wait already. */
void vector_log_add(struct vector_log *l, const struct key256 *around, const float *vector, const struct key256 *answer,
                    int64_t expires_ms);
void vector_log_remove(struct vector_log *l, const struct key256 *answer);
void vector_log_clear(struct vector_log *l);

struct vector_log_stats {
    uint64_t n_bytes; /* of the file */
    uint64_t
        n_dropped; /* records that were not written since too many waited; batches of them that the disk or memory had no room for */
    uint64_t n_rewritten; /* times that the file was written anew */
};
void vector_log_stats(struct vector_log *l, struct vector_log_stats *out);
/* Waits until all is written. NULL is fine. */
void vector_log_close(struct vector_log *l);
#endif
