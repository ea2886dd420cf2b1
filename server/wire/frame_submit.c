/* SUBMIT: a request_spec. What can change the tokens must be understood, and a pin, which is told as done; what says when
 * a request should run may be ignored. */
#include "server/wire/fields.h"

#include "request/codec.h"

int wire_put_submit(struct buffer *b, uint64_t request, const struct request_spec *spec)
{
    size_t mark;
    int status = wire_frame_begin(b, WIRE_SUBMIT, request, &mark);
    if (status)
        return status;
    status = request_spec_put(b, spec, REQUEST_FOR_FRAME);
    if (!status)
        return wire_frame_end(b, mark);
    b->n = mark;
    return status;
}

int wire_get_submit(const uint8_t *body, size_t n, struct request_spec *out, struct quire_error *err)
{
    return request_spec_get("SUBMIT", body, n, out, err);
}
