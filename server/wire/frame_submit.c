/* SUBMIT. Everything that can change the tokens must be understood, and a pin, which is told as done;
 * what says when a request should run may be ignored. */
#include "server/wire/fields.h"

#define SUBMIT(member, tag, kind, flags) FIELD_SCALAR(struct wire_submit, member, tag, kind, flags, 0)
#define SUBMIT_WORDS(member, bytes_, tag, flags, width_, max_) \
    {#member, \
     tag, \
     FIELD_WORDS, \
     flags, \
     offsetof(struct wire_submit, bytes_), \
     offsetof(struct wire_submit, n_##member), \
     offsetof(struct wire_submit, member), \
     width_, \
     max_}

static const struct wire_field rules[] = {
    SUBMIT_WORDS(prompt, prompt_bytes, 1, FIELD_REQUIRED | FIELD_MUST, 1, WIRE_MAX_BODY / 4),
    SUBMIT(max_tokens, 2, FIELD_32, FIELD_REQUIRED | FIELD_MUST),
    SUBMIT(n, 3, FIELD_32, FIELD_MUST),
    SUBMIT(min_tokens, 4, FIELD_32, FIELD_MUST),
    SUBMIT(temperature, 5, FIELD_32, FIELD_MUST),
    SUBMIT(top_p, 6, FIELD_32, FIELD_MUST),
    SUBMIT(min_p, 7, FIELD_32, FIELD_MUST),
    SUBMIT(top_k, 8, FIELD_32, FIELD_MUST),
    SUBMIT(repetition_penalty, 9, FIELD_32, FIELD_MUST),
    SUBMIT(presence_penalty, 10, FIELD_32, FIELD_MUST),
    SUBMIT(frequency_penalty, 11, FIELD_32, FIELD_MUST),
    FIELD_OPTIONAL(struct wire_submit, seed, 12, FIELD_64, FIELD_MUST),
    SUBMIT(ignore_eos, 13, FIELD_BOOL, FIELD_MUST),
    SUBMIT(n_logprobs, 14, FIELD_32, FIELD_MUST),
    SUBMIT(n_prompt_logprobs, 15, FIELD_32, FIELD_MUST),
    SUBMIT(priority, 16, FIELD_32, 0),
    SUBMIT(deadline_us, 17, FIELD_64, 0),
    SUBMIT(tenant, 18, FIELD_KEY, FIELD_MUST),
    SUBMIT_WORDS(stop_token_ids, stop_bytes, 19, FIELD_MUST, 1, WIRE_MAX_STOP_TOKEN_IDS),
    SUBMIT_WORDS(biases, bias_bytes, 20, FIELD_MUST, 2, WIRE_MAX_BIASES),
    SUBMIT(tenant_index, 21, FIELD_32, 0),
    SUBMIT(class_index, 22, FIELD_32, 0),
    SUBMIT(background, 23, FIELD_BOOL, 0),
    SUBMIT(pin_us, 24, FIELD_64, FIELD_MUST),
    SUBMIT(expected_tokens, 25, FIELD_32, 0),
    SUBMIT_WORDS(allowed_token_ids, allowed_bytes, 26, FIELD_MUST, 1, WIRE_MAX_ALLOWED_TOKEN_IDS),
    SUBMIT_WORDS(bad_words, bad_word_bytes, 27, FIELD_MUST, 1, WIRE_MAX_BAD_WORDS),
};
static const struct wire_submit defaults = {
    .n = 1,
    .temperature = 1.0f,
    .top_p = 1.0f,
    .repetition_penalty = 1.0f,
    .n_logprobs = -1,
    .n_prompt_logprobs = -1,
};
static const struct wire_body submit_body = {"SUBMIT", rules, FIELD_COUNT(rules), &defaults, sizeof defaults};

void wire_submit_default(struct wire_submit *submit)
{
    *submit = defaults;
}

int wire_put_submit(struct buffer *b, uint64_t request, const struct wire_submit *submit)
{
    return wire_put_body(b, WIRE_SUBMIT, request, &submit_body, submit);
}

int wire_get_submit(const uint8_t *body, size_t n, struct wire_submit *out, struct quire_error *err)
{
    return wire_get_body(&submit_body, body, n, out, err);
}
