/* Reads the submit record of both versions, for recording.c only. One thread at a time. */
#ifndef QUIRE_ENGINE_RECORD_SUBMIT_H
#define QUIRE_ENGINE_RECORD_SUBMIT_H

#include "engine/record/body.h"
#include "engine/record/records.h"

struct submit_reader; /* and the memory behind the pointers of its last record */

/* For a recording of this version. NULL: out of memory. */
struct submit_reader *submit_reader_create(uint32_t version);
void submit_reader_destroy(struct submit_reader *r); /* NULL is allowed */

/* Valid until the next call; belongs to the reader. */
struct recording_submit *submit_read(struct submit_reader *r, const struct recording_header *h, struct body *b);

#endif
