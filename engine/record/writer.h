/* The file of a recording while it is written: the framing of records, their sums, and the bytes that are not in the file
 * yet. Private to the recorder, on its thread.
 *
 * Records collect in memory until record_write_out(). A failed write or a lack of memory ends the recording with one log
 * line. After that all functions do nothing. */
#ifndef QUIRE_ENGINE_RECORD_WRITER_H
#define QUIRE_ENGINE_RECORD_WRITER_H

#include "base/status.h"
#include "engine/record/recording.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RECORD_WRITE_AT_BYTES 65536u

struct record_writer;

/* Creates the file, readable only by its owner. An existing file is not touched: QUIRE_INVALID. */
int record_writer_open(const char *path, struct record_writer **out, struct quire_error *err);
/* Drops the bytes that are not in the file, and closes it. keeps: false removes it. NULL is allowed. */
void record_writer_close(struct record_writer *w, bool keeps);
const char *record_writer_path(const struct record_writer *w);
bool record_has_ended(const struct record_writer *w);
/* Ends the recording. */
void record_stop(struct record_writer *w, const char *why);
/* Makes room for n more bytes, so that they allocate nothing. */
void record_reserve(struct record_writer *w, size_t n);

/* A record begins, is filled in, and ends. */
void record_begin(struct record_writer *w, enum recording_kind kind);
void record_end(struct record_writer *w);
void record_put_bytes(struct record_writer *w, const void *data, size_t n);
void record_put_u8(struct record_writer *w, uint8_t value);
void record_put_u32(struct record_writer *w, uint32_t value);
void record_put_u64(struct record_writer *w, uint64_t value);
void record_put_f64(struct record_writer *w, double value);
void record_put_text(struct record_writer *w, const char *text); /* its length, and its bytes */
void record_put_u32s(struct record_writer *w, const uint32_t *values, uint32_t n); /* without their number */

/* Writes all collected bytes into the file. Between records. */
void record_write_out(struct record_writer *w);
/* The same if there are RECORD_WRITE_AT_BYTES. */
void record_write_if_much(struct record_writer *w);

#endif
