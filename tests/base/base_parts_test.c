/* base/: the clock, little-endian bytes, the buffer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/little_endian.h"

#include <string.h>

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

static void integers_lie_least_significant_byte_first(void **state)
{
    (void)state;
    static const uint8_t want[14] = {0xff, 0xfe, 0x04, 0x03, 0x02, 0xf1, 0x18,
                                     0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x91};
    uint8_t bytes[15] = {0}; /* from an odd address */
    le_store_u16(bytes + 1, 0xfeff);
    le_store_u32(bytes + 3, 0xf1020304u);
    le_store_u64(bytes + 7, UINT64_C(0x9112131415161718));
    assert_memory_equal(bytes + 1, want, sizeof want);
    assert_int_equal(bytes[0], 0);
    assert_int_equal(le_load_u16(bytes + 1), 0xfeff);
    assert_int_equal(le_load_u32(bytes + 3), 0xf1020304u);
    assert_true(le_load_u64(bytes + 7) == UINT64_C(0x9112131415161718));
}

static void a_buffer_grows_and_keeps_what_it_has(void **state)
{
    (void)state;
    struct buffer b = {0};
    assert_int_equal(buffer_append(&b, NULL, 0), QUIRE_OK);
    for (unsigned i = 0; i < 3000; i++)
        assert_int_equal(buffer_append(&b, &(char){(char)(i % 251)}, 1), QUIRE_OK);
    char *room = buffer_reserve(&b, 100000);
    assert_non_null(room);
    assert_ptr_equal(room, b.data + 3000);
    memset(room, 'x', 100000);
    b.n += 100000;
    for (unsigned i = 0; i < 3000; i++)
        assert_int_equal((unsigned char)b.data[i], i % 251);
    size_t capacity = b.capacity;
    buffer_clear(&b);
    assert_int_equal(b.n, 0);
    assert_int_equal(b.capacity, capacity);
    buffer_free(&b);
    assert_null(b.data);
    assert_int_equal(buffer_append(&b, "again", 5), QUIRE_OK);
    buffer_free(&b);
}

static void a_buffer_remembers_that_there_was_no_room(void **state)
{
    (void)state;
    struct buffer b = {0};
    assert_int_equal(buffer_append(&b, "abc", 3), QUIRE_OK);
    assert_null(buffer_reserve(&b, SIZE_MAX / 2));
    assert_true(b.failed);
    assert_int_equal(buffer_append(&b, "d", 1), QUIRE_NO_MEMORY);
    assert_int_equal(b.n, 3);
    buffer_clear(&b);
    assert_int_equal(buffer_append(&b, "d", 1), QUIRE_OK);
    assert_memory_equal(b.data, "d", 1);
    buffer_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_clock_counts_up_in_every_unit),
        cmocka_unit_test(the_wall_clock_is_of_this_century),
        cmocka_unit_test(a_moment_becomes_a_timespec),
        cmocka_unit_test(integers_lie_least_significant_byte_first),
        cmocka_unit_test(a_buffer_grows_and_keeps_what_it_has),
        cmocka_unit_test(a_buffer_remembers_that_there_was_no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
