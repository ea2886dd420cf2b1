/* The statistics of an experiment as bytes, to be kept over a restart. Little-endian; version 1. Pure. */
#ifndef QUIRE_GATEWAY_TRIAL_BYTES_H
#define QUIRE_GATEWAY_TRIAL_BYTES_H

#include "base/buffer.h"
#include "server/gateway/experiment/trial.h"

/* Out of memory: out->failed. */
void trial_to_bytes(const struct trial *t, struct buffer *out);
/* Sets t's counts. Returns false and leaves t as it is if the bytes are of another run, of another version or damaged. */
bool trial_from_bytes(struct trial *t, const void *bytes, size_t n);

#endif
