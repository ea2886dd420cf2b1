/* A stream of frames, as either side reads it: cut into frames in pieces of any size, each body decoded. A decoded
 * frame can be encoded again, to the same values.
 *
 * input: {u8 size of the pieces} {stream}
 */
#include "fuzz.h"

#include "server/wire/decode.h"
#include "server/wire/encode.h"
#include "server/wire/frame.h"
#include "server/wire/frame_reader.h"
#include "server/wire/records.h"
#include "server/wire/stats_frame.h"

#include <stdlib.h>
#include <string.h>

#define MAX_TOKENS 4096

static void must(bool condition)
{
    if (!condition)
        abort();
}

static void tokens(uint16_t type, const uint8_t *body, size_t n)
{
    static struct wire_token all[MAX_TOKENS];
    struct quire_error err;
    struct buffer b = {0};
    uint32_t count = 0;
    size_t cursor = 0;
    int found = 0;
    while (count < MAX_TOKENS && (found = wire_next_token(body, n, &cursor, &all[count], &err)) > 0)
        count++;
    if (found != 0 || count == 0)
        return;
    int status = type == WIRE_TOKENS ? wire_put_tokens(&b, 1, all, count) : wire_put_prompt_logprobs(&b, 1, all, count);
    must(status == QUIRE_OK);
    /* The field's value, byte for byte: NaN logprobs too. */
    size_t n_records = b.n - WIRE_HEADER_BYTES - 8;
    must(wire_u32(body, 1) == n_records);
    must(memcmp(body + 8, b.data + WIRE_HEADER_BYTES + 8, n_records) == 0);
    buffer_free(&b);
}

static void hello(const uint8_t *body, size_t n)
{
    struct wire_hello first, second;
    struct quire_error err;
    struct buffer b = {0};
    if (wire_get_hello(body, n, &first, &err))
        return;
    must(wire_put_hello(&b, &first) == QUIRE_OK);
    must(wire_get_hello((const uint8_t *)b.data + WIRE_HEADER_BYTES, b.n - WIRE_HEADER_BYTES, &second, &err) == 0);
    must(second.version == first.version && second.initial_credit == first.initial_credit);
    must(second.n_model == first.n_model && second.n_eos == first.n_eos);
    must(!first.n_model || memcmp(second.model, first.model, first.n_model) == 0);
    must(second.n_nonce == first.n_nonce && second.n_key_proof == first.n_key_proof);
    buffer_free(&b);
}

static void submit(const uint8_t *body, size_t n)
{
    struct request_spec s;
    struct quire_error err;
    if (wire_get_submit(body, n, &s, &err))
        return;
    (void)request_spec_check(&s, 1000, &err);
    /* The decoded value can be encoded, and from then on gives the same bytes. */
    struct buffer b = {0}, again = {0};
    struct request_spec second;
    must(wire_put_submit(&b, 1, &s) == QUIRE_OK);
    must(wire_get_submit((const uint8_t *)b.data + WIRE_HEADER_BYTES, b.n - WIRE_HEADER_BYTES, &second, &err) == 0);
    must(wire_put_submit(&again, 1, &second) == QUIRE_OK);
    must(again.n == b.n && memcmp(again.data, b.data, b.n) == 0);
    request_spec_free(&second);
    request_spec_free(&s);
    buffer_free(&again);
    buffer_free(&b);
}

