/* The table of a request's fields, and its uses: bytes, copies and checks of each row. */
#include "base/encoding/tagged.h"
#include "request/codec.h"
#include "request/fields.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_VOCAB 1000u

static const uint32_t ids[] = {3, 1, 2, 999}, words[] = {1, 7, 2, 8, 9};
static const struct request_bias biases[] = {{5, -INFINITY}, {6, 0.5f}};

/* Every field is set. Borrows its arrays. */
static struct request_spec full(void)
{
    struct request_spec s = {
        .prompt = ids,
        .n_prompt = 4,
        .max_tokens = 9,
        .n = 2,
        .min_tokens = 1,
        .temperature = 0.5f,
        .top_p = 0.25f,
        .min_p = 0.125f,
        .top_k = 40,
        .repetition_penalty = 1.5f,
        .presence_penalty = -1,
        .frequency_penalty = 2,
        .has_seed = true,
        .seed = UINT64_C(0xfedcba9876543210),
        .ignore_eos = true,
        .n_logprobs = 5,
        .n_prompt_logprobs = 0,
        .priority = -7,
        .deadline_us = UINT64_C(1) << 40,
        .tenant = 3,
        .class_index = 2,
        .background = true,
        .pin_us = 1,
        .expected_tokens = 77,
        .max_drafts = 5,
        .draft_method = 2,
        .prediction = ids,
        .n_prediction = 2,
        .stop_token_ids = ids,
        .n_stop_token_ids = 3,
        .biases = biases,
        .n_biases = 2,
        .allowed_token_ids = ids,
        .n_allowed_token_ids = 4,
        .bad_words = words,
        .n_bad_words = 5,
        .wants_vector = true,
        .segment_from = 2,
        .keep_us = 3,
        .keep_name = UINT64_MAX,
        .given = ids,
        .n_given = 3,
        .grammar = (const uint8_t *)"start: \"a\"",
        .n_grammar = 10,
    };
    memset(s.cache_domain.bytes, 0xab, sizeof s.cache_domain.bytes);
    return s;
}

static struct request_spec least(void)
{
    struct request_spec s;
    request_spec_default(&s);
    s.prompt = ids;
    s.n_prompt = 1;
    s.max_tokens = 4;
    return s;
}

/* b was written and read. What only older programs write must be missing in it. */
static bool same(const struct request_field *f, const struct request_spec *a, const struct request_spec *b)
{
    size_t n = request_field_bytes(f);
    if (f->flags & REQUEST_OLD)
        return request_field_is_default(f, b);
    if (!request_field_is_list(f))
        return memcmp((const char *)a + f->at, (const char *)b + f->at, n) == 0 &&
               request_field_is_default(f, a) == request_field_is_default(f, b);
    struct request_list x = request_field_list(f, a), y = request_field_list(f, b);
    return x.n == y.n && (x.n == 0 || memcmp(x.items, y.items, x.n * n) == 0);
}

static void the_table_is_in_order(void **state)
{
    (void)state;
    const struct request_spec s = full();
    assert_true(request_n_fields <= 64);
    for (size_t i = 0; i < request_n_fields; i++) {
        const struct request_field *f = &request_fields[i];
        assert_true(i == 0 || f->tag > request_fields[i - 1].tag);
        assert_true(!(f->flags & REQUEST_DRAWS) || f->flags & REQUEST_MUST);
        assert_ptr_equal(request_field_find(f->member), f);
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(f->at, request_fields[k].at);
        if (request_field_is_default(f, &s))
            fail_msg("%s: give it another value in full()", f->member);
    }
    assert_null(request_field_find("nonsense"));
}

