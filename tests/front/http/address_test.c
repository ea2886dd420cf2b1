#include "server/http/address.h"
#include "tests/front/front_unit_test.h"

#include <string.h>

static struct http_address address(const char *text)
{
    struct http_address out;
    assert_true(http_address_parse(text, &out));
    return out;
}

static bool has(const char *network, const char *text)
{
    struct http_network parsed;
    const struct http_address a = address(text);
    size_t n = 0;
    assert_int_equal(http_networks_parse(network, &parsed, 1, &n, NULL), QUIRE_OK);
    return http_network_has(&parsed, &a);
}

static void networks(void **state)
{
    (void)state;
    assert_true(has("10.0.0.0/8", "10.255.3.4"));
    assert_false(has("10.0.0.0/8", "11.0.0.0"));
    assert_true(has("10.1.2.3/8", "10.9.9.9"));
    assert_true(has("192.168.4.0/22", "192.168.7.255"));
    assert_false(has("192.168.4.0/22", "192.168.8.0"));
    assert_true(has("127.0.0.1", "127.0.0.1"));
    assert_false(has("127.0.0.1", "127.0.0.2"));
    assert_true(has("0.0.0.0/0", "255.1.2.3"));
    assert_false(has("0.0.0.0/0", "::1"));
    assert_true(has("::/0", "1.2.3.4"));
    assert_true(has("fd00::/8", "fdff::1"));
    assert_false(has("fd00::/8", "fe00::1"));
    assert_true(has("::ffff:10.0.0.0/104", "10.1.1.1"));

    struct http_network out[2];
    size_t n = 0;
    assert_int_equal(http_networks_parse("10.0.0.0/8,::1", out, 2, &n, NULL), QUIRE_OK);
    assert_int_equal(n, 2);
    assert_int_equal(http_networks_parse("::2", out, 2, &n, NULL), QUIRE_INVALID);
    static const char *const bad[] = {
        "",       ",",         "10.0.0.0/8,", "10.0.0.0/33",   "10.0.0.0/", "10.0.0.0/8x", "10.0.0/8",
        "::/129", "localhost", "10.0.0.0/-1", "10.0.0.0/0008", " 10.0.0.1", "[::1]",       "10.0.0.1:80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct quire_error err;
        n = 0;
        assert_int_equal(http_networks_parse(bad[i], out, 2, &n, &err), QUIRE_INVALID);
        assert_non_null(strstr(err.text, "must be"));
    }
}

static void clients(void **state)
{
    (void)state;
    struct http_address a = address("2001:db8:1:2:3:4:5:6"), same = address("2001:db8:1:2::"), v4 = address("10.1.2.3");
    a = http_address_client(&a);
    assert_memory_equal(&a, &same, sizeof a);
    struct http_address still = http_address_client(&v4);
    assert_memory_equal(&still, &v4, sizeof v4);
    static const struct {
        const char *text;
        bool loopback;
    } some[] = {{"127.0.0.1", true},  {"127.9.9.9", true}, {"::1", true}, {"::ffff:127.0.0.1", true},
                {"128.0.0.1", false}, {"::2", false},      {"::", false}, {"0.0.0.0", false}};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        a = address(some[i].text);
        assert_int_equal(http_address_is_loopback(&a), some[i].loopback);
    }
}

int run_address_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks),
        cmocka_unit_test(clients),
    };
    return cmocka_run_group_tests_name("address", tests, NULL, NULL);
}
