/* Recordings that were changed, truncated or invented: the fault is found, and its place is reported. */
#include "record_rig.h"

#include "base/encoding/tagged.h"
#include "engine/record/format.h"
#include "engine/record/sections.h"
#include "engine/record/drive.h"
#include "app/replay/replay.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static unsigned char *bytes; /* a small recording, closed */
static size_t n_bytes, n_records;

static int record_a_little(void **state)
{
    struct rig rig;
    uint32_t prompt[20];
    if (rig_set_up(state) != 0)
        return -1;
    const char *path = rig_new_path();
    client_random_prompt(prompt, 20, TINY_VOCAB, 3);
    struct request_spec q = client_request(prompt, 20, 4);
    q.n = 2;
    q.temperature = 2;
    q.n_logprobs = 1;
    q.ignore_eos = true;
    q.has_seed = true; /* so that it draws other values than the lies below */
    q.seed = 1;
    rig_open(&rig, path, rig_options());
    client_ask(rig.client, &q);
    rig_close(&rig);
    bytes = rig_read(path, &n_bytes);
    return 0;
}

static int forget(void **state)
{
    free(bytes);
    return rig_tear_down(state);
}

/* Reads everything. *n_read: whole records; *left_out: bytes after them. */
static int read_all(const unsigned char *data, size_t n, size_t *n_read, uint64_t *left_out, struct quire_error *err)
{
    struct recording *r;
    struct recording_entry e;
    *n_read = 0;
    int status = recording_open_memory(data, n, &r, err);
    if (status != QUIRE_OK)
        return status;
    while ((status = recording_next(r, &e, err)) == QUIRE_OK && e.kind != RECORDING_END)
        ++*n_read;
    *left_out = recording_left_out(r);
    recording_close(r);
    return status;
}

static void a_flipped_byte_anywhere_is_found(void **state)
{
    (void)state;
    struct quire_error err;
    uint64_t left_out;
    assert_int_equal(read_all(bytes, n_bytes, &n_records, &left_out, &err), QUIRE_OK);
    assert_int_equal(left_out, 0);
    assert_true(n_records > 10);
    for (size_t i = 0; i < n_bytes; i++) {
        size_t n_read;
        bytes[i] ^= (unsigned char)(1u << i % 8);
        if (read_all(bytes, n_bytes, &n_read, &left_out, &err) != QUIRE_INVALID)
            fail_msg("byte %zu was changed, and nobody saw", i);
        if (!strstr(err.text, "recording: byte "))
            fail_msg("byte %zu: \"%s\" does not say where", i, err.text);
        bytes[i] ^= (unsigned char)(1u << i % 8);
    }
}

static void a_torn_tail_is_left_out(void **state)
{
    (void)state;
    struct quire_error err;
    size_t last_read = 0, n_read, n_at_last = 0;
    uint64_t left_out;
    bool opened = false;
    for (size_t n = 0; n <= n_bytes; n++) {
        /* A copy of exactly these bytes, so that a sanitizer finds reads past the end. */
        unsigned char *copy = malloc(n ? n : 1);
        memcpy(copy, bytes, n);
        int status = read_all(copy, n, &n_read, &left_out, &err);
        free(copy);
        if (!opened && status == QUIRE_OK)
            n_at_last = n; /* the header is complete */
        opened = opened || status == QUIRE_OK;
        if (!opened)
            continue;
        assert_int_equal(status, QUIRE_OK);
        assert_in_range(n_read, last_read, last_read + 1);
        if (n_read > last_read)
            n_at_last = n;
        assert_int_equal(left_out, n - n_at_last);
        last_read = n_read;
    }
    assert_int_equal(last_read, n_records);
}

