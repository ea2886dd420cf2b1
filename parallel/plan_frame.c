#include "parallel/plan_frame.h"

#include "base/checksum.h"
#include "base/encoding/little_endian.h"

#include <string.h>

#define MAGIC 0x31465051u /* "QPF1" */
#define CHECKED_BYTES 24 /* bytes of the head before the checksum */

/* ---- the checksum ---- */

static uint64_t checksum_of(const unsigned char head[PLAN_FRAME_HEAD_BYTES], const void *payload, size_t n_bytes)
{
    return quire_checksum(quire_checksum(MAGIC, head, CHECKED_BYTES), payload, n_bytes);
}

/* ---- bytes ---- */

static void store_head(const struct plan_frame *frame, unsigned char head[PLAN_FRAME_HEAD_BYTES])
{
    le_store_u32(head, MAGIC);
    le_store_u32(head + 4, frame->kind);
    le_store_u64(head + 8, frame->step);
    le_store_u64(head + 16, frame->n_bytes);
    le_store_u64(head + 24, frame->checksum);
}

void plan_frame_write(const struct plan_frame *frame, const void *payload, unsigned char head[PLAN_FRAME_HEAD_BYTES])
{
    store_head(frame, head);
    le_store_u64(head + CHECKED_BYTES, checksum_of(head, payload, frame->n_bytes));
}

int plan_frame_read(const unsigned char head[PLAN_FRAME_HEAD_BYTES], uint64_t step, size_t max_bytes,
                    struct plan_frame *out, struct quire_error *err)
{
    uint64_t n_bytes = le_load_u64(head + 16);
    if (le_load_u32(head) != MAGIC)
        return quire_fail(err, QUIRE_INVALID, "plan frame: wrong magic number 0x%08x", le_load_u32(head));
    if (le_load_u64(head + 8) != step)
        return quire_fail(err, QUIRE_INVALID, "plan frame: step: received %llu, expected %llu",
                          (unsigned long long)le_load_u64(head + 8), (unsigned long long)step);
    if (n_bytes > max_bytes)
        return quire_fail(err, QUIRE_INVALID, "plan frame: n_bytes: %llu is more than the limit %zu",
                          (unsigned long long)n_bytes, max_bytes);
    *out = (struct plan_frame){
        .step = step, .kind = le_load_u32(head + 4), .n_bytes = n_bytes, .checksum = le_load_u64(head + CHECKED_BYTES)};
    return QUIRE_OK;
}

int plan_frame_check(const struct plan_frame *frame, const void *payload, struct quire_error *err)
{
    unsigned char head[PLAN_FRAME_HEAD_BYTES];
    store_head(frame, head);
    if (checksum_of(head, payload, frame->n_bytes) != frame->checksum)
        return quire_fail(err, QUIRE_INVALID, "plan frame: checksum: does not match for step %llu (%zu bytes)",
                          (unsigned long long)frame->step, frame->n_bytes);
    return QUIRE_OK;
}

/* ---- between ranks ---- */

int plan_frame_send(struct collective *c, const struct plan_frame *frame, const void *payload, struct quire_error *err)
{
    unsigned char head[PLAN_FRAME_HEAD_BYTES];
    plan_frame_write(frame, payload, head);
    int status = collective_broadcast_when_ready(c, head, sizeof head, 0, err);
    if (status == QUIRE_OK && frame->n_bytes > 0) /* the root only reads it */
        status = collective_broadcast(c, (void *)(uintptr_t)payload, frame->n_bytes, 0, err);
    return status;
}

int plan_frame_receive(struct collective *c, uint64_t step, size_t max_bytes, struct plan_frame *frame, void *payload,
                       struct quire_error *err)
{
    unsigned char head[PLAN_FRAME_HEAD_BYTES];
    struct quire_error wrong;
    int status = collective_broadcast_when_ready(c, head, sizeof head, 0, err);
    if (status != QUIRE_OK)
        return status;
    status = plan_frame_read(head, step, max_bytes, frame, &wrong);
    if (status == QUIRE_OK && frame->n_bytes > 0) {
        status = collective_broadcast(c, payload, frame->n_bytes, 0, err);
        if (status != QUIRE_OK)
            return status;
    }
    if (status == QUIRE_OK)
        status = plan_frame_check(frame, payload, &wrong);
    if (status == QUIRE_OK)
        return QUIRE_OK;
    collective_abort(c, wrong.text);
    return quire_fail(err, status, "%s", wrong.text);
}