static void all_of_it_comes_back(void **state)
{
    (void)state;
    struct request_spec s = full(), copy, got;
    struct quire_error err;
    struct buffer b = {0};
    assert_int_equal(request_spec_put(&b, &s, REQUEST_FOR_FRAME, NULL), QUIRE_OK);
    assert_int_equal(request_spec_get("it", (const uint8_t *)b.data, b.n, &got, &err), QUIRE_OK);
    assert_int_equal(request_spec_copy(&copy, &got, &err), QUIRE_OK);
    free(request_spec_take_prompt(&got));
    assert_null(got.prompt);
    request_spec_free(&got);
    for (size_t i = 0; i < request_n_fields; i++)
        if (!same(&request_fields[i], &s, &copy))
            fail_msg("%s: is another", request_fields[i].member);
    got = request_spec_move(&copy);
    assert_null(copy.prompt);
    assert_int_equal(copy.n, 1);
    request_spec_free(&got);
    buffer_free(&b);
}

/* Bytes of a program that still wrote hit reports into requests. */
static void an_old_row_is_read(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {1, 0x80, 0,  0, 4, 0, 0,  0, 7, 0, 0, 0, 2, 0x80, 0, 0, 4, 0, 0, 0, 1, 0,
                                    0, 0,    35, 0, 0, 0, 12, 0, 0, 0, 3, 0, 0, 0,    0, 0, 0, 0, 9, 0, 0, 0};
    struct request_spec got;
    struct quire_error err;
    struct buffer b = {0};
    assert_int_equal(request_spec_get("it", bytes, sizeof bytes, &got, &err), QUIRE_OK);
    assert_int_equal(got.n_given, 3);
    assert_true(got.given[0] == 3 && got.given[1] == 0 && got.given[2] == 9);
    assert_int_equal(request_spec_check(&got, 100, &err), QUIRE_OK);
    assert_int_equal(request_spec_put(&b, &got, REQUEST_FOR_FRAME, NULL), QUIRE_OK);
    assert_int_equal(b.n, sizeof bytes - 20);
    assert_memory_equal(b.data, bytes, b.n);
    request_spec_free(&got);
    buffer_free(&b);
}

static void defaults_are_left_out(void **state)
{
    (void)state;
    struct request_spec s = least(), got;
    struct quire_error err;
    struct buffer b = {0};
    assert_int_equal(request_spec_put(&b, &s, REQUEST_FOR_FRAME, NULL), QUIRE_OK);
    assert_int_equal(b.n, 2 * TAGGED_HEADER_BYTES + 8); /* the prompt and max_tokens */
    assert_int_equal(request_spec_get("it", (const uint8_t *)b.data, b.n, &got, &err), QUIRE_OK);
    for (size_t i = 0; i < request_n_fields; i++)
        assert_true(same(&request_fields[i], &s, &got));
    request_spec_free(&got);
    buffer_free(&b);
}

/* With its ids put where they belong, it equals the whole. */
static void the_prompt_may_go_apart(void **state)
{
    (void)state;
    struct request_spec s = full();
    struct buffer whole = {0}, around = {0}, b = {0};
    size_t at;
    assert_int_equal(request_spec_put(&whole, &s, REQUEST_FOR_FRAME, NULL), QUIRE_OK);
    assert_int_equal(request_spec_put(&around, &s, REQUEST_FOR_FRAME, &at), QUIRE_OK);
    buffer_append(&b, around.data, at);
    buffer_append(&b, s.prompt, sizeof ids);
    buffer_append(&b, around.data + at, around.n - at);
    assert_int_equal(b.n, whole.n);
    assert_memory_equal(b.data, whole.data, b.n);
    buffer_free(&whole);
    buffer_free(&around);
    buffer_free(&b);
}

static void recordings_do_not_know_who(void **state)
{
    (void)state;
    struct request_spec s = full(), got;
    struct quire_error err;
    struct buffer b = {0};
    assert_int_equal(request_spec_put(&b, &s, REQUEST_FOR_RECORDING, NULL), QUIRE_OK);
    assert_int_equal(request_spec_get("it", (const uint8_t *)b.data, b.n, &got, &err), QUIRE_OK);
    for (size_t i = 0; i < request_n_fields; i++)
        assert_int_equal(same(&request_fields[i], &s, &got), !(request_fields[i].flags & REQUEST_PRIVATE));
    assert_true(request_field_find("cache_domain")->flags & REQUEST_PRIVATE);
    request_spec_free(&got);
    buffer_free(&b);
}

