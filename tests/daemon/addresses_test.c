/* Addresses and key files that are wrong are refused with a reason, before anything is sent. */
#include "server/link/engine_client.h"
#include "tests/daemon/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_key_files),
        cmocka_unit_test(test_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
