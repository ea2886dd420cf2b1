/* base/: the clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"

static void the_clock_counts_up_in_every_unit(void **state)
{
    (void)state;
    uint64_t ns = quire_now_ns(), us = quire_now_us(), ms = quire_now_ms();
    double s = quire_now_s();
    uint64_t later = quire_now_ns();
    assert_true(ns / 1000 <= us && us / 1000 <= ms && ms <= later / 1000000);
    assert_true(s >= (double)ns * 1e-9 - 1e-6 && s <= (double)later * 1e-9 + 1e-6);
}

static void the_wall_clock_is_of_this_century(void **state)
{
    (void)state;
    uint64_t s = quire_wall_ns() / 1000000000u;
    time_t now = time(NULL);
    assert_true(s <= (uint64_t)now + 1 && s + 10 > (uint64_t)now); /* time() may be a tick behind */
}

static void a_moment_becomes_a_timespec(void **state)
{
    (void)state;
    struct timespec t = quire_until_ns(UINT64_C(7999999999));
    assert_int_equal(t.tv_sec, 7);
    assert_int_equal(t.tv_nsec, 999999999);
    t = quire_until_ns(UINT64_C(8000000000));
    assert_int_equal(t.tv_sec, 8);
    assert_int_equal(t.tv_nsec, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_clock_counts_up_in_every_unit),
        cmocka_unit_test(the_wall_clock_is_of_this_century),
        cmocka_unit_test(a_moment_becomes_a_timespec),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
