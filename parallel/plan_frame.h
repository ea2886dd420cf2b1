/* The message from rank 0 to the others in each step: a number, a kind and bytes that its callers interpret, with an
 * agreed maximum size. A head of 32 bytes, little-endian, precedes the bytes:
 *
 *     0  u32  "QPF1"           8  u64  step           24  u64  checksum of bytes 0 .. 23 and of the payload
 *     4  u32  kind            16  u64  n_bytes
 *
 * The checksum detects memory errors and ranks in different steps; it does not protect against an attacker. Pure except
 * for the two calls on a collective, which belong to its thread.
 */
#ifndef QUIRE_PARALLEL_PLAN_FRAME_H
#define QUIRE_PARALLEL_PLAN_FRAME_H

#include "parallel/collective.h"

#define PLAN_FRAME_HEAD_BYTES 32

struct plan_frame {
    uint64_t step; /* 0, 1, 2 ...: increases by one with each frame */
    uint32_t kind;
    size_t n_bytes;
    uint64_t checksum;
};

/* Writes the frame's head; computes its checksum from the rest. */
void plan_frame_write(const struct plan_frame *frame, const void *payload, unsigned char head[PLAN_FRAME_HEAD_BYTES]);

/* Reads a head. QUIRE_INVALID names the fault: the magic number, the step, or more than max_bytes. */
int plan_frame_read(const unsigned char head[PLAN_FRAME_HEAD_BYTES], uint64_t step, size_t max_bytes,
                    struct plan_frame *out, struct quire_error *err);
/* Checks the payload that came with it: [frame->n_bytes]. */
int plan_frame_check(const struct plan_frame *frame, const void *payload, struct quire_error *err);

/* Rank 0: sends a frame to all ranks. frame->step and frame->n_bytes must match what the others expect and allow. */
int plan_frame_send(struct collective *c, const struct plan_frame *frame, const void *payload, struct quire_error *err);

/* Other ranks: waits for rank 0 while it lives. payload: [max_bytes]. An invalid frame ends the group. */
int plan_frame_receive(struct collective *c, uint64_t step, size_t max_bytes, struct plan_frame *frame, void *payload,
                       struct quire_error *err);

#endif