/* Every tenant's words are read, and the frame can be made again. */
static void stats_again(struct wire_stats *stats, struct buffer *b)
{
    uint32_t *words = malloc((stats->n_tenants + 1) * WIRE_TENANT_WORDS * sizeof *words);
    must(words && stats->n_tenants <= WIRE_MAX_TENANTS);
    for (uint32_t i = 0; i < stats->n_tenants; i++) {
        struct wire_tenant tenant;
        wire_tenant_get(stats, i, &tenant);
        wire_tenant_put(words + WIRE_TENANT_WORDS * i, &tenant);
    }
    uint32_t buckets[WIRE_MAX_SHADOW_BUCKETS * WIRE_SHADOW_BUCKET_WORDS];
    must(stats->n_shadow_buckets <= WIRE_MAX_SHADOW_BUCKETS);
    for (uint32_t i = 0; i < stats->n_shadow_buckets; i++) {
        struct wire_shadow_bucket bucket;
        wire_shadow_bucket_get(stats, i, &bucket);
        wire_shadow_bucket_put(buckets + WIRE_SHADOW_BUCKET_WORDS * i, &bucket);
    }
    uint32_t steps[WIRE_MAX_STEP_BUCKETS * WIRE_STEP_BUCKET_WORDS];
    must(stats->n_step_buckets <= WIRE_MAX_STEP_BUCKETS);
    for (uint32_t i = 0; i < stats->n_step_buckets; i++) {
        struct wire_step_bucket bucket;
        wire_step_bucket_get(stats, i, &bucket);
        wire_step_bucket_put(steps + WIRE_STEP_BUCKET_WORDS * i, &bucket);
    }
    uint32_t accepted[WIRE_MAX_ACCEPTED * WIRE_ACCEPTED_WORDS];
    must(stats->n_accepted_at <= WIRE_MAX_ACCEPTED);
    for (uint32_t i = 0; i < stats->n_accepted_at; i++)
        wire_accepted_put(accepted + WIRE_ACCEPTED_WORDS * i, wire_accepted_get(stats, i));
    uint32_t waits[WIRE_MAX_RANK_WAITS * WIRE_RANK_WAIT_WORDS];
    must(stats->n_rank_waits <= WIRE_MAX_RANK_WAITS);
    for (uint32_t i = 0; i < stats->n_rank_waits; i++)
        wire_rank_wait_put(waits + WIRE_RANK_WAIT_WORDS * i, wire_rank_wait_get(stats, i));
    uint32_t experts[WIRE_MAX_EXPERTS * WIRE_EXPERT_WORDS];
    must(stats->n_expert_tokens <= WIRE_MAX_EXPERTS);
    for (uint32_t i = 0; i < stats->n_expert_tokens; i++)
        wire_expert_put(experts + WIRE_EXPERT_WORDS * i, wire_expert_get(stats, i));
    stats->expert_tokens = experts;
    stats->rank_waits = waits;
    stats->accepted_at = accepted;
    stats->step_buckets = steps;
    stats->shadow_buckets = buckets;
    stats->tenants = words;
    must(wire_put_stats(b, stats) == QUIRE_OK);
    free(words);
}

static void predict(const uint8_t *body, size_t n)
{
    struct wire_predict p;
    struct quire_error err;
    struct buffer b = {0};
    if (wire_get_predict(body, n, &p, &err))
        return;
    uint32_t *ids = malloc((p.n_tokens + 1) * sizeof *ids);
    must(ids != NULL);
    for (uint32_t i = 0; i < p.n_tokens; i++)
        ids[i] = wire_u32(p.tokens, i);
    must(wire_put_predict(&b, 1, &(struct wire_predict){.ids = ids, .n_tokens = p.n_tokens}) == QUIRE_OK);
    must(memcmp(b.data + WIRE_HEADER_BYTES + 8, p.tokens, p.n_tokens * sizeof *ids) == 0);
    buffer_free(&b);
    free(ids);
}

static void hit_report(const uint8_t *body, size_t n)
{
    struct wire_hit_report r;
    struct quire_error err;
    struct buffer b = {0};
    uint32_t words[3 * WIRE_MAX_SERVED];
    if (wire_get_hit_report(body, n, &r, &err))
        return;
    for (uint32_t i = 0; i < 3 * r.n_served; i++)
        words[i] = wire_u32(r.served, i);
    must(wire_put_hit_report(&b, &(struct wire_hit_report){.words = words, .n_served = r.n_served}) == QUIRE_OK);
    must(memcmp(b.data + WIRE_HEADER_BYTES + 8, words, 3 * r.n_served * sizeof *words) == 0);
    buffer_free(&b);
}

