/* Invalid addresses and key files are rejected with a reason before anything is sent. Different keys, and listeners
 * that are not engines, are rejected with a reason that names them. */
#include "tests/daemon/heard.h"
#include "tests/daemon/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void test_key_files(void **state)
{
    struct rig rig;
    struct quire_error err;
    char path[128];
    (void)state;
    rig_open(&rig, NULL, NULL);
    rig_path(&rig, "a.key", path, sizeof path);
    assert_int_equal(daemon_listen(rig.d, "tcp:127.0.0.1:0", path, &err), QUIRE_NOT_FOUND);
    rig_write_key(path, "short         \n");
    assert_int_equal(daemon_listen(rig.d, "tcp:127.0.0.1:0", path, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "at least 16"));
    rig_write_key(path, "long enough, but for everybody");
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(daemon_listen(rig.d, "tcp:127.0.0.1:0", path, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "others may read it"));
    assert_int_equal(daemon_listen(rig.d, "tcp:127.0.0.1:0", rig.directory, &err), QUIRE_INVALID);
    char *large = malloc(5000);
    assert_non_null(large);
    memset(large, 'k', 4999);
    large[4999] = '\0';
    rig_write_key(path, large);
    assert_int_equal(daemon_listen(rig.d, "tcp:127.0.0.1:0", path, &err), QUIRE_INVALID);
    large[4096] = '\0';
    rig_write_key(path, large);
    assert_int_equal(daemon_listen(rig.d, "tcp:127.0.0.1:0", path, &err), QUIRE_OK);
    free(large);
    rig_close(&rig);
}

static void test_addresses(void **state)
{
    struct quire_error err;
    int fd;
    (void)state;
    static const char *bad[] = {"",        "unix:",       "tcp:",    "tcp:localhost", "tcp::80",   "tcp:h:",
                                "tcp:h:x", "tcp:h:65536", "/a/path", "http://h",      "tcp:::1:80"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(engine_client_connect(bad[i], 100, &fd, &err), QUIRE_INVALID);
        assert_int_equal(fd, -1);
    }
    assert_int_equal(engine_client_connect("unix:/nowhere/at/all", 100, &fd, &err), QUIRE_IO);
    assert_int_equal(engine_client_connect("tcp:127.0.0.1:1", 100, &fd, &err), QUIRE_IO);
    char longest[200];
    memset(longest, 'a', sizeof longest);
    memcpy(longest, "unix:", 5);
    longest[199] = '\0';
    assert_int_equal(engine_client_connect(longest, 100, &fd, &err), QUIRE_INVALID);
}

static void open_at(struct rig *rig, struct heard *h, const char *address, const char *key_file)
{
    struct quire_error err;
    struct wire_hello hello;
    int fd;
    memset(h, 0, sizeof *h);
    our_hello(&hello);
    assert_int_equal(engine_client_connect(address, 2000, &fd, &err), QUIRE_OK);
    assert_int_equal(engine_client_open(rig->base, wire_stream_of_socket(rig->base, fd), &hello, key_file,
                                        &heard_events, h, &h->client, &err),
                     QUIRE_OK);
    assert_true(rig_run_until(rig, is_ready_or_closed, h));
}

static void test_keys(void **state)
{
    struct rig rig;
    struct heard h;
    struct quire_error err;
    struct stream s;
    struct request_spec what;
    char right[128], wrong[128], same[128], path[128], keyed[160], plain[160];
    (void)state;
    rig_open(&rig, NULL, NULL);
    rig_path(&rig, "right.key", right, sizeof right);
    rig_path(&rig, "wrong.key", wrong, sizeof wrong);
    rig_path(&rig, "same.key", same, sizeof same);
    rig_write_key(right, "a key that is long enough");
    rig_write_key(same, "a key that is long enough \r\n\n");
    rig_write_key(wrong, "a key that is long, but not it");
    assert_int_equal(daemon_listen(rig.d, "tcp:127.0.0.1:0", NULL, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "key"));
    assert_int_equal(daemon_listen(rig.d, "tcp:127.0.0.1:0", right, &err), QUIRE_OK);
    rig_path(&rig, "keyed.sock", path, sizeof path);
    snprintf(keyed, sizeof keyed, "unix:%s", path);
    assert_int_equal(daemon_listen(rig.d, keyed, right, &err), QUIRE_OK);
    rig_path(&rig, "plain.sock", path, sizeof path);
    snprintf(plain, sizeof plain, "unix:%s", path);
    assert_int_equal(daemon_listen(rig.d, plain, NULL, &err), QUIRE_OK);

    const char *tcp = daemon_address(rig.d, 0);
    assert_int_equal(strncmp(tcp, "tcp:127.0.0.1:", 14), 0);
    assert_null(daemon_address(rig.d, 3));
    struct {
        const char *address, *key, *why;
    } cases[] = {
        {tcp, right, NULL},
        {tcp, same, NULL},
        {tcp, wrong, "the key is a different one"},
        {tcp, NULL, "no key file was given"},
        {keyed, right, NULL},
        {keyed, wrong, "the key is a different one"},
        {plain, NULL, NULL},
        {plain, right, "asks for no key"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        open_at(&rig, &h, cases[i].address, cases[i].key);
        assert_int_equal(h.ready, cases[i].why == NULL);
        if (cases[i].why && !strstr(h.why, cases[i].why))
            fail_msg("case %zu: '%s' does not say '%s'", i, h.why, cases[i].why);
        if (h.ready) {
            stream_open(&s, &h);
            submit_of(&what);
            submit(&h, &s, &what);
            assert_true(rig_run_until(&rig, is_over, &s));
            assert_int_equal(s.n_tokens, 6);
            free(s.tokens);
        }
        engine_client_close(h.client);
    }
    rig_close(&rig);
}

/* The listening process is not an engine. */
static void test_strangers(void **state)
{
    struct quire_error err;
    struct wire_hello hello;
    static const struct {
        const char *says;
        size_t n;
        const char *why;
    } cases[] = {
        {"HTTP/1.1 400 Bad Request\r\n\r\n", 28, "a bad frame"},
        {"\0\0\0\0\x0d\0\0\0\0\0\0\0\0\0\0\0", 16, "a bad frame"}, /* ERROR without a status */
        {"\0\0\0\0\x0c\0\0\0\0\0\0\0\0\0\0\0", 16, "DRAIN: does not belong here"},
        {"\x0c\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\1\x80\0\0\4\0\0\0\2\0\0\0", 28, "version"},
        {"", 0, "closed"},
    };
    (void)state;
    our_hello(&hello);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct event_base *base = event_base_new();
        struct heard h = {0};
        int fds[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        assert_int_equal(engine_client_open(base, wire_stream_of_socket(base, fds[1]), &hello, NULL, &heard_events, &h,
                                            &h.client, &err),
                         QUIRE_OK);
        if (cases[i].n)
            assert_int_equal(write(fds[0], cases[i].says, cases[i].n), cases[i].n);
        else
            close(fds[0]);
        for (int k = 0; k < 100 && !h.closed; k++)
            event_base_loop(base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
        assert_true(h.closed);
        if (!strstr(h.why, cases[i].why))
            fail_msg("'%s' does not say '%s'", h.why, cases[i].why);
        engine_client_close(h.client);
        if (cases[i].n)
            close(fds[0]);
        event_base_free(base);
    }
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_key_files),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_strangers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
