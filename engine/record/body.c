#include "engine/record/body.h"

#include "base/encoding/little_endian.h"

#include <stdlib.h>
#include <string.h>

void body_wrong(struct body *b, const char *what)
{
    if (!b->wrong)
        b->wrong = what;
    b->at = b->end;
}

const uint8_t *body_bytes(struct body *b, size_t n)
{
    if ((size_t)(b->end - b->at) < n) {
        body_wrong(b, "is shorter than its fields");
        return NULL;
    }
    b->at += n;
    return b->at - n;
}

uint8_t body_u8(struct body *b)
{
    const uint8_t *in = body_bytes(b, 1);
    return in ? in[0] : 0;
}

bool body_bool(struct body *b)
{
    uint8_t value = body_u8(b);
    if (value > 1)
        body_wrong(b, "has a flag that is neither 0 nor 1");
    return value == 1;
}

uint8_t body_below(struct body *b, uint8_t n, const char *what)
{
    uint8_t value = body_u8(b);
    if (value < n)
        return value;
    body_wrong(b, what);
    return 0;
}

uint32_t body_u32(struct body *b)
{
    const uint8_t *in = body_bytes(b, 4);
    return in ? le_load_u32(in) : 0;
}

uint64_t body_u64(struct body *b)
{
    const uint8_t *in = body_bytes(b, 8);
    return in ? le_load_u64(in) : 0;
}

uint64_t body_time(struct body *b)
{
    uint64_t value = body_u64(b);
    if (value > RECORD_MAX_TIME_US)
        body_wrong(b, "has a time out of range");
    return value;
}

float body_f32(struct body *b)
{
    uint32_t bits = body_u32(b);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

double body_f64(struct body *b)
{
    uint64_t bits = body_u64(b);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void body_text(struct body *b, char *out, size_t size)
{
    uint32_t n = body_u32(b);
    const uint8_t *in = n < size ? body_bytes(b, n) : NULL;
    if (!in) {
        body_wrong(b, "has a name that is too long");
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        if (in[i] < 0x20 || in[i] == 0x7f)
            body_wrong(b, "has a name with control bytes");
    memcpy(out, in, n);
    out[n] = 0;
}

void body_key(struct body *b, struct key256 *out)
{
    const uint8_t *in = body_bytes(b, sizeof out->bytes);
    if (in)
        memcpy(out->bytes, in, sizeof out->bytes);
}

void *body_scratch(struct body *b, struct scratch *s, size_t n, size_t size)
{
    if (s->capacity < (n + 1) * size) {
        void *data = realloc(s->data, 2 * (n + 1) * size);
        if (!data) {
            body_wrong(b, "needs more memory than there is");
            return NULL;
        }
        s->data = data;
        s->capacity = 2 * (n + 1) * size;
    }
    return s->data;
}

const uint32_t *body_u32s(struct body *b, struct scratch *s, uint32_t n)
{
    const uint8_t *in = body_bytes(b, 4 * (size_t)n);
    uint32_t *out = in ? body_scratch(b, s, n, sizeof *out) : NULL;
    for (uint32_t i = 0; out && i < n; i++)
        out[i] = le_load_u32(in + 4 * (size_t)i);
    return out;
}

uint32_t body_seq(struct body *b)
{
    uint32_t seq = body_u32(b);
    if (seq < BODY_MAX_SEQS)
        return seq;
    body_wrong(b, "names a sequence that cannot be");
    return 0;
}
