/* Reads recordings (recorder.h writes them, recording.md is the format).
 *
 * The reader trusts no part of a file: it checks every length, count, range and checksum before use, and an error
 * names the byte offset of the wrong record. A file that ends within a record, as after kill -9, is valid up to that
 * record; recording_left_out() returns the number of bytes after it. After recording_salvage() the same holds for a file
 * with a wrong record: every checksum covers the one before it, so the records before it are whole. One thread at a
 * time. */
#ifndef QUIRE_ENGINE_RECORDING_H
#define QUIRE_ENGINE_RECORDING_H

#include "engine/record/records.h"

struct recording;

/* Maps the file. It must not be truncated while it is open; bytes appended later stay invisible. */
int recording_open(const char *path, struct recording **out, struct quire_error *err);
/* The same for bytes in memory, which must outlive the recording. */
int recording_open_memory(const void *data, size_t n, struct recording **out, struct quire_error *err);
void recording_close(struct recording *r); /* NULL is allowed */

const struct recording_header *recording_header(const struct recording *r);
/* From now on the recording ends before its first wrong record, if it has one. */
void recording_salvage(struct recording *r);
/* What is wrong with that record, once recording_next() returned RECORDING_END for it; otherwise NULL. */
const char *recording_damage(const struct recording *r);
/* Reads the next record, or RECORDING_END. QUIRE_INVALID: corrupt. */
int recording_next(struct recording *r, struct recording_entry *out, struct quire_error *err);
/* Returns to the record after the header. */
void recording_rewind(struct recording *r);
/* Reads the record at an offset from recording_next(). The position of recording_next() does not change. */
int recording_read_at(struct recording *r, uint64_t offset, struct recording_entry *out, struct quire_error *err);
/* Number of bytes after the last complete record, once recording_next() returned RECORDING_END. */
uint64_t recording_left_out(const struct recording *r);
uint64_t recording_bytes(const struct recording *r);
uint64_t recording_position(const struct recording *r); /* offset of the next record, for progress */

#endif