/* A field of a later program is skipped, or the request is rejected, depending on its bit. Each prefix of the bytes is
 * an error or complete. */
static void unknown_and_cut(void **state)
{
    (void)state;
    struct request_spec s = full(), got;
    struct quire_error err;
    struct buffer b = {0};
    assert_int_equal(request_spec_put(&b, &s, REQUEST_FOR_FRAME, NULL), QUIRE_OK);
    size_t n_known = b.n;
    for (size_t n = 0; n < n_known; n++) {
        uint8_t *cut = malloc(n ? n : 1);
        memcpy(cut, b.data, n);
        if (request_spec_get("it", cut, n, &got, &err) == QUIRE_OK)
            request_spec_free(&got);
        assert_null(got.prompt);
        free(cut);
    }
    tagged_put(&b, 999, false, 0);
    assert_int_equal(request_spec_get("it", (const uint8_t *)b.data, b.n, &got, &err), QUIRE_OK);
    request_spec_free(&got);
    tagged_put(&b, 1000, true, 0);
    assert_int_equal(request_spec_get("it", (const uint8_t *)b.data, b.n, &got, &err), QUIRE_UNSUPPORTED);
    assert_string_equal(err.text, "it: field 1000 is unknown");
    buffer_free(&b);
}

/* ---- a later program ------------------------------------------------------------------------- */

/* Three fields more. Each is a member and a row; nothing else knows of them. */
struct later {
    struct request_spec spec;
    const uint8_t *grammar;
    uint32_t n_grammar;
    uint64_t adapter;
    bool has_adapter;
    double cost_us;
};
static const struct later later_defaults = {.spec = {.n = 1,
                                                     .max_drafts = UINT32_MAX,
                                                     .temperature = 1,
                                                     .top_p = 1,
                                                     .repetition_penalty = 1,
                                                     .n_logprobs = -1,
                                                     .n_prompt_logprobs = -1}};
#define LATER(kind_, member_, tag_, flags_) \
    .member = #member_, .name = #member_, .tag = tag_, .kind = kind_, .flags = flags_, \
    .at = offsetof(struct later, member_)
static const struct request_field later_rows[] = {
    {LATER(REQUEST_BYTES, grammar, 500, REQUEST_MUST | REQUEST_DRAWS), .has_at = offsetof(struct later, n_grammar),
     .range = {.most = 64}},
    {LATER(REQUEST_U64, adapter, 501, REQUEST_MUST), .has_at = offsetof(struct later, has_adapter)},
    {LATER(REQUEST_F64, cost_us, 502, 0), .range = {.low = 0, .high = 1e9}},
};

/* This program's rows, and these. */
static const struct request_layout *later_table(void)
{
    static struct request_field rows[64];
    static struct request_layout table = {rows, 0, &later_defaults, sizeof later_defaults};
    table.n_rows = request_n_fields + 3;
    assert_true(table.n_rows <= 64);
    memcpy(rows, request_fields, request_n_fields * sizeof rows[0]);
    memcpy(rows + request_n_fields, later_rows, sizeof later_rows);
    return &table;
}

static struct later later_full(void)
{
    return (struct later){.spec = full(),
                          .grammar = (const uint8_t *)"root ::= \0 [a-z]",
                          .n_grammar = 16,
                          .has_adapter = true,
                          .adapter = UINT64_C(1) << 40,
                          .cost_us = 0.5};
}

