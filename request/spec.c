#include "request/spec.h"

#include "request/fields.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void request_spec_default(struct request_spec *spec)
{
    *spec = request_defaults;
}

void request_spec_take_defaults(struct request_spec *spec, const struct sampling_defaults *d)
{
    if (d->has_temperature)
        spec->temperature = (float)d->temperature;
    if (d->has_top_p)
        spec->top_p = (float)d->top_p;
    if (d->has_top_k)
        spec->top_k = d->top_k;
    if (d->has_min_p)
        spec->min_p = (float)d->min_p;
    if (d->has_repetition_penalty)
        spec->repetition_penalty = (float)d->repetition_penalty;
}

static void *owned(const void *items)
{
    return (void *)(uintptr_t)items;
}

void request_spec_drop_prompt(struct request_spec *spec)
{
    free(owned(spec->prompt));
    spec->prompt = NULL;
}

void request_spec_free(struct request_spec *spec)
{
    for (size_t i = 0; i < request_n_fields; i++)
        if (request_field_is_list(&request_fields[i]))
            free(owned(request_field_list(&request_fields[i], spec).items));
    *spec = request_defaults;
}

int request_spec_copy(struct request_spec *to, const struct request_spec *from, struct quire_error *err)
{
    *to = *from;
    for (size_t i = 0; i < request_n_fields; i++)
        if (request_field_is_list(&request_fields[i]))
            request_field_set_list(&request_fields[i], to, (struct request_list){0});
    for (size_t i = 0; i < request_n_fields; i++) {
        const struct request_field *f = &request_fields[i];
        struct request_list list = request_field_is_list(f) ? request_field_list(f, from) : (struct request_list){0};
        if (list.n == 0)
            continue;
        void *items = malloc(list.n * request_field_bytes(f));
        if (!items) {
            request_spec_free(to);
            return quire_fail(err, QUIRE_NO_MEMORY, "request: out of memory");
        }
        memcpy(items, list.items, list.n * request_field_bytes(f));
        request_field_set_list(f, to, (struct request_list){items, list.n});
    }
    return QUIRE_OK;
}

