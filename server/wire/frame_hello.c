/* The HELLO frame. */
#include "server/wire/decode.h"
#include "server/wire/encode.h"
#include "server/wire/fields.h"
#include "server/wire/frame.h"

static const struct wire_field rules[] = {
    FIELD_SCALAR(struct wire_hello, version, 1, FIELD_32, FIELD_REQUIRED | FIELD_MUST, 0),
    FIELD_SCALAR(struct wire_hello, identity_text, 2, FIELD_KEY, FIELD_MUST, 0),
    FIELD_SCALAR(struct wire_hello, identity_config, 3, FIELD_KEY, FIELD_MUST, 0),
    FIELD_SPAN(struct wire_hello, model, 4, FIELD_TEXT, 0, WIRE_MAX_TEXT),
    FIELD_SCALAR(struct wire_hello, vocab_size, 5, FIELD_32, 0, 0),
    FIELD_SCALAR(struct wire_hello, max_model_len, 6, FIELD_32, 0, 0),
    FIELD_SCALAR(struct wire_hello, max_num_seqs, 7, FIELD_32, 0, 0),
    FIELD_SCALAR(struct wire_hello, block_tokens, 8, FIELD_32, 0, 0),
    FIELD_SPAN(struct wire_hello, eos, 9, FIELD_WORDS, 0, WIRE_MAX_EOS),
    FIELD_SCALAR(struct wire_hello, initial_credit, 10, FIELD_64, FIELD_MUST, 0),
    FIELD_SPAN(struct wire_hello, description, 11, FIELD_TEXT, 0, WIRE_MAX_TEXT),
    FIELD_SPAN(struct wire_hello, key_proof, 12, FIELD_BYTES, FIELD_MUST, 32),
    FIELD_SPAN(struct wire_hello, nonce, 13, FIELD_BYTES, FIELD_MUST, 32),
    FIELD_SCALAR(struct wire_hello, identity_arithmetic, 14, FIELD_KEY, 0, 0),
    FIELD_SPAN(struct wire_hello, arithmetic, 15, FIELD_TEXT, 0, WIRE_MAX_TEXT),
    FIELD_SCALAR(struct wire_hello, max_num_batched_tokens, 16, FIELD_32, 0, 0),
    FIELD_SCALAR(struct wire_hello, max_queued_requests, 17, FIELD_32, 0, 0),
    FIELD_SCALAR(struct wire_hello, vector_size, 18, FIELD_32, 0, 0),
    FIELD_SCALAR(struct wire_hello, vector_is_scores, 19, FIELD_BOOL, 0, 0),
    FIELD_SCALAR(struct wire_hello, takes_predict, 20, FIELD_BOOL, 0, 0),
    FIELD_SCALAR(struct wire_hello, identity_generation, 21, FIELD_KEY, 0, 0),
    FIELD_SCALAR(struct wire_hello, takes_hit_report, 22, FIELD_BOOL, 0, 0),
};
static const struct wire_hello defaults;
static const struct wire_body hello_body = {"HELLO", rules, FIELD_COUNT(rules), &defaults, sizeof defaults};

int wire_put_hello(struct buffer *b, const struct wire_hello *hello)
{
    return wire_put_body(b, WIRE_HELLO, 0, &hello_body, hello);
}

int wire_get_hello(const uint8_t *body, size_t n, struct wire_hello *out, struct quire_error *err)
{
    return wire_get_body(&hello_body, body, n, out, err);
}