static void a_field_is_a_row(void **state)
{
    (void)state;
    const struct request_layout *table = later_table();
    struct later s = later_full(), got, copy;
    struct quire_error err;
    for (int what_for = REQUEST_FOR_FRAME; what_for <= REQUEST_FOR_RECORDING; what_for++) {
        struct buffer b = {0};
        assert_int_equal(request_layout_put(&b, table, &s, (enum request_for)what_for, NULL), QUIRE_OK);
        got = later_defaults;
        assert_int_equal(request_layout_get("it", table, (const uint8_t *)b.data, b.n, &got, &err), QUIRE_OK);
        assert_int_equal(request_layout_copy(table, &copy, &got, &err), QUIRE_OK);
        request_layout_free(table, &got);
        assert_null(got.grammar);
        assert_true(copy.n_grammar == 16 && memcmp(copy.grammar, s.grammar, 16) == 0);
        assert_true(copy.has_adapter && copy.adapter == UINT64_C(1) << 40 && copy.cost_us == 0.5);
        for (size_t i = 0; i < request_n_fields; i++)
            if (what_for == REQUEST_FOR_FRAME || !(request_fields[i].flags & REQUEST_PRIVATE))
                assert_true(same(&request_fields[i], &s.spec, &copy.spec));
        assert_int_equal(request_layout_check(table, &copy, N_VOCAB, &err), QUIRE_OK);
        request_layout_free(table, &copy);
        buffer_free(&b);
    }
    s.cost_us = NAN;
    assert_int_equal(request_layout_check(table, &s, N_VOCAB, &err), QUIRE_INVALID);
    assert_string_equal(err.parameter, "cost_us");
    s = later_full();
    s.n_grammar = 65;
    assert_int_equal(request_layout_check(table, &s, N_VOCAB, &err), QUIRE_INVALID);
    assert_string_equal(err.parameter, "grammar");
    struct buffer b = {0};
    assert_int_equal(request_layout_put(&b, table, &s, REQUEST_FOR_FRAME, NULL), QUIRE_INVALID);
    buffer_free(&b);
}

/* Old and new talk: nothing that changes an answer is ignored. */
static void later_and_now(void **state)
{
    (void)state;
    const struct request_layout *table = later_table();
    struct later s = later_full(), read = later_defaults;
    struct request_spec got;
    struct quire_error err;
    struct buffer b = {0};
    assert_int_equal(request_layout_put(&b, table, &s, REQUEST_FOR_FRAME, NULL), QUIRE_OK);
    assert_int_equal(request_spec_get("SUBMIT", (const uint8_t *)b.data, b.n, &got, &err), QUIRE_UNSUPPORTED);
    assert_string_equal(err.text, "SUBMIT: field 500 is unknown");
    s.n_grammar = 0;
    s.has_adapter = false;
    buffer_clear(&b);
    assert_int_equal(request_layout_put(&b, table, &s, REQUEST_FOR_FRAME, NULL), QUIRE_OK);
    assert_int_equal(request_spec_get("SUBMIT", (const uint8_t *)b.data, b.n, &got, &err), QUIRE_OK);
    for (size_t i = 0; i < request_n_fields; i++)
        assert_true(same(&request_fields[i], &s.spec, &got));
    /* This program's bytes, for the later one: the fields that it does not say have their defaults. */
    buffer_clear(&b);
    assert_int_equal(request_spec_put(&b, &got, REQUEST_FOR_FRAME, NULL), QUIRE_OK);
    request_spec_free(&got);
    assert_int_equal(request_layout_get("SUBMIT", table, (const uint8_t *)b.data, b.n, &read, &err), QUIRE_OK);
    assert_true(read.n_grammar == 0 && !read.has_adapter && read.cost_us == 0 && read.spec.max_tokens == 9);
    request_layout_free(table, &read);
    buffer_free(&b);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static void expect(const struct request_spec *s, const char *name, bool ok)
{
    struct quire_error err;
    int status = request_spec_check(s, N_VOCAB, &err);
    if ((status == QUIRE_OK) != ok)
        fail_msg("%s: %s", name, status ? err.text : "is taken");
    if (!ok)
        assert_memory_equal(err.text, name, strlen(name));
}

static void with_number(const struct request_field *f, float value, bool ok)
{
    struct request_spec s = least();
    memcpy((char *)&s + f->at, &value, sizeof value);
    expect(&s, f->name, ok);
}

static void with_whole(const struct request_field *f, int64_t value, bool ok)
{
    struct request_spec s = least();
    s.max_tokens = UINT32_MAX;
    /* little-endian or 64 bits, like all machines we run on */
    memcpy((char *)&s + f->at, &value, request_field_bytes(f));
    expect(&s, f->name, ok);
}

static void ranges_end_where_the_table_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < request_n_fields; i++) {
        const struct request_field *f = &request_fields[i];
        const struct request_range *r = &f->range;
        if (f->kind == REQUEST_F32) {
            with_number(f, (float)r->low, !(f->flags & REQUEST_ABOVE));
            with_number(f, (float)r->high, true);
            with_number(f, nextafterf((float)r->low, -INFINITY), false);
            with_number(f, nextafterf((float)r->high, INFINITY), false);
            with_number(f, NAN, false);
        }
        int64_t most = f->kind == REQUEST_U32 ? UINT32_MAX : f->kind == REQUEST_I32 ? INT32_MAX : INT64_MAX;
        int64_t lowest = f->kind == REQUEST_I32 ? INT32_MIN : 0;
        if (f->kind >= REQUEST_U32 && f->kind <= REQUEST_U64 && (r->least || r->most)) {
            with_whole(f, r->least, true);
            with_whole(f, (int64_t)r->most, true);
            if (r->least > lowest)
                with_whole(f, r->least - 1, false);
            if (r->most < (uint64_t)most)
                with_whole(f, (int64_t)r->most + 1, false);
        }
    }
}

