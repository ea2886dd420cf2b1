/* The sections at the end of a header and of a submit record: the values that version 2 gained after its fixed part
 * was closed. A new member of struct sched_config (the header has it) or struct
 * recording_submit is one row in sections.c; the recorder and the reader need no change. Rows hold values, not lists.
 * Private to this folder. Any thread.
 *
 * Sections are tagged fields (base/encoding/tagged.h, request/codec.h). A row that has its default is left out, so a
 * recording without new values has the same bytes as before the row. An older program skips an unknown section, or
 * rejects the recording if the row has REQUEST_MUST: set it if a replay without the value computes something else. */
#ifndef QUIRE_ENGINE_RECORD_SECTIONS_H
#define QUIRE_ENGINE_RECORD_SECTIONS_H

#include "engine/record/body.h"
#include "request/codec.h"

extern const struct request_layout record_header_sections; /* of struct sched_config, which the header has */
extern const struct request_layout record_submit_sections; /* of struct recording_submit */

/* Reads the rest of a record's body. `out` already holds the fixed part; each row's member gets its value or
 * default. layout: NULL for a record without rows of its own. Reports errors with body_wrong(). */
void record_sections_read(struct body *b, const struct request_layout *layout, void *out);

#endif
