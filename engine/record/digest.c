#include "engine/record/digest.h"
#include "kernels/args/sample.h"

#include "engine/record/format.h"

void record_digest_begin(struct record_digest *d)
{
    *d = (struct record_digest){0};
    quire_sha256_begin(&d->state);
}

static uint8_t *put(uint8_t *at, uint32_t value)
{
    le_store_u32(at, value);
    return at + 4;
}

static uint8_t *put_bits(uint8_t *at, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return put(at, bits);
}

void record_digest_add(struct record_digest *d, const struct engine_event *event)
{
    uint8_t bytes[4 * (6 + 2 * K_MAX_LOGPROBS)], *at = bytes;
    const struct engine_logprob *l = &event->logprob;
    if (event->kind == ENGINE_EVENT_DONE)
        return;
    bool of_prompt = event->kind == ENGINE_EVENT_PROMPT_LOGPROB;
    at = put(at, of_prompt);
    at = put(at, event->token);
    at = put(at, event->position);
    at = put(at, event->has_logprob ? l->n_top : UINT32_MAX);
    if (event->has_logprob) {
        at = put_bits(at, l->logprob);
        at = put(at, l->rank);
        for (uint32_t i = 0; i < l->n_top; i++) {
            at = put(at, l->top_ids[i]);
            at = put_bits(at, l->top_logprobs[i]);
        }
    }
    quire_sha256_add(&d->state, bytes, (size_t)(at - bytes));
    if (of_prompt)
        d->n_prompt_logprobs++;
    else
        d->n_tokens++;
}

struct key256 record_digest_now(const struct record_digest *d)
{
    return quire_sha256_now(&d->state);
}
