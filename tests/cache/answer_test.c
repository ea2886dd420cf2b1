/* Tests of cached responses as bytes, of keys, and of the memory layer. */
#include "server/cache/answer.h"
#include "server/cache/cache_key.h"
#include "server/cache/memory_layer.h"
#include "tests/cache/cache_unit_test.h"

#include "request/fields.h"

#include <stdlib.h>
#include <string.h>

/* ---- keys ----------------------------------------------------------------------------------- */

static const uint32_t prompt[] = {1, 2, 3}, other_prompt[] = {1, 2, 4};

static struct key256 key_of(const struct key256 *identity, const struct request_spec *spec,
                            const struct completion_terms *terms)
{
    struct key256 key;
    assert_true(cache_key(identity, spec, terms, &key));
    return key;
}

/* The spec with this field as it is not by default. */
static void move(struct request_spec *spec, const struct request_field *f)
{
    static const uint32_t words[] = {1, 7, 8};
    static const struct request_bias biases[] = {{1, 2}, {3, 4}};
    char *at = (char *)spec + f->at;
    const bool has = true;
    if (f->kind == REQUEST_BYTES) {
        request_field_set_list(f, spec, (struct request_list){"abc", 3});
    } else if (f->kind == REQUEST_BIASES) {
        request_field_set_list(f, spec, (struct request_list){biases, 2});
    } else if (f->kind == REQUEST_IDS) {
        request_field_set_list(f, spec, (struct request_list){spec->prompt == prompt ? other_prompt : words, 3});
    } else {
        at[0] ^= 1;
        if (f->has_at)
            memcpy((char *)spec + f->has_at, &has, sizeof has);
    }
}

void key_test(void **state)
{
    (void)state;
    const struct key256 identity = {{1}}, another = {{2}};
    struct completion_terms terms = {.ttl_s = 0};
    struct request_spec base;
    request_spec_default(&base);
    base.prompt = prompt;
    base.n_prompt = 3;
    base.max_tokens = 10;
    const struct key256 key = key_of(&identity, &base, &terms);
    size_t n_draws = 0;
    for (size_t i = 0; i < request_n_fields; i++) {
        struct request_spec moved = base;
        move(&moved, &request_fields[i]);
        const struct key256 got = key_of(&identity, &moved, &terms);
        const bool draws = request_fields[i].flags & REQUEST_DRAWS;
        n_draws += draws;
        if (draws == (memcmp(&got, &key, sizeof key) == 0))
            fail_msg("%s: %s the key", request_fields[i].member, draws ? "does not move" : "moves");
    }
    assert_true(n_draws > 15);
    struct key256 got = key_of(&another, &base, &terms);
    assert_memory_not_equal(&got, &key, sizeof key);
    terms.ttl_s = 5;
    terms.no_store = terms.streams = terms.is_bounded = true;
    got = key_of(&identity, &base, &terms);
    assert_memory_equal(&got, &key, sizeof key);
    terms.domain.bytes[3] = 1;
    got = key_of(&identity, &base, &terms);
    assert_memory_not_equal(&got, &key, sizeof key);
    terms.domain.bytes[3] = 0;
    terms.cut.bytes[3] = 1;
    const struct key256 cut = key_of(&identity, &base, &terms);
    assert_memory_not_equal(&cut, &key, sizeof key);
    assert_memory_not_equal(&cut, &got, sizeof key);
    base.n_prompt = (uint32_t)(CACHE_KEY_MAX_BYTES / 4 + 1);
    uint32_t *much = calloc(base.n_prompt, sizeof *much);
    assert_non_null(much);
    base.prompt = much;
    assert_false(cache_key(&identity, &base, &terms, &got));
    base.n_prompt--;
    assert_true(cache_key(&identity, &base, &terms, &got));
    free(much);
}

/* ---- answers -------------------------------------------------------------------------------- */

