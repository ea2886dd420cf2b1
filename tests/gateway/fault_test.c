/* Each allocation of the models file's reader and of the ledger fails once: an error, no leak, nothing changed. */
#include "base/hash.h"
#include "server/gateway/account/accounts.h"
#include "server/gateway/account/usage_table.h"
#include "server/gateway/file/models_parse.h"
#include "tests/fault.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void the_models_file(void **state)
{
    static const char text[] =
        "models:\n"
        "  a: {targets: [{model: ./m, options: {x: 1, y: true}}, {url: 'http://h'}, {url: 'http://h'}],"
        " aliases: [b, c], fallback: [d], price_per_1k: {input: 1, output: 2}}\n"
        "  d: {targets: [{engine: 'unix:/e'}]}\n"
        "  e: {route: latency, among: [a, d]}\n"
        "overrides: {t: {a: d}}\n";
    long n = 0;
    (void)state;
    for (;; n++) {
        const struct gateway_config *config;
        struct quire_error err = {.text = ""};
        fault_at(n);
        const int status = models_file_parse(text, strlen(text), "f", &config, &err);
        const bool failed = fault_end();
        assert_int_equal(status, failed ? QUIRE_NO_MEMORY : QUIRE_OK);
        assert_int_equal(config == NULL, failed);
        models_file_release(config);
        if (!failed)
            break;
    }
    assert_in_range(n, 50, 1000);
}

static void accounts(void **state)
{
    struct accounts a = {.n_keys = 0};
    struct ledger_key_row row = {.name = "n", .tenant = "t", .organisation = "o", .old_until = 5};
    (void)state;
    for (unsigned i = 1; i <= 200; i++) {
        char text[16];
        snprintf(row.id, sizeof row.id, "key_%016x", i);
        snprintf(text, sizeof text, "k%u", i);
        row.hash = quire_sha256(text, strlen(text));
        snprintf(text, sizeof text, "o%u", i);
        row.old_hash = quire_sha256(text, strlen(text));
        for (long n = 0;; n++) {
            fault_at(n);
            const int status = accounts_add_key(&a, &row);
            if (!fault_end())
                break;
            assert_int_not_equal(status, QUIRE_OK);
            assert_int_equal(a.n_keys, i - 1);
            assert_null(accounts_key(&a, row.id));
            assert_null(accounts_find(&a, text, 1));
        }
        assert_non_null(accounts_key(&a, row.id));
        assert_ptr_equal(accounts_find(&a, text, 1), accounts_key(&a, row.id));
    }
    assert_ptr_equal(accounts_find(&a, "k1", 1), accounts_key(&a, "key_0000000000000001"));
    accounts_free(&a);
}

static void usage(void **state)
{
    struct usage_table t = {.n = 0};
    const struct ledger_usage_row row = {
        .organisation = "o", .tenant = "t", .key = "", .model = "m", .layer = "", .sums = {.cost = 1}};
    (void)state;
    fault_at(0);
    assert_false(usage_table_add(&t, &row));
    assert_true(fault_end());
    assert_int_equal(t.n, 0);
    assert_true(usage_table_add(&t, &row) && usage_table_add(&t, &row));
    assert_int_equal(t.n, 1);
    usage_table_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_models_file), cmocka_unit_test(accounts),
                                       cmocka_unit_test(usage)};
    if (quire_hash_init() != QUIRE_OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