struct request_spec request_spec_move(struct request_spec *from)
{
    struct request_spec moved = *from;
    *from = request_defaults;
    return moved;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static int check_number(const struct request_field *f, float value, struct quire_error *err)
{
    double low = f->range.low, high = f->range.high;
    bool above = f->flags & REQUEST_ABOVE;
    /* NaN fails every comparison, so it is outside every range. */
    if (value <= high && (above ? value > low : value >= low))
        return QUIRE_OK;
    return quire_fail_for(err, QUIRE_INVALID, f->name,
                          above ? "must be above %g and at most %g, got %g" : "must be between %g and %g, got %g", low,
                          high, (double)value);
}

static int check_whole(const struct request_field *f, const void *at, struct quire_error *err)
{
    const struct request_range *r = &f->range;
    int32_t i32;
    uint32_t u32;
    uint64_t u64;
    int64_t value;
    if (r->least == 0 && r->most == 0)
        return QUIRE_OK;
    if (f->kind == REQUEST_U64) {
        memcpy(&u64, at, sizeof u64);
        value = u64 > INT64_MAX ? INT64_MAX : (int64_t)u64;
    } else if (f->kind == REQUEST_U32) {
        memcpy(&u32, at, sizeof u32);
        value = u32;
    } else {
        memcpy(&i32, at, sizeof i32);
        value = i32;
    }
    if (value >= r->least && (value < 0 || (uint64_t)value <= r->most))
        return QUIRE_OK;
    return quire_fail_for(err, QUIRE_INVALID, f->name, "must be between %lld and %llu, got %lld", (long long)r->least,
                          (unsigned long long)r->most, (long long)value);
}

static int check_below(const char *name, uint32_t id, uint32_t n_vocab, struct quire_error *err)
{
    if (id < n_vocab)
        return QUIRE_OK;
    return quire_fail_for(err, QUIRE_INVALID, name, "%u is not below the vocabulary's %u", id, n_vocab);
}

/* Texts. They may have more tokens than the vocabulary has ids. */
static bool is_text(const struct request_field *f)
{
    return f->at == offsetof(struct request_spec, prompt) || f->at == offsetof(struct request_spec, prediction);
}

/* Checks that each item is a valid token id. */
static int check_list(const struct request_field *f, struct request_list list, uint32_t n_vocab,
                      struct quire_error *err)
{
    const uint32_t *ids = list.items;
    const struct request_bias *biases = list.items;
    uint32_t n_right = 0;
    int status = QUIRE_OK;
    if (!is_text(f) && list.n > n_vocab)
        return quire_fail_for(err, QUIRE_INVALID, f->name, "more than the vocabulary's %u tokens", n_vocab);
    if (f->kind == REQUEST_IDS) {
        while (n_right < list.n && ids[n_right] < n_vocab)
            n_right++;
        return n_right == list.n ? QUIRE_OK : check_below(f->name, ids[n_right], n_vocab, err);
    }
    for (uint32_t i = 0; i < list.n && status == QUIRE_OK; i++)
        status = check_below(f->name, biases[i].id, n_vocab, err);
    for (uint32_t i = 0; i < list.n && status == QUIRE_OK; i++)
        if (isnan(biases[i].bias) || biases[i].bias == INFINITY)
            status = quire_fail_for(err, QUIRE_INVALID, f->name, "the bias of %u must be a finite number",
                                    biases[i].id);
    return status;
}

static int check_bad_words(const struct request_spec *s, uint32_t n_vocab, struct quire_error *err)
{
    int status = QUIRE_OK;
    if (s->n_bad_words > REQUEST_MAX_BAD_WORDS)
        return quire_fail_for(err, QUIRE_INVALID, "bad_words",
                              "at most %u tokens, each word counted one longer, got %u", REQUEST_MAX_BAD_WORDS,
                              s->n_bad_words);
    for (uint32_t i = 0; i < s->n_bad_words && status == QUIRE_OK;) {
        uint32_t n_ids = s->bad_words[i++];
        if (n_ids == 0 || n_ids > s->n_bad_words - i)
            return quire_fail_for(err, QUIRE_INVALID, "bad_words", "a word has %u tokens, but only %u remain", n_ids,
                                  s->n_bad_words - i);
        for (uint32_t end = i + n_ids; i < end && status == QUIRE_OK; i++)
            status = check_below("bad_words", s->bad_words[i], n_vocab, err);
    }
    return status;
}

static int check_given(const struct request_spec *s, struct quire_error *err)
{
    if (s->n_given <= REQUEST_MAX_GIVEN && s->n_given % 3 == 0)
        return QUIRE_OK;
    return quire_fail_for(err, QUIRE_INVALID, "given", "must have at most %u numbers, in groups of three, got %u",
                          REQUEST_MAX_GIVEN, s->n_given);
}

static int check_field(const struct request_field *f, const struct request_spec *spec, uint32_t n_vocab,
                       struct quire_error *err)
{
    const char *at = (const char *)spec + f->at;
    float number;
    switch ((enum request_kind)f->kind) {
    case REQUEST_F32: memcpy(&number, at, sizeof number); return check_number(f, number, err);
    case REQUEST_U32:
    case REQUEST_I32:
    case REQUEST_U64: return check_whole(f, at, err);
    case REQUEST_IDS:
    case REQUEST_BIASES:
        if (f->at == offsetof(struct request_spec, bad_words))
            return check_bad_words(spec, n_vocab, err);
        if (f->at == offsetof(struct request_spec, given))
            return check_given(spec, err);
        return check_list(f, request_field_list(f, spec), n_vocab, err);
    case REQUEST_BOOL:
    case REQUEST_KEY: break;
    }
    return QUIRE_OK;
}

int request_spec_check(const struct request_spec *spec, uint32_t n_vocab, struct quire_error *err)
{
    int status = QUIRE_OK;
    if (spec->n_prompt == 0)
        return quire_fail_for(err, QUIRE_INVALID, "prompt", "must have at least one token");
    for (size_t i = 0; i < request_n_fields && status == QUIRE_OK; i++)
        status = check_field(&request_fields[i], spec, n_vocab, err);
    if (status == QUIRE_OK && spec->min_tokens > spec->max_tokens)
        status = quire_fail_for(err, QUIRE_INVALID, "min_tokens", "%u is more than max_tokens (%u)", spec->min_tokens,
                                spec->max_tokens);
    return status;
}
