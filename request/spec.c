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

uint32_t *request_spec_take_prompt(struct request_spec *spec)
{
    uint32_t *prompt = owned(spec->prompt);
    spec->prompt = NULL;
    return prompt;
}

static void free_lists(const struct request_layout *layout, const void *values)
{
    for (size_t i = 0; i < layout->n_rows; i++)
        if (request_field_is_list(&layout->rows[i]))
            free(owned(request_field_list(&layout->rows[i], values).items));
}

void request_layout_free(const struct request_layout *layout, void *values)
{
    free_lists(layout, values);
    request_layout_default(layout, values);
}

/* Every member has a row, so the whole struct is copied, which costs less than one row after the other. */
void request_spec_free(struct request_spec *spec)
{
    free_lists(&request_spec_layout, spec);
    *spec = request_defaults;
}

int request_layout_copy(const struct request_layout *layout, void *to, const void *from, struct quire_error *err)
{
    memcpy(to, from, layout->struct_bytes);
    for (size_t i = 0; i < layout->n_rows; i++)
        if (request_field_is_list(&layout->rows[i]))
            request_field_set_list(&layout->rows[i], to, (struct request_list){0});
    for (size_t i = 0; i < layout->n_rows; i++) {
        const struct request_field *f = &layout->rows[i];
        struct request_list list = request_field_is_list(f) ? request_field_list(f, from) : (struct request_list){0};
        if (list.n == 0)
            continue;
        void *items = malloc(list.n * request_field_bytes(f));
        if (!items) {
            request_layout_free(layout, to);
            return quire_fail(err, QUIRE_NO_MEMORY, "request: out of memory");
        }
        memcpy(items, list.items, list.n * request_field_bytes(f));
        request_field_set_list(f, to, (struct request_list){items, list.n});
    }
    return QUIRE_OK;
}

int request_spec_copy(struct request_spec *to, const struct request_spec *from, struct quire_error *err)
{
    return request_layout_copy(&request_spec_layout, to, from, err);
}

struct request_spec request_spec_move(struct request_spec *from)
{
    struct request_spec moved = *from;
    *from = request_defaults;
    return moved;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static int check_number(const struct request_field *f, double value, struct quire_error *err)
{
    double low = f->range.low, high = f->range.high;
    bool above = f->flags & REQUEST_ABOVE;
    /* NaN fails every comparison, so it is outside every range. */
    if (value <= high && (above ? value > low : value >= low))
        return QUIRE_OK;
    return quire_fail_for(err, QUIRE_INVALID, f->name,
                          above ? "must be above %g and at most %g, got %g" : "must be between %g and %g, got %g", low,
                          high, value);
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
    return strcmp(f->member, "prompt") == 0 || strcmp(f->member, "prediction") == 0;
}

/* Checks that each item is a valid token id. */
static int check_list(const struct request_field *f, struct request_list list, uint32_t n_vocab,
                      struct quire_error *err)
{
    const uint32_t *ids = list.items;
    const struct request_bias *biases = list.items;
    uint32_t n_right = 0;
    int status = QUIRE_OK;
    if (list.n > n_vocab && !is_text(f))
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

static int check_bytes(const struct request_field *f, struct request_list list, struct quire_error *err)
{
    if (list.n <= f->range.most)
        return QUIRE_OK;
    return quire_fail_for(err, QUIRE_INVALID, f->name, "at most %llu bytes, got %u", (unsigned long long)f->range.most,
                          list.n);
}

static int check_bad_words(const struct request_field *f, struct request_list list, uint32_t n_vocab,
                           struct quire_error *err)
{
    const uint32_t *words = list.items;
    int status = QUIRE_OK;
    if (list.n > REQUEST_MAX_BAD_WORDS)
        return quire_fail_for(err, QUIRE_INVALID, f->name, "at most %u tokens, each word counted one longer, got %u",
                              REQUEST_MAX_BAD_WORDS, list.n);
    for (uint32_t i = 0; i < list.n && status == QUIRE_OK;) {
        uint32_t n_ids = words[i++];
        if (n_ids == 0 || n_ids > list.n - i)
            return quire_fail_for(err, QUIRE_INVALID, f->name, "a word has %u tokens, but only %u remain", n_ids,
                                  list.n - i);
        for (uint32_t end = i + n_ids; i < end && status == QUIRE_OK; i++)
            status = check_below(f->name, words[i], n_vocab, err);
    }
    return status;
}

static int check_given(const struct request_field *f, struct request_list list, struct quire_error *err)
{
    if (list.n <= REQUEST_MAX_GIVEN && list.n % 3 == 0)
        return QUIRE_OK;
    return quire_fail_for(err, QUIRE_INVALID, f->name, "must have at most %u numbers, in groups of three, got %u",
                          REQUEST_MAX_GIVEN, list.n);
}

static int check_items(const struct request_field *f, struct request_list list, uint32_t n_vocab,
                       struct quire_error *err)
{
    if (list.n == 0)
        return QUIRE_OK;
    if (f->kind == REQUEST_BYTES)
        return check_bytes(f, list, err);
    if (strcmp(f->member, "bad_words") == 0)
        return check_bad_words(f, list, n_vocab, err);
    if (strcmp(f->member, "given") == 0)
        return check_given(f, list, err);
    return check_list(f, list, n_vocab, err);
}

static int check_field(const struct request_field *f, const void *values, uint32_t n_vocab, struct quire_error *err)
{
    const char *at = (const char *)values + f->at;
    float f32;
    double f64;
    switch ((enum request_kind)f->kind) {
    case REQUEST_F32: memcpy(&f32, at, sizeof f32); return check_number(f, (double)f32, err);
    case REQUEST_F64: memcpy(&f64, at, sizeof f64); return check_number(f, f64, err);
    case REQUEST_U32:
    case REQUEST_I32:
    case REQUEST_U64: return check_whole(f, at, err);
    case REQUEST_IDS:
    case REQUEST_BIASES:
    case REQUEST_BYTES: return check_items(f, request_field_list(f, values), n_vocab, err);
    case REQUEST_BOOL:
    case REQUEST_KEY: break;
    }
    return QUIRE_OK;
}

int request_layout_check(const struct request_layout *layout, const void *values, uint32_t n_vocab,
                         struct quire_error *err)
{
    int status = QUIRE_OK;
    for (size_t i = 0; i < layout->n_rows && status == QUIRE_OK; i++)
        status = check_field(&layout->rows[i], values, n_vocab, err);
    return status;
}

int request_spec_check(const struct request_spec *spec, uint32_t n_vocab, struct quire_error *err)
{
    if (spec->n_prompt == 0)
        return quire_fail_for(err, QUIRE_INVALID, "prompt", "must have at least one token");
    int status = request_layout_check(&request_spec_layout, spec, n_vocab, err);
    if (status == QUIRE_OK && spec->min_tokens > spec->max_tokens)
        status = quire_fail_for(err, QUIRE_INVALID, "min_tokens", "%u is more than max_tokens (%u)", spec->min_tokens,
                                spec->max_tokens);
    return status;
}
