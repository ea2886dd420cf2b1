/* Bodies that arrive in pieces: forms, and requests that become lines. Every body is cut at every byte. */
#include "server/bulk/upload/multipart.h"
#include "server/bulk/upload/split.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- forms ---- */

struct seen {
    char fields[256], file[512];
    size_t n_file;
};

static bool on_field(void *context, const char *name, const char *value, size_t n, struct quire_error *err)
{
    struct seen *s = context;
    const size_t at = strlen(s->fields);
    (void)err;
    assert_int_equal(strlen(value), n);
    snprintf(s->fields + at, sizeof s->fields - at, "%s=%s;", name, value);
    return true;
}

static bool on_file(void *context, const char *name, const char *filename, struct quire_error *err)
{
    return on_field(context, name, filename, strlen(filename), err);
}

static bool on_bytes(void *context, const char *bytes, size_t n, struct quire_error *err)
{
    struct seen *s = context;
    (void)err;
    assert_true(n <= sizeof s->file - s->n_file);
    memcpy(s->file + s->n_file, bytes, n);
    s->n_file += n;
    return true;
}

static int feed_form(const char *type, const char *body, size_t n, size_t cut, struct seen *seen, bool *is_whole)
{
    const struct multipart_events events = {on_field, on_file, on_bytes, seen};
    struct multipart *m;
    struct quire_error err;
    *seen = (struct seen){.n_file = 0};
    int status = multipart_open(type, &events, &m, &err);
    if (status != QUIRE_OK)
        return status;
    status = multipart_feed(m, body, cut, &err);
    if (status == QUIRE_OK)
        status = multipart_feed(m, body + cut, n - cut, &err);
    *is_whole = multipart_is_whole(m);
    multipart_close(m);
    return status;
}

static void forms(void **state)
{
    struct seen seen;
    bool is_whole;
    (void)state;
    static const char good[] =
        "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--b  \r\n"
        "content-type: text/plain\r\nContent-Disposition: form-data; filename=\"a\\\"b\"; name=file\r\n\r\n"
        "one\r\n--\r\n-\r\r\n-\r\n--b\r\nContent-Disposition: form-data; name=\"empty\"\r\n\r\n\r\n--b--\r\nrest";
    for (size_t cut = 0; cut < sizeof good; cut++) {
        assert_int_equal(
            feed_form("Multipart/Form-Data; charset=x; boundary=\"b\"", good, sizeof good - 1, cut, &seen, &is_whole),
            QUIRE_OK);
        assert_true(is_whole);
        assert_string_equal(seen.fields, "purpose=batch;file=a\"b;empty=;");
        assert_int_equal(seen.n_file, strlen("one\r\n--\r\n-\r\r\n-"));
        assert_memory_equal(seen.file, "one\r\n--\r\n-\r\r\n-", seen.n_file);
    }
    static const char *const types[] = {NULL, "application/json", "multipart/form-data",
                                        "multipart/form-data; boundary="};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        assert_int_equal(feed_form(types[i], "", 0, 0, &seen, &is_whole), QUIRE_INVALID);
}

/* ---- requests ---- */

static int feed_split(const char *body, size_t n, size_t cut, struct buffer *out)
{
    struct bulk_split *s;
    struct quire_error err;
    buffer_clear(out);
    assert_int_equal(bulk_split_open(&s, &err), QUIRE_OK);
    int status = bulk_split_feed(s, body, cut, out, &err);
    if (status == QUIRE_OK)
        status = bulk_split_feed(s, body + cut, n - cut, out, &err);
    if (status == QUIRE_OK)
        status = bulk_split_end(s, &err);
    bulk_split_close(s);
    return status;
}

static void requests(void **state)
{
    static const char body[] =
        " {\"other\": [1, {\"requests\": 3}], \"re\\\"q\": \"x]}\", \"requests\" : [ {\"a\":\n\"\\\"}{\\\\\"} ,\r\n"
        "{\"b\":[[{}],\"]\"]}] , \"last\": null} \n";
    static const char lines[] = "{\"a\": \"\\\"}{\\\\\"}\n{\"b\":[[{}],\"]\"]}\n";
    struct buffer out = {0};
    (void)state;
    for (size_t cut = 0; cut < sizeof body; cut++) {
        assert_int_equal(feed_split(body, sizeof body - 1, cut, &out), QUIRE_OK);
        assert_int_equal(out.n, sizeof lines - 1);
        assert_memory_equal(out.data, lines, out.n);
    }
    static const char *const wrong[] = {
        "",
        "[]",
        "{}",
        "{\"requests\":[]}",
        "{\"requests\":1}",
        "{\"requests\":[1]}",
        "{\"requests\":[{}]",
        "{\"requests\":[{}]}}",
        "{\"requests\":[{}]} x",
        "{\"requests\":[{]}]}",
        "{\"requests\":[{}],\"requests\":[{}]}",
        "{\"request\":[{}]}",
        "{\"requests\":[\"a\"]}",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        for (size_t cut = 0; cut <= strlen(wrong[i]); cut++)
            assert_int_equal(feed_split(wrong[i], strlen(wrong[i]), cut, &out), QUIRE_INVALID);
    buffer_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(forms), cmocka_unit_test(requests)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