/* Two choices of n tokens each, with logprobs. */
static struct buffer make(struct key256 key, uint32_t n, struct answer *answer)
{
    struct answer_writer w;
    struct buffer bytes;
    struct wire_token t = {
        .has_logprob = true, .logprob = -0.5f, .rank = 2, .n_top = 1, .top_ids = {7}, .top_logprobs = {-0.0f}};
    answer_begin(&w, key, 2, (struct answer_question){"why?", 4}, 1000);
    t.token = 5;
    answer_prompt_logprob(&w, &t, 1500);
    for (uint32_t i = 0; i < n; i++) {
        for (t.choice = 0; t.choice < 2; t.choice++) {
            t.token = i;
            t.has_logprob = i % 2;
            answer_token(&w, &t, 2000 + i);
        }
    }
    for (uint32_t c = 0; c < 2; c++)
        answer_done(&w,
                    &(struct wire_done){.choice = c,
                                        .finish = WIRE_FINISH_LENGTH,
                                        .last = c == 1,
                                        .n_prompt = 9,
                                        .n_cached = 4,
                                        .n_generated = n,
                                        .n_drafted = 77},
                    9000);
    assert_true(answer_end(&w, 60, false, &bytes, answer));
    return bytes;
}

void answer_test(void **state)
{
    (void)state;
    const struct key256 key = {{9}}, another = {{8}};
    struct answer a, b;
    struct answer_event e;
    struct quire_error err;
    struct buffer bytes = make(key, 5, &a);
    assert_int_equal(answer_check(bytes.data, bytes.n, &key, 100, &b, &err), QUIRE_OK);
    assert_true(a.created_s == 60 && b.took_us == 8000 && b.n_generated == 10 && b.n_prompt == 9 && b.n_cached == 4);
    assert_true(answer_same(a.events, b.events) && b.question.n == 4 && memcmp(b.question.text, "why?", 4) == 0);
    size_t cursor = 0, n = 0;
    while (answer_next(b.events, &cursor, &e))
        n++;
    assert_true(n == 13 && e.kind == ANSWER_DONE && e.done.last);
    /* An answer to another question, with ids outside the vocabulary, a byte longer or shorter, or with any byte
     * changed is rejected. */
    assert_int_equal(answer_check(bytes.data, bytes.n, &another, 100, &b, &err), QUIRE_INVALID);
    assert_int_equal(answer_check(bytes.data, bytes.n, &key, 7, &b, &err), QUIRE_INVALID);
    for (size_t i = 0; i < bytes.n; i++) {
        bytes.data[i] ^= 4;
        assert_int_equal(answer_check(bytes.data, bytes.n, &key, 100, &b, &err), QUIRE_INVALID);
        bytes.data[i] ^= 4;
        assert_int_equal(answer_check(bytes.data, i, &key, 100, &b, &err), QUIRE_INVALID);
    }
    struct buffer longer = make(key, 6, &b);
    assert_false(answer_same(a.events, b.events));
    buffer_free(&longer);
    buffer_free(&bytes);
}

/* ---- memory --------------------------------------------------------------------------------- */

static struct cached *make_cached(uint8_t name, int64_t expires_s)
{
    struct answer answer;
    struct buffer bytes = make((struct key256){{name}}, 3, &answer);
    return cached_new(&bytes, &answer, expires_s);
}

static void add(struct memory_layer *m, uint8_t name, int64_t expires_s)
{
    struct cached *k = make_cached(name, expires_s);
    assert_non_null(k);
    memory_layer_add(m, k);
    cached_leave(k);
}

static bool has(struct memory_layer *m, uint8_t name, int64_t now_s)
{
    struct cached *k = memory_layer_find(m, &(struct key256){{name}}, now_s);
    if (k)
        memory_layer_use(m, k);
    return k != NULL;
}

/* After a clock was set, by hand or because of an empty battery, an answer that seems to come from the future or to
 * live for years is rejected. */
