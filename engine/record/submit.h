/* Reads the submit record of both versions, for recording.c only. One thread at a time. */
#ifndef QUIRE_ENGINE_RECORD_SUBMIT_H
#define QUIRE_ENGINE_RECORD_SUBMIT_H

#include "engine/record/body.h"
#include "engine/record/recording.h"

/* Memory behind the pointers of the last record read. Initialize to zero. */
struct submit_scratch {
    struct request_spec spec; /* owned; version 2 */
    struct scratch prompt, stops, biases, allowed, bad_words; /* version 1 */
    struct scratch seqs;
};

void submit_read(const struct recording_header *h, struct submit_scratch *scratch, struct body *b,
                 struct recording_submit *out);
void submit_scratch_free(struct submit_scratch *scratch);

#endif
