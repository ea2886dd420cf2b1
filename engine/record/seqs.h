/* Maps the sequence numbers of a recording to the choices that have them now. Numbers are reused after their
 * sequence has retired. One thread. */
#ifndef QUIRE_ENGINE_RECORDING_SEQS_H
#define QUIRE_ENGINE_RECORDING_SEQS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct recording_owner {
    size_t request;
    uint32_t choice;
    bool lives;
};

struct recording_seqs {
    struct recording_owner *owners;
    uint32_t n;
};

/* Assigns seq to a choice. QUIRE_NO_MEMORY. */
int recording_seqs_set(struct recording_seqs *s, uint32_t seq, size_t request, uint32_t choice);
/* Returns NULL if the number is free. Valid until the next recording_seqs_set(). */
const struct recording_owner *recording_seqs_owner(const struct recording_seqs *s, uint32_t seq);
void recording_seqs_drop(struct recording_seqs *s, uint32_t seq);
void recording_seqs_free(struct recording_seqs *s);

#endif