static void records_that_moved_are_found(void **state)
{
    (void)state;
    struct recording *r;
    struct recording_entry e[3];
    size_t n_read;
    uint64_t left_out;
    assert_int_equal(recording_open_memory(bytes, n_bytes, &r, NULL), QUIRE_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(recording_next(r, &e[i], NULL), QUIRE_OK);
    recording_close(r);
    /* without the first */
    size_t gap = e[1].offset - e[0].offset;
    unsigned char *copy = malloc(n_bytes + gap);
    memcpy(copy, bytes, e[0].offset);
    memcpy(copy + e[0].offset, bytes + e[1].offset, n_bytes - e[1].offset);
    assert_int_equal(read_all(copy, n_bytes - gap, &n_read, &left_out, NULL), QUIRE_INVALID);
    assert_int_equal(n_read, 0);
    /* the first one twice */
    memcpy(copy, bytes, e[1].offset);
    memcpy(copy + e[1].offset, bytes + e[0].offset, n_bytes - e[0].offset);
    assert_int_equal(read_all(copy, n_bytes + gap, &n_read, &left_out, NULL), QUIRE_INVALID);
    assert_int_equal(n_read, 1);
    /* bytes after the end */
    memcpy(copy, bytes, n_bytes);
    copy[n_bytes] = 0;
    assert_int_equal(read_all(copy, n_bytes + 1, &n_read, &left_out, NULL), QUIRE_INVALID);
    free(copy);
}

/* ---- lies with good checksums ---------------------------------------------------------------- */

/* The recording with n bytes changed at `at` within the body of the first record of a kind, after `skip` records of
 * that kind, and with all checksums recomputed. The caller frees it. */
static unsigned char *lie(enum recording_kind kind, uint32_t skip, size_t at, const void *with, size_t n)
{
    unsigned char *copy = malloc(n_bytes);
    memcpy(copy, bytes, n_bytes);
    bool changed = false;
    for (size_t i = RECORD_SUM_BYTES; i < n_bytes;) {
        uint32_t length = le_load_u32(copy + i);
        uint8_t *body = copy + i + RECORD_HEAD_BYTES;
        if (le_load_u32(copy + i + 4) == kind && !changed && skip-- == 0) {
            assert_true(at + n <= length);
            memcpy(body + at, with, n);
            changed = true;
        }
        record_sum(copy + i - RECORD_SUM_BYTES, RECORD_SUM_BYTES + 8, copy + i + 8, 4);
        record_sum(copy + i - RECORD_SUM_BYTES, RECORD_SUM_BYTES + RECORD_HEAD_BYTES + length, body + length,
                   RECORD_SUM_BYTES);
        i += RECORD_HEAD_BYTES + length + RECORD_SUM_BYTES;
    }
    assert_true(changed);
    return copy;
}

static struct replay_report replay_lie(unsigned char *lied)
{
    struct recording *r;
    struct replay *p;
    struct replay_report report;
    assert_int_equal(recording_open_memory(lied, n_bytes, &r, NULL), QUIRE_OK);
    assert_int_equal(replay_open(r, &p, NULL), QUIRE_OK);
    assert_int_equal(replay_run(p, rig_model.dir, NULL, NULL, NULL, &report, NULL), QUIRE_OK);
    replay_close(p);
    recording_close(r);
    free(lied);
    return report;
}

static void replay_names_what_differs(void **state)
{
    (void)state;
    assert_int_equal(replay_lie(lie(RECORDING_CLOSE, 0, 0, "", 0)).n_different, 0);

    /* COMMIT: step, launched, done, number of results, then seq, accepted drafts, token */
    const uint8_t token[] = {7, 0, 0, 0};
    struct replay_report report = replay_lie(lie(RECORDING_COMMIT, 2, 36, token, 4));
    assert_int_equal(report.n_different, 1);
    assert_int_equal(report.shown[0].what, REPLAY_TOKEN);
    assert_int_equal(report.shown[0].recorded, 7);
    assert_in_range(report.shown[0].position, 21, 23);

    /* FINISH: id, n, then finish, tokens, prompt logprobs, digest of each */
    report = replay_lie(lie(RECORDING_FINISH, 0, 12 + 41 + 9, "not a digest", 12));
    assert_int_equal(report.n_different, 1);
    assert_int_equal(report.shown[0].what, REPLAY_LOGPROB);
    assert_int_equal(report.shown[0].choice, 1);

    report = replay_lie(lie(RECORDING_FINISH, 0, 12, "", 1)); /* 0: by a stop */
    assert_int_equal(report.n_different, 1);
    assert_int_equal(report.shown[0].what, REPLAY_FINISH);
    assert_int_equal(report.shown[0].recorded, ENGINE_FINISH_STOP);
    assert_int_equal(report.shown[0].replayed, ENGINE_FINISH_LENGTH);
}

static void other_numerics_are_refused(void **state)
{
    (void)state;
    const uint8_t numerics[] = {K_NUMERICS_VERSION + 1, 0, 0, 0}; /* after the version */
    struct recording *r;
    struct replay *p;
    struct replay_report report;
    struct quire_error err;
    unsigned char *lied = lie(RECORDING_HEADER, 0, 4, numerics, 4);
    assert_int_equal(recording_open_memory(lied, n_bytes, &r, NULL), QUIRE_OK);
    assert_int_equal(replay_open(r, &p, NULL), QUIRE_OK);
    assert_int_equal(replay_run(p, rig_model.dir, NULL, NULL, NULL, &report, &err), QUIRE_UNSUPPORTED);
    char both[128];
    snprintf(both, sizeof both,
             "by version %d of docs/internals/numerics.md, but this program computes by version %d:", numerics[0],
             K_NUMERICS_VERSION);
    assert_non_null(strstr(err.text, both));
    replay_close(p);
    recording_close(r);
    free(lied);
}

/* Offset of the KV cache's dtype in the header: after a version, a numerics version, an identity, a time, two texts
 * and a digest. */
static size_t kv_dtype_at(void)
{
    const uint8_t *body = bytes + RECORD_SUM_BYTES + RECORD_HEAD_BYTES;
    size_t at = 4 + 4 + 32 + 8;
    at += 4 + le_load_u32(body + at) + 32;
    at += 4 + le_load_u32(body + at);
    return at + 2; /* the form and the weights' dtype */
}

static void another_kv_cache_answers_otherwise(void **state)
{
    (void)state;
    const uint8_t int8 = K_INT, bf16 = K_BF16, none = K_E5M2 + 1;
    struct recording *r;
    struct quire_error err;
    const struct replay_report report = replay_lie(lie(RECORDING_HEADER, 0, kv_dtype_at(), &int8, 1));
    assert_true(report.other_identity);
    assert_true(report.n_different > 0);
    unsigned char *lied = lie(RECORDING_HEADER, 0, kv_dtype_at(), &bf16, 1);
    assert_int_equal(recording_open_memory(lied, n_bytes, &r, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "a KV cache in a dtype that does not exist"));
    free(lied);
    lied = lie(RECORDING_HEADER, 0, kv_dtype_at(), &none, 1);
    assert_int_equal(recording_open_memory(lied, n_bytes, &r, &err), QUIRE_INVALID);
    free(lied);
}

static void drive_names_the_record(void **state)
{
    (void)state;
    struct recording *r;
    struct recording_run run;
    struct recording_entry e;
    unsigned char *lied = lie(RECORDING_PLAN, 1, 48, "not its hash", 12); /* after ten numbers */
    assert_int_equal(recording_open_memory(lied, n_bytes, &r, NULL), QUIRE_OK);
    assert_int_equal(recording_drive(r, NULL, NULL, &run, NULL), QUIRE_OK);
    assert_false(run.agrees);
    assert_int_equal(recording_read_at(r, run.wrong_offset, &e, NULL), QUIRE_OK);
    assert_int_equal(e.kind, RECORDING_PLAN);
    assert_int_equal(run.n_plans, 2);
    recording_run_free(&run);
    recording_close(r);
    free(lied);
}

static void lies_are_checked(void **state)
{
    (void)state;
    const uint8_t huge[] = {0xff, 0xff, 0xff, 0xff};
    const struct {
        enum recording_kind kind;
        size_t at;
        size_t n;
        const char *says;
    } cases[] = {
        {RECORDING_HEADER, 0, 1, "version"},
        /* SUBMIT: two ids, arrival, deadline, flags, adapter, domain, length, then fields of a tag, a length and a value:
           the prompt, max_tokens, n */
        {RECORDING_SUBMIT, 20, 4, "time out of range"},
        {RECORDING_SUBMIT, 32, 1, "flags that do not exist"},
        {RECORDING_SUBMIT, 53, 4, "shorter than its fields"},
        {RECORDING_SUBMIT, 57, 2, "does not know and must"},
        {RECORDING_SUBMIT, 61, 4, "cannot be read"},
        {RECORDING_SUBMIT, 65, 4, "not in the vocabulary"},
        {RECORDING_SUBMIT, 153, 4, "max_model_len"},
        {RECORDING_SUBMIT, 165, 4, "choices that cannot be"},
        {RECORDING_PLAN, 16, 4, "a plan that cannot be"},
        {RECORDING_COMMIT, 24, 4, "shorter than its fields"},
        {RECORDING_COMMIT, 28, 4, "names a sequence"},
        {RECORDING_COMMIT, 32, 4, "shorter than its fields"},
        {RECORDING_RETIRED, 0, 4, "names a sequence"},
        {RECORDING_FINISH, 8, 4, "choices that cannot be"},
        {RECORDING_FINISH, 12, 1, "ended in an unknown way"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct quire_error err;
        size_t n_read;
        uint64_t left_out;
        unsigned char *lied = lie(cases[i].kind, 0, cases[i].at, huge, cases[i].n);
        int status = read_all(lied, n_bytes, &n_read, &left_out, &err);
        free(lied);
        assert_int_equal(status, QUIRE_INVALID);
        if (!strstr(err.text, cases[i].says))
            fail_msg("case %zu: \"%s\" does not say \"%s\"", i, err.text, cases[i].says);
    }
}

/* ---- sections of a later program ------------------------------------------------------------- */

/* The recording with n bytes appended to the body of the first record of a kind, and with all checksums recomputed.
 * The caller frees it. */
static unsigned char *longer(enum recording_kind kind, const void *more, size_t n)
{
    unsigned char *copy = malloc(n_bytes + n);
    size_t to = RECORD_SUM_BYTES;
    bool changed = false;
    memcpy(copy, bytes, to);
    for (size_t i = RECORD_SUM_BYTES; i < n_bytes;) {
        const uint32_t length = le_load_u32(bytes + i);
        const bool here = le_load_u32(bytes + i + 4) == kind && !changed;
        const uint32_t n_body = length + (here ? (uint32_t)n : 0);
        memcpy(copy + to, bytes + i, RECORD_HEAD_BYTES + length);
        if (here && n > 0)
            memcpy(copy + to + RECORD_HEAD_BYTES + length, more, n);
        changed |= here;
        le_store_u32(copy + to, n_body);
        record_sum(copy + to - RECORD_SUM_BYTES, RECORD_SUM_BYTES + 8, copy + to + 8, 4);
        record_sum(copy + to - RECORD_SUM_BYTES, RECORD_SUM_BYTES + RECORD_HEAD_BYTES + n_body,
                   copy + to + RECORD_HEAD_BYTES + n_body, RECORD_SUM_BYTES);
        to += RECORD_HEAD_BYTES + n_body + RECORD_SUM_BYTES;
        i += RECORD_HEAD_BYTES + length + RECORD_SUM_BYTES;
    }
    assert_true(changed);
    return copy;
}

static int read_longer(enum recording_kind kind, const struct buffer *more, struct quire_error *err)
{
    size_t n_read;
    uint64_t left_out;
    unsigned char *copy = longer(kind, more->data, more->n);
    const int status = read_all(copy, n_bytes + more->n, &n_read, &left_out, err);
    if (status == QUIRE_OK) {
        assert_int_equal(n_read, n_records);
        assert_int_equal(left_out, 0);
    }
    free(copy);
    return status;
}

static const enum recording_kind all_kinds[] = {RECORDING_HEADER,  RECORDING_SUBMIT, RECORDING_PLAN, RECORDING_COMMIT,
                                                RECORDING_RETIRED, RECORDING_FINISH, RECORDING_CLOSE};

static void unknown_sections_are_skipped_or_rejected(void **state)
{
    (void)state;
    struct quire_error err;
    for (size_t i = 0; i < sizeof all_kinds / sizeof all_kinds[0]; i++) {
        struct buffer more = {0};
        memset(tagged_put(&more, 900, false, 21), 0xa5, 21);
        tagged_put(&more, 901, false, 0);
        if (read_longer(all_kinds[i], &more, &err) != QUIRE_OK)
            fail_msg("kind %d: %s", (int)all_kinds[i], err.text);
        memset(tagged_put(&more, 902, true, 8), 0, 8);
        assert_int_equal(read_longer(all_kinds[i], &more, &err), QUIRE_INVALID);
        assert_non_null(strstr(err.text, "needs a newer program: sections: field 902 is unknown"));
        /* Invalid sections: one byte, a length past the end, zeros. */
        const char *const wrong[] = {"a", "\1\0\0\0\5\0\0\0", "\1\0\1\0\0\0\0\0", "\0\0\0\0\0\0\0\0"};
        const size_t n_wrong[] = {1, 8, 8, 8};
        for (size_t k = 0; k < 4; k++) {
            buffer_clear(&more);
            buffer_append(&more, wrong[k], n_wrong[k]);
            assert_int_equal(read_longer(all_kinds[i], &more, &err), QUIRE_INVALID);
            assert_non_null(strstr(err.text, "is longer than its fields"));
        }
        buffer_free(&more);
    }
}

/* A later program: two more members, each one row. */
struct later_submit {
    struct recording_submit now;
    uint32_t adapter_rank;
    double cost_us;
};
static const struct request_field later_rows[] = {
    {.member = "adapter_rank",
     .name = "adapter_rank",
     .tag = 1,
     .kind = REQUEST_U32,
     .flags = REQUEST_MUST,
     .at = offsetof(struct later_submit, adapter_rank),
     .range = {.least = 0, .most = 256}},
    {.member = "cost_us",
     .name = "cost_us",
     .tag = 2,
     .kind = REQUEST_F64,
     .at = offsetof(struct later_submit, cost_us),
     .range = {.low = 0, .high = 1e9}},
};
static const struct later_submit later_defaults = {.cost_us = 1};
static const struct request_layout later_table = {later_rows, 2, &later_defaults, sizeof later_defaults};

static struct body body_of(const struct buffer *b)
{
    return (struct body){.at = (const uint8_t *)b->data, .end = (const uint8_t *)b->data + b->n};
}

static void a_member_is_a_row(void **state)
{
    (void)state;
    struct later_submit s = {.now.request = 7, .adapter_rank = 16, .cost_us = 2.5}, got = {.now.request = 7};
    struct buffer b = {0};
    struct quire_error err;
    /* Written and read by the later program; the fixed part is unchanged. */
    assert_int_equal(request_layout_put(&b, &later_table, &s, REQUEST_FOR_RECORDING, NULL), QUIRE_OK);
    struct body body = body_of(&b);
    record_sections_read(&body, &later_table, &got);
    assert_null(body.wrong);
    assert_true(got.now.request == 7 && got.adapter_rank == 16 && got.cost_us == 2.5);
    /* Its file, read by this program: the first section must be understood; the second alone is skipped. */
    assert_int_equal(read_longer(RECORDING_SUBMIT, &b, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "sections: field 1 is unknown"));
    s.adapter_rank = 0;
    buffer_clear(&b);
    assert_int_equal(request_layout_put(&b, &later_table, &s, REQUEST_FOR_RECORDING, NULL), QUIRE_OK);
    assert_int_equal(read_longer(RECORDING_SUBMIT, &b, &err), QUIRE_OK);
    /* This program's file, read by the later one: the defaults. */
    buffer_clear(&b);
    body = body_of(&b);
    record_sections_read(&body, &later_table, &got);
    assert_true(!body.wrong && got.adapter_rank == 0 && got.cost_us == 1);
    /* Only defaults: no bytes. */
    s = later_defaults;
    assert_int_equal(request_layout_put(&b, &later_table, &s, REQUEST_FOR_RECORDING, NULL), QUIRE_OK);
    assert_int_equal(b.n, 0);
    /* A value out of range, and one that is not a number. */
    s.adapter_rank = 257;
    assert_int_equal(request_layout_put(&b, &later_table, &s, REQUEST_FOR_RECORDING, NULL), QUIRE_OK);
    body = body_of(&b);
    record_sections_read(&body, &later_table, &got);
    assert_non_null(strstr(body.wrong, "adapter_rank"));
    buffer_clear(&b);
    s = (struct later_submit){.cost_us = NAN};
    assert_int_equal(request_layout_put(&b, &later_table, &s, REQUEST_FOR_RECORDING, NULL), QUIRE_OK);
    body = body_of(&b);
    record_sections_read(&body, &later_table, &got);
    assert_non_null(strstr(body.wrong, "cost_us"));
    buffer_free(&b);
}

static void rows_are_in_order_and_values(void **state)
{
    (void)state;
    const struct request_layout *const all[] = {&record_header_sections, &record_submit_sections, &later_table};
    for (size_t t = 0; t < 3; t++) {
        assert_true(all[t]->n_rows <= 64);
        for (size_t i = 0; i < all[t]->n_rows; i++) {
            const struct request_field *f = &all[t]->rows[i];
            assert_true(f->tag > (i > 0 ? all[t]->rows[i - 1].tag : 0));
            assert_false(request_field_is_list(f));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flipped_byte_anywhere_is_found),
        cmocka_unit_test(a_torn_tail_is_left_out),
        cmocka_unit_test(records_that_moved_are_found),
        cmocka_unit_test(replay_names_what_differs),
        cmocka_unit_test(other_numerics_are_refused),
        cmocka_unit_test(another_kv_cache_answers_otherwise),
        cmocka_unit_test(drive_names_the_record),
        cmocka_unit_test(lies_are_checked),
        cmocka_unit_test(a_member_is_a_row),
        cmocka_unit_test(rows_are_in_order_and_values),
        cmocka_unit_test(unknown_sections_are_skipped_or_rejected),
    };
    if (quire_hash_init() != QUIRE_OK)
        return 1;
    return cmocka_run_group_tests(tests, record_a_little, forget);
}