void timely_test(void **state)
{
    const int64_t now = 1800000000, most = ANSWER_MAX_TTL_S + ANSWER_CLOCKS_DIFFER_S;
    struct memory_layer *m;
    (void)state;
    assert_true(answer_is_timely(now, now + 1, now) && answer_is_timely(now - 5, now + most, now));
    assert_true(answer_is_timely(now + ANSWER_CLOCKS_DIFFER_S, now + 100, now));
    assert_false(answer_is_timely(now, now, now) || answer_is_timely(now, now + most + 1, now));
    assert_false(answer_is_timely(now + ANSWER_CLOCKS_DIFFER_S + 1, now + 100, now));
    assert_false(answer_is_timely(0, INT64_MAX, now) || answer_is_timely(INT64_MAX, INT64_MAX, now));
    assert_false(answer_is_timely(0, INT64_MIN, now));
    /* In memory: made at second 123. */
    assert_int_equal(memory_layer_open(2, 1 << 20, &m, NULL), QUIRE_OK);
    struct cached *k = make_cached(1, 1000000);
    k->answer.created_s = 123;
    memory_layer_add(m, k);
    cached_leave(k);
    assert_true(has(m, 1, 200000) && has(m, 1, (123 - ANSWER_CLOCKS_DIFFER_S) * 1000));
    assert_int_equal(memory_layer_counts(m, 0).n_expired, 1);
    assert_false(has(m, 1, (123 - ANSWER_CLOCKS_DIFFER_S) * 1000 - 1));
    memory_layer_close(m);
}

void memory_layer_test(void **state)
{
    (void)state;
    struct memory_layer *m;
    struct cached *one = make_cached(1, 100);
    const uint64_t size = cached_size(one);
    assert_true(size == sizeof *one + one->bytes.n);
    cached_leave(one);
    /* Room for two to the byte; for a byte less, one. */
    for (uint64_t less = 0; less < 2; less++) {
        assert_int_equal(memory_layer_open(10, 2 * size - less, &m, NULL), QUIRE_OK);
        add(m, 1, 100);
        add(m, 2, 100);
        assert_true(has(m, 1, 0) == !less && has(m, 2, 0) && memory_layer_counts(m, 0).n_evicted == less &&
                    memory_layer_counts(m, 0).n_bytes == (2 - less) * size);
        assert_true(has(m, 1, 0) == !less);
        add(m, 3, 100); /* 2 was given less recently than 1 */
        assert_true(!has(m, 2, 0) && has(m, 3, 0) && has(m, 1, 0) == !less);
        add(m, 3, 100); /* in its own place */
        assert_true(memory_layer_counts(m, 0).n_bytes == (2 - less) * size &&
                    memory_layer_counts(m, 0).n_entries == 2 - less);
        memory_layer_close(m);
    }
    assert_int_equal(memory_layer_open(2, 100 * size, &m, NULL), QUIRE_OK);
    for (uint8_t name = 1; name < 5; name++)
        add(m, name, name);
    assert_true(memory_layer_counts(m, 0).n_entries == 2 && memory_layer_counts(m, 0).n_bytes == 2 * size &&
                memory_layer_counts(m, 3).n_expired == 1);
    assert_true(!has(m, 3, 3) && has(m, 4, 3) && !has(m, 4, 4) && memory_layer_counts(m, 0).n_entries == 0 &&
                memory_layer_counts(m, 0).n_bytes == 0);
    /* Renderings count, are found by their own name, go with their answer, and are no more than four. */
    add(m, 5, 100);
    struct cached *five = memory_layer_find(m, &(struct key256){{5}}, 0);
    for (uint8_t alias = 1; alias < 7; alias++)
        memory_layer_attach(m, five, &(struct key256){{alias}}, "text", 4);
    assert_true(memory_layer_counts(m, 0).n_bytes == size + 4 * (sizeof(struct rendering) + 4) &&
                memory_layer_counts(m, 0).n_bytes == cached_size(five));
    assert_null(memory_layer_rendering(m, &(struct key256){{2}}, 0));
    assert_memory_equal(memory_layer_rendering(m, &(struct key256){{3}}, 0)->bytes, "text", 4);
    assert_null(memory_layer_rendering(m, &(struct key256){{6}}, 100));
    assert_true(memory_layer_counts(m, 0).n_bytes == 0 && memory_layer_counts(m, 0).n_entries == 0);
    /* One that is being read outlives its place. */
    struct cached *k = make_cached(7, 100);
    memory_layer_add(m, k);
    assert_int_equal(memory_layer_clear(m), 1);
    assert_true(k->answer.n_generated == 6 && !k->is_listed);
    cached_leave(k);
    memory_layer_close(m);
}
