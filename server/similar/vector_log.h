/* Stores the vectors of an index in a file, so that a restarted server finds the earlier questions.
 *
 * The file is a log (vector_records.h): additions and removals are appended by a thread of its own. A log was chosen
 * over a snapshot of the whole index because nothing must be copied or held still. Logging a vector takes the loop's
 * thread a few microseconds, whatever the size of the index. After a kill the file has complete records and at most
 * one torn record; after a power failure it may end in zeros. Both are cut off. When the file has twice its size
 * after the last rewrite, the thread writes the valid records to PATH.new, which replaces the file once it is on the
 * disk.
 *
 * The loop's thread calls. The file is for its owner alone (0600), and one process has it open. */
#ifndef QUIRE_SIMILAR_VECTOR_LOG_H
#define QUIRE_SIMILAR_VECTOR_LOG_H

#include "base/hash.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct vector_log;

/* Called with the file's records in order. vector NULL: the answer was removed. Expired vectors are included. */
typedef void vector_log_told(void *context, const struct key256 *around, const float *vector,
                             const struct key256 *answer, int64_t expires_ms);

/* identity: of the model that makes the vectors (weights, version). max_entries: the newest entries that a rewrite
 * keeps. Before this returns, the callback receives every record, or no record. QUIRE_INVALID: the file is damaged,
 * foreign or of another identity, and unchanged; the caller should rename it. QUIRE_EXHAUSTED: another process has
 * it open. QUIRE_IO, QUIRE_NO_MEMORY. */
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
    uint64_t n_rewritten; /* number of rewrites of the file */
};
void vector_log_stats(struct vector_log *l, struct vector_log_stats *out);
/* Waits until all is written. NULL is fine. */
void vector_log_close(struct vector_log *l);
#endif
