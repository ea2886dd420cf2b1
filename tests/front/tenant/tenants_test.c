#include "server/front/tenant/tenants.h"
#include "tests/front/front_unit_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* SHA-256 of "secret-b", computed elsewhere. */
#define SHA_B "ff492ef788c89b555e6f738b33d2422f57dbb6656af2402155672c5f123a90af"

static int check(const char *text, char why[QUIRE_ERROR_BYTES])
{
    struct quire_error err = {.text = ""};
    int status = tenants_check(text, strlen(text), &err);
    memcpy(why, err.text, QUIRE_ERROR_BYTES);
    return status;
}

static void files_that_are_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says; /* says NULL: accepted */
    } rows[] = {
        {"[{\"name\":\"a\",\"key\":\"x\"}]", NULL},
        {"[{\"name\":\"A-z_0.9:\",\"key\":\"x\",\"weight\":1000,\"class\":7,\"priority_min\":-5,"
         "\"priority_max\":5,\"requests_per_minute\":10000000000,\"tokens_per_minute\":0,"
         "\"max_concurrent\":4294967295,\"max_queued\":7,\"admin\":true}]",
         NULL},
        {"[{\"name\":\"a\",\"key\":\"x\",\"max_queued\":-1}]", "max_queued"},
        {"[{\"name\":\"a\",\"key\":\"x\",\"weight\":null}]", NULL},
        {"[{\"name\":\"a\",\"key_sha256\":\"" SHA_B "\"}]", NULL},
        {"", "tenants"},
        {"{}", "non-empty array"},
        {"[]", "non-empty array"},
        {"null", "non-empty array"},
        {"[7]", "tenant 1: must be an object"},
        {"[{\"name\":\"a\",\"key\":\"x\"},[]]", "tenant 2: must be an object"},
        {"[{}]", "tenant 1: name"},
        {"[{\"name\":\"\",\"key\":\"x\"}]", "tenant 1: name"},
        {"[{\"name\":\"a b\",\"key\":\"x\"}]", "tenant 1: name"},
        {"[{\"name\":\"a\\u0000\",\"key\":\"x\"}]", "NUL"},
        {"[{\"name\":\"\\u00e4\",\"key\":\"x\"}]", "tenant 1: name"},
        {"[{\"name\":\"default\",\"key\":\"x\"}]", "tenant 0"},
        {"[{\"name\":7,\"key\":\"x\"}]", "tenant 1: name"},
        {"[{\"name\":\"aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffggggg\","
         "\"key\":\"x\"}]",
         "tenant 1: name"},
        {"[{\"name\":\"a\"}]", "tenant 1 (a): must have one of"},
        {"[{\"name\":\"a\",\"key\":\"x\",\"key_sha256\":\"" SHA_B "\"}]", "must have one of"},
        {"[{\"name\":\"a\",\"key\":\"\"}]", "tenant 1 (a): key"},
        {"[{\"name\":\"a\",\"key\":[]}]", "tenant 1 (a): key"},
        {"[{\"name\":\"a\",\"key_sha256\":\"abc\"}]", "tenant 1 (a): key_sha256"},
        {"[{\"name\":\"a\",\"key_sha256\":\"" SHA_B "0\"}]", "key_sha256"},
        {"[{\"name\":\"a\",\"key_sha256\":\"Ff492ef788c89b555e6f738b33d2422f57dbb665"
         "6af2402155672c5f123a90af\"}]",
         "key_sha256"},
        {"[{\"name\":\"a\",\"key\":\"x\",\"weight\":0}]", "tenant 1 (a): weight"},
        {"[{\"name\":\"a\",\"key\":\"x\",\"weight\":1001}]", "weight"},
        {"[{\"name\":\"a\",\"key\":\"x\",\"weight\":1.5}]", "weight"},
        {"[{\"name\":\"a\",\"key\":\"x\",\"class\":8}]", "class"},
        {"[{\"name\":\"a\",\"key\":\"x\",\"class\":-1}]", "class"},
        {"[{\"name\":\"a\",\"key\":\"x\",\"priority_min\":3,\"priority_max\":2}]", "priority_max"},
        {"[{\"name\":\"a\",\"key\":\"x\",\"priority_min\":-2147483649}]", "priority_min"},
        {"[{\"name\":\"a\",\"key\":\"x\",\"requests_per_minute\":-1}]", "requests_per_minute"},
        {"[{\"name\":\"a\",\"key\":\"x\",\"requests_per_minute\":10000000001}]", "requests_per_minute"},
        {"[{\"name\":\"a\",\"key\":\"x\",\"tokens_per_minute\":\"9\"}]", "tokens_per_minute"},
        {"[{\"name\":\"a\",\"key\":\"x\",\"max_concurrent\":4294967296}]", "max_concurrent"},
        {"[{\"name\":\"a\",\"key\":\"x\",\"max_seats\":-1}]", "max_seats"},
        {"[{\"name\":\"a\",\"key\":\"x\",\"max_kv_blocks\":4294967296}]", "max_kv_blocks"},
        {"[{\"name\":\"a\",\"key\":\"x\",\"batch_concurrency\":0}]", "batch_concurrency"},
        {"[{\"name\":\"a\",\"key\":\"x\",\"batch_concurrency\":20}]", NULL},
        {"[{\"name\":\"a\",\"key\":\"x\",\"organisation\":\"\"}]", "organisation"},
        {"[{\"name\":\"a\",\"key\":\"x\",\"organisation\":\"o o\"}]", "organisation"},
        {"[{\"name\":\"a\",\"key\":\"x\",\"organisation\":7}]", "organisation"},
        {"[{\"name\":\"a\",\"key\":\"x\",\"organisation_weight\":2}]", "needs organisation"},
        {"[{\"name\":\"a\",\"key\":\"x\",\"organisation\":\"o\",\"organisation_weight\":1001}]", "organisation_weight"},
        {"[{\"name\":\"a\",\"key\":\"x\",\"organisation\":\"o\"},"
         "{\"name\":\"b\",\"key\":\"y\",\"organisation\":\"o\",\"organisation_weight\":2}]",
         "tenant 2 (b): organisation_weight: is 2 for o, tenant 1 has 1"},
        {"[{\"name\":\"a\",\"key\":\"x\",\"organisation\":\"o\",\"organisation_weight\":2,\"max_seats\":3,"
         "\"max_kv_blocks\":4294967295},"
         "{\"name\":\"b\",\"key\":\"y\",\"organisation\":\"o\",\"organisation_weight\":2}]",
         NULL},
        {"[{\"name\":\"a\",\"key\":\"x\",\"admin\":1}]", "admin"},
        {"[{\"name\":\"a\",\"key\":\"x\",\"weigth\":2}]", "\"weigth\" is not a field"},
        {"[{\"name\":\"a\",\"key\":\"x\",\"key\":\"y\"}]", "key"},
        {"[{\"name\":\"a\",\"key\":\"x\"},{\"name\":\"a\",\"key\":\"y\"}]", "tenant 2: name"},
        {"[{\"name\":\"a\",\"key\":\"x\"},{\"name\":\"b\",\"key\":\"x\"}]", "tenant 2 (b): key"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char why[QUIRE_ERROR_BYTES];
        int status = check(rows[i].text, why);
        if (status != (rows[i].says ? QUIRE_INVALID : QUIRE_OK) || (rows[i].says && !strstr(why, rows[i].says)))
            fail_msg("%s: %d, \"%s\"", rows[i].text, status, why);
    }
}

