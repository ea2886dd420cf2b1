/* SUBMIT carries a request_spec. The engine must understand every field that can change tokens, and a pin, because
 * the client relies on it. It may ignore fields that say when a request should run. PREDICT carries the expected
 * answer of a submitted request, which was not known at submission. */
#include "server/wire/fields.h"

#include "request/codec.h"
#include "server/wire/decode.h"
#include "server/wire/encode.h"
#include "server/wire/frame.h"

#include <string.h>

int wire_put_submit_around(struct buffer *b, uint64_t request, const struct request_spec *spec, size_t *prompt_at)
{
    size_t mark;
    int status = wire_frame_begin(b, WIRE_SUBMIT, request, &mark);
    if (status)
        return status;
    status = request_spec_put(b, spec, REQUEST_FOR_FRAME, prompt_at);
    size_t n_body = b->n - mark - WIRE_HEADER_BYTES + spec->n_prompt * sizeof *spec->prompt;
    if (!status && n_body > WIRE_MAX_BODY)
        status = QUIRE_INVALID;
    if (status)
        b->n = mark;
    else
        le_store_u32((uint8_t *)b->data + mark, (uint32_t)n_body);
    return status;
}

int wire_put_submit(struct buffer *b, uint64_t request, const struct request_spec *spec)
{
    size_t before = b->n, at, n = spec->n_prompt * sizeof *spec->prompt;
    int status = wire_put_submit_around(b, request, spec, &at);
    if (status)
        return status;
    if (!buffer_reserve(b, n)) {
        b->n = before;
        return QUIRE_NO_MEMORY;
    }
    memmove(b->data + at + n, b->data + at, b->n - at);
    if (n > 0)
        memcpy(b->data + at, spec->prompt, n);
    b->n += n;
    return QUIRE_OK;
}

int wire_get_submit(const uint8_t *body, size_t n, struct request_spec *out, struct quire_error *err)
{
    return request_spec_get("SUBMIT", body, n, out, err);
}

/* ---- PREDICT ---- */

static const struct wire_field predict_rules[] = {
    {"tokens", 1, FIELD_WORDS, FIELD_REQUIRED | FIELD_MUST, offsetof(struct wire_predict, tokens),
     offsetof(struct wire_predict, n_tokens), offsetof(struct wire_predict, ids), 1, REQUEST_MAX_PROMPT},
};
static const struct wire_predict no_predict;
static const struct wire_body predict_body = {"PREDICT", predict_rules, FIELD_COUNT(predict_rules), &no_predict,
                                              sizeof no_predict};

int wire_put_predict(struct buffer *b, uint64_t request, const struct wire_predict *predict)
{
    return wire_put_body(b, WIRE_PREDICT, request, &predict_body, predict);
}

int wire_get_predict(const uint8_t *body, size_t n, struct wire_predict *out, struct quire_error *err)
{
    return wire_get_body(&predict_body, body, n, out, err);
}