static void small(const struct wire_header *header, const uint8_t *body)
{
    struct quire_error err;
    struct buffer b = {0};
    struct wire_refuse refuse;
    struct wire_done done;
    struct wire_stats stats;
    struct wire_vector vector;
    int64_t choice;
    uint64_t credit;
    uint32_t status;
    const char *text;
    size_t n_text, n = header->body_bytes;
    switch ((enum wire_type)header->type) {
    case WIRE_REFUSE: must(wire_get_refuse(body, n, &refuse, &err) || !wire_put_refuse(&b, 1, &refuse)); break;
    case WIRE_DONE: must(wire_get_done(body, n, &done, &err) || !wire_put_done(&b, 1, &done)); break;
    case WIRE_STATS:
        wire_get_stats_request(body, n, &status, &err);
        if (wire_get_stats(body, n, &stats, &err) == QUIRE_OK)
            stats_again(&stats, &b);
        break;
    case WIRE_VECTOR:
        if (wire_get_vector(body, n, &vector, &err) == QUIRE_OK) {
            float numbers[WIRE_MAX_VECTOR];
            for (uint32_t i = 0; i < vector.n_values; i++)
                numbers[i] = wire_f32(vector.values, i);
            vector.numbers = numbers;
            must(wire_put_vector(&b, 1, &vector) == QUIRE_OK);
        }
        break;
    case WIRE_ACCEPT: must(wire_get_accept(body, n, &credit, &err) || !wire_put_accept(&b, 1, credit)); break;
    case WIRE_CANCEL: must(wire_get_cancel(body, n, &choice, &err) || !wire_put_cancel(&b, 1, choice)); break;
    case WIRE_CREDIT: wire_get_credit(body, n, &credit, &err); break;
    case WIRE_CONTROL: wire_get_control(body, n, &text, &n_text, &err); break;
    case WIRE_ERROR: wire_get_error(body, n, &status, &text, &n_text, &err); break;
    default: wire_get_drain(body, n, &err); break;
    }
    buffer_free(&b);
}

static void frame(const struct wire_header *header, const uint8_t *body)
{
    /* A copy of the exact size: a read past its end is seen. */
    uint8_t *copy = malloc(header->body_bytes ? header->body_bytes : 1);
    must(copy != NULL);
    if (header->body_bytes)
        memcpy(copy, body, header->body_bytes);
    if (header->type == WIRE_TOKENS || header->type == WIRE_PROMPT_LOGPROBS)
        tokens(header->type, copy, header->body_bytes);
    else if (header->type == WIRE_HELLO)
        hello(copy, header->body_bytes);
    else if (header->type == WIRE_SUBMIT)
        submit(copy, header->body_bytes);
    else if (header->type == WIRE_PREDICT)
        predict(copy, header->body_bytes);
    else if (header->type == WIRE_HIT_REPORT)
        hit_report(copy, header->body_bytes);
    else
        small(header, copy);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct frame_reader reader = {0};
    struct wire_header header;
    struct quire_error err;
    const uint8_t *body;
    if (size == 0)
        return 0;
    size_t piece = data[0] ? data[0] * 4u : 1, at = 1;
    int found = 0;
    while (at < size && found >= 0) {
        size_t n = size - at < piece ? size - at : piece;
        uint8_t *space = frame_reader_space(&reader, n);
        must(space != NULL);
        memcpy(space, data + at, n);
        frame_reader_added(&reader, n);
        at += n;
        while ((found = frame_reader_next(&reader, WIRE_MAX_BODY, &header, &body, &err)) > 0)
            frame(&header, body);
    }
    frame_reader_free(&reader);
    return 0;
}