static void ids_are_in_the_vocabulary(void **state)
{
    (void)state;
    static uint32_t many[N_VOCAB + 1], outside[] = {1, N_VOCAB};
    static const struct request_bias beyond[] = {{N_VOCAB, 0}}, endless[] = {{1, INFINITY}},
                                     forbidden[] = {{1, -INFINITY}};
    for (size_t i = 0; i < request_n_fields; i++) {
        const struct request_field *f = &request_fields[i];
        struct request_spec s = least();
        if (f->kind != REQUEST_IDS || strcmp(f->member, "bad_words") == 0 || strcmp(f->member, "given") == 0)
            continue;
        request_field_set_list(f, &s, (struct request_list){outside, 2});
        expect(&s, f->name, false);
        request_field_set_list(f, &s, (struct request_list){many, N_VOCAB});
        expect(&s, f->name, true);
        request_field_set_list(f, &s, (struct request_list){many, N_VOCAB + 1});
        expect(&s, f->name, strcmp(f->member, "prompt") == 0 || strcmp(f->member, "prediction") == 0);
    }
    struct request_spec s = least();
    s.n_biases = 1;
    s.biases = beyond;
    expect(&s, "logit_bias", false);
    s.biases = endless;
    expect(&s, "logit_bias", false);
    s.biases = forbidden;
    expect(&s, "logit_bias", true);
    s = least();
    s.n_prompt = 0;
    expect(&s, "prompt", false);
    s = least();
    static const uint32_t given[REQUEST_MAX_GIVEN + 3] = {UINT32_MAX};
    s.given = given;
    for (uint32_t n = 0; n <= REQUEST_MAX_GIVEN + 3; n++) {
        s.n_given = n;
        expect(&s, "given", n % 3 == 0 && n <= REQUEST_MAX_GIVEN);
    }
    s = least();
    s.min_tokens = 5;
    expect(&s, "min_tokens", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_in_order),
        cmocka_unit_test(all_of_it_comes_back),
        cmocka_unit_test(an_old_row_is_read),
        cmocka_unit_test(defaults_are_left_out),
        cmocka_unit_test(the_prompt_may_go_apart),
        cmocka_unit_test(recordings_do_not_know_who),
        cmocka_unit_test(unknown_and_cut),
        cmocka_unit_test(ranges_end_where_the_table_says),
        cmocka_unit_test(ids_are_in_the_vocabulary),
        cmocka_unit_test(a_field_is_a_row),
        cmocka_unit_test(later_and_now),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