static void too_many(void **state)
{
    (void)state;
    char why[QUIRE_ERROR_BYTES], *text = malloc(64 * TENANTS_MAX);
    for (uint32_t n = TENANTS_MAX - 1; n <= TENANTS_MAX; n++) {
        size_t at = 0;
        for (uint32_t i = 0; i < n; i++)
            at += (size_t)sprintf(text + at, "%c{\"name\":\"t%u\",\"key\":\"k%u\"}", i ? ',' : '[', i, i);
        strcpy(text + at, "]");
        assert_int_equal(check(text, why), n < TENANTS_MAX ? QUIRE_OK : QUIRE_INVALID);
    }
    assert_non_null(strstr(why, "at most 1023"));
    free(text);
}

static void keys_from_the_command_line(void **state)
{
    (void)state;
    static const char *const keys[] = {"alpha", "beta", "alpha"};
    static const char *const bad[] = {"alpha", ""};
    struct tenants *t;
    struct quire_error err;
    assert_int_equal(tenants_from_keys(NULL, 0, 0, &t, &err), QUIRE_OK);
    assert_false(tenants_ask_key(t));
    assert_int_equal(tenants_n(t), 1);
    assert_null(tenants_find(t, ""));
    assert_string_equal(tenants_at(t, 0)->name, "default");
    tenants_free(t);

    assert_int_equal(tenants_from_keys(keys, 3, 0, &t, &err), QUIRE_OK);
    assert_true(tenants_ask_key(t));
    assert_int_equal(tenants_n(t), 3);
    assert_int_equal(tenants_find(t, "alpha")->index, 1);
    assert_string_equal(tenants_find(t, "beta")->name, "key-2");
    assert_null(tenants_find(t, "gamma"));
    assert_null(tenants_find(t, "alph"));
    assert_null(tenants_find(t, ""));
    assert_int_equal(tenants_find(t, "beta")->priority_min, INT32_MIN);
    assert_int_equal(tenants_reload(t, 0, &err), QUIRE_OK); /* the file does not exist */
    tenants_free(t);
    assert_int_equal(tenants_from_keys(bad, 2, 0, &t, &err), QUIRE_INVALID);
    assert_null(t);
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void a_file_that_changes(void **state)
{
    (void)state;
    char path[] = "/tmp/quire-tenants-XXXXXX";
    struct tenants *t;
    struct quire_error err;
    close(mkstemp(path));
    assert_int_equal(tenants_from_file("/nonexistent/tenants.json", 0, &t, &err), QUIRE_NOT_FOUND);
    write_file(path, "[{\"name\":\"a\",\"key\":\"secret-a\",\"weight\":3,\"tokens_per_minute\":100},"
                     "{\"name\":\"b\",\"key_sha256\":\"" SHA_B "\",\"admin\":true}]");
    assert_int_equal(tenants_from_file(path, 0, &t, &err), QUIRE_OK);
    struct tenant *a = tenants_find(t, "secret-a"), *b = tenants_find(t, "secret-b");
    assert_non_null(a);
    assert_int_equal(a->index, 1);
    assert_non_null(b);
    assert_true(b->index == 2 && b->admin && !a->admin);
    assert_true(tenants_at(t, 0)->weight == 1 && a->weight == 3 && b->weight == 1);

    /* The tenant's debt and requests in flight stay. A different key, limit or position in the file does not make it
     * a different tenant. */
    bucket_charge(&a->tokens, 150, 0);
    a->n_concurrent = 4;
    write_file(path, "[{\"name\":\"c\",\"key\":\"secret-c\"},"
                     "{\"name\":\"a\",\"key\":\"secret-a2\",\"weight\":9,\"tokens_per_minute\":200}]");
    assert_int_equal(tenants_reload(t, 0, &err), QUIRE_OK);
    assert_null(tenants_find(t, "secret-a"));
    assert_null(tenants_find(t, "secret-b"));
    assert_ptr_equal(tenants_find(t, "secret-a2"), a);
    assert_true(a->index == 1 && a->n_concurrent == 4 && a->weight == 9);
    assert_int_equal(bucket_remaining(&a->tokens, 0), 50);
    assert_int_equal(tenants_find(t, "secret-c")->index, 3);
    assert_ptr_equal(tenants_at(t, 2), b);

    /* A bad file changes nothing. */
    static const char *const bad[] = {"", "[", "[{\"name\":\"a\",\"key\":\"k\"},{\"name\":\"b\"}]"};
    for (size_t i = 0; i < 3; i++) {
        write_file(path, bad[i]);
        assert_int_equal(tenants_reload(t, 0, &err), QUIRE_INVALID);
        assert_ptr_equal(tenants_find(t, "secret-a2"), a);
        assert_null(tenants_find(t, "k"));
        assert_int_equal(tenants_n(t), 4);
    }
    assert_non_null(strstr(err.text, "tenant 2 (b)"));
    unlink(path);
    assert_int_equal(tenants_reload(t, 0, &err), QUIRE_NOT_FOUND);
    assert_ptr_equal(tenants_find(t, "secret-a2"), a);

    /* b returns to its old slot. */
    write_file(path, "[{\"name\":\"b\",\"key\":\"secret-b\"}]");
    assert_int_equal(tenants_reload(t, 0, &err), QUIRE_OK);
    assert_ptr_equal(tenants_find(t, "secret-b"), b);
    assert_false(b->admin);
    unlink(path);
    tenants_free(t);
}

static void names_run_out(void **state)
{
    (void)state;
    char path[] = "/tmp/quire-tenants-XXXXXX", *text = malloc(64 * TENANTS_MAX);
    struct tenants *t;
    struct quire_error err;
    close(mkstemp(path));
    for (int round = 0; round < 3; round++) {
        size_t at = 0;
        for (uint32_t i = 0; i < 500; i++)
            at += (size_t)sprintf(text + at, "%c{\"name\":\"t%d-%u\",\"key\":\"k%u\"}", i ? ',' : '[', round, i, i);
        strcpy(text + at, "]");
        write_file(path, text);
        if (round == 0)
            assert_int_equal(tenants_from_file(path, 0, &t, &err), QUIRE_OK);
        else
            assert_int_equal(tenants_reload(t, 0, &err), round == 1 ? QUIRE_OK : QUIRE_EXHAUSTED);
    }
    assert_int_equal(tenants_n(t), 1001);
    assert_int_equal(tenants_find(t, "k0")->index, 501);
    unlink(path);
    tenants_free(t);
    free(text);
}

int run_tenants_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_that_are_wrong),
        cmocka_unit_test(too_many),
        cmocka_unit_test(keys_from_the_command_line),
        cmocka_unit_test(a_file_that_changes),
        cmocka_unit_test(names_run_out),
    };
    return cmocka_run_group_tests_name("tenants", tests, NULL, NULL);
}
