/* The first failure in a file of results, with a limit of the bytes to read. */
#include "app/batch/first_error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define GOOD "{\"custom_id\":\"a\",\"response\":{\"body\":{\"text\":\"\\\"error\\\":{\"}},\"error\":null}\n"
#define BAD "{\"custom_id\":\"b\",\"error\":{\"message\":\"line 2: not JSON\"}}\n"

static void assert_error(const char *text, uint64_t max_bytes, const char *expected)
{
    char path[] = "/tmp/first_error_XXXXXX", why[64];
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    batch_first_error(path, max_bytes, why, sizeof why);
    unlink(path);
    assert_string_equal(why, expected);
}

static void test_the_first_of_each_api(void **state)
{
    (void)state;
    assert_error(GOOD BAD GOOD, 1 << 20, "line 2: not JSON");
    assert_error(GOOD "{\"response\":{\"body\":{\"error\":{\"message\":\"reply\"}}}}\n" BAD, 1 << 20, "reply");
    assert_error(GOOD "{\"result\":{\"error\":{\"error\":{\"message\":\"result\"}}}}", 1 << 20, "result");
    assert_error(GOOD GOOD "{\"error\":{\n", 1 << 20, "");
    assert_error("", 1 << 20, "");
}

static void test_the_limit(void **state)
{
    (void)state;
    assert_error(GOOD BAD, strlen(GOOD) + 1, "line 2: not JSON");
    assert_error(GOOD BAD, strlen(GOOD), "");
    char why[8] = "x";
    batch_first_error("/absent", 1, why, sizeof why);
    assert_string_equal(why, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_of_each_api),
        cmocka_unit_test(test_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
