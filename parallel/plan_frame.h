/* What rank 0 tells the others at each step: a number, a kind and bytes that mean something to its callers, who agreed on the
 * most there can be. A head of 32 bytes, little-endian, goes before the bytes:
 *
 *     0  u32  "QPF1"           8  u64  step           24  u64  checksum of bytes 0 .. 23 and of the payload
 *     4  u32  kind            16  u64  n_bytes
 *
 * The checksum is for memory that went wrong and ranks that lost step, not against an enemy. Pure but for the two calls on a
 * collective, which belong to its thread. */
#ifndef QUIRE_PARALLEL_PLAN_FRAME_H
#define QUIRE_PARALLEL_PLAN_FRAME_H

#include "parallel/collective.h"

#define PLAN_FRAME_HEAD_BYTES 32

struct plan_frame {
    uint64_t step; /* 0, 1, 2 ...: one more with each frame */
    uint32_t kind;
    size_t n_bytes;
    uint64_t checksum;
};

/* The frame's head; its checksum is computed from the rest. */
void plan_frame_write(const struct plan_frame *frame, const void *payload, unsigned char head[PLAN_FRAME_HEAD_BYTES]);

/* Of a head: QUIRE_INVALID names what is wrong: what it is, its step, or more than max_bytes. */
int plan_frame_read(const unsigned char head[PLAN_FRAME_HEAD_BYTES], uint64_t step, size_t max_bytes,
                    struct plan_frame *out, struct quire_error *err);
/* Of the payload that came with it: [frame->n_bytes]. */
int plan_frame_check(const struct plan_frame *frame, const void *payload, struct quire_error *err);

/* Rank 0's part: gives a frame to all ranks. frame->step and ->n_bytes are what the others expect and allow. */
int plan_frame_send(struct collective *c, const struct plan_frame *frame, const void *payload, struct quire_error *err);

/* The others': waits for rank 0 as long as it lives. payload: [max_bytes]. What is wrong with a frame ends the group. */
int plan_frame_receive(struct collective *c, uint64_t step, size_t max_bytes, struct plan_frame *frame, void *payload,
                       struct quire_error *err);

#endif
