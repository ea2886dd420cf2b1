/* base/: the clock, little-endian bytes, the buffer, the id map, numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/encoding/little_endian.h"
#include "base/encoding/number.h"
#include "base/encoding/server_url.h"
#include "base/file.h"
#include "base/id_map.h"
#include "base/process.h"
#include "base/size.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

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

static void a_buffer_remembers_that_there_was_no_space(void **state)
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

static void a_buffer_is_a_string_when_asked(void **state)
{
    (void)state;
    struct buffer b = {0};
    assert_string_equal(buffer_text(&b), "");
    assert_int_equal(b.n, 0);
    for (int i = 0; i < 256; i++) /* also when the bytes fill what there is */
        buffer_append(&b, "x", 1);
    assert_int_equal(strlen(buffer_text(&b)), 256);
    buffer_append(&b, "y", 1);
    assert_string_equal(buffer_text(&b) + 255, "xy");
    buffer_free(&b);
}

static void a_file_is_read_up_to_a_bound(void **state)
{
    (void)state;
    struct buffer b = {0};
    struct quire_error err;
    FILE *f = tmpfile();
    assert_non_null(f);
    for (int i = 0; i < 50000; i++)
        putc('a' + i % 26, f);
    rewind(f);
    assert_int_equal(buffer_read(&b, f, 50000, "it", &err), QUIRE_OK);
    assert_int_equal(b.n, 50000);
    for (int i = 0; i < 50000; i++)
        assert_int_equal(b.data[i], 'a' + i % 26);
    buffer_clear(&b);
    rewind(f);
    assert_int_equal(buffer_read(&b, f, 49999, "it", &err), QUIRE_INVALID);
    assert_string_equal(err.text, "it: larger than the 49999 bytes allowed");
    fclose(f);
    buffer_free(&b);
}

static void an_id_map_is_its_model(void **state)
{
    enum { IDS = 600 };
    static uint32_t model[IDS]; /* 0: not in the map */
    struct id_map map = {0};
    uint32_t n = 0;
    (void)state;
    assert_true(id_map_find(&map, 1) == 0);
    id_map_remove(&map, 1);
    srand(7);
    for (int i = 0; i < 200000; i++) {
        /* A few ids, close together and far apart, including 0 and the largest: runs grow, wrap around the end and
         * break up. */
        uint32_t which = (uint32_t)rand() % IDS;
        uint64_t id = which == 1 ? UINT64_MAX : which % 2 ? which : (uint64_t)which << 40;
        assert_true(id_map_find(&map, id) == model[which]);
        if (model[which] && rand() % 3) {
            id_map_remove(&map, id);
            model[which] = 0;
            n--;
        } else if (!model[which]) {
            id_map_remove(&map, id); /* not in the map: does nothing */
            if (n < 300) {
                model[which] = 1 + (uint32_t)i;
                assert_int_equal(id_map_add(&map, id, model[which]), QUIRE_OK);
                n++;
            }
        }
        assert_int_equal(map.n, n);
    }
    uint64_t sum = 0, want = 0;
    uint32_t n_seen = 0;
    size_t at = 0;
    for (uintptr_t value; (value = id_map_next(&map, &at)) != 0; n_seen++)
        sum += value;
    for (uint32_t i = 0; i < IDS; i++)
        want += model[i];
    assert_int_equal(n_seen, n);
    assert_true(sum == want);
    id_map_free(&map);
    at = 0;
    assert_true(id_map_next(&map, &at) == 0);
}

static void sizes_are_what_people_say(void **state)
{
    (void)state;
    static const struct {
        uint64_t n_bytes;
        const char *text;
    } rows[] = {
        {0, "0 B"},
        {1023, "1023 B"},
        {1024, "1.0 KiB"},
        {1536, "1.5 KiB"},
        {(UINT64_C(1) << 20) - 1, "1.0 MiB"}, /* never 1024.0 KiB */
        {UINT64_C(300) << 20, "300.0 MiB"},
        {(UINT64_C(1) << 30) - (UINT64_C(1) << 10), "1.0 GiB"},
        {UINT64_C(3087467520), "2.9 GiB"},
        {UINT64_C(1) << 40, "1.0 TiB"},
        {UINT64_MAX, "16.0 EiB"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(quire_size(rows[i].n_bytes).text, rows[i].text);
}

/* ---- processes ---- */

static void *say_who_and_wait(void *context)
{
    const int out = *(const int *)context, own = (int)gettid();
    if (write(out, &own, sizeof own) == sizeof own)
        pause();
    return NULL;
}

/* A child with a waiting thread. Its first thread computes for 50 ms and is then stopped. */
static _Noreturn void be_looked_at(int out)
{
    pthread_t thread;
    const uint64_t began = quire_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "a) T 1 (b");
    if (pthread_create(&thread, NULL, say_who_and_wait, &out) != 0)
        _exit(1);
    while (quire_clock_ns(CLOCK_PROCESS_CPUTIME_ID) < began + 50000000)
        ;
    raise(SIGSTOP);
    _exit(0);
}

static void a_process_and_its_threads_are_looked_at(void **state)
{
    (void)state;
    struct quire_process_look look;
    int out[2], thread = 0, how;
    assert_int_equal(pipe(out), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        be_looked_at(out[1]);
    assert_int_equal(read(out[0], &thread, sizeof thread), sizeof thread);
    assert_int_equal(waitpid(child, &how, WUNTRACED), child);
    assert_true(WIFSTOPPED(how));
    assert_true(quire_process_look(child, 0, &look) && look.is_stopped && !look.is_at_disk);
    const uint64_t ns = look.work_ns % QUIRE_PROCESS_PAGE_NS; /* a page may have come from a disk */
    assert_in_range(ns, 40000000, 1000000000);
    assert_true(quire_process_look(child, thread, &look) && look.work_ns % QUIRE_PROCESS_PAGE_NS < 20000000);
    assert_true(quire_process_look((int32_t)getpid(), 0, &look) && !look.is_stopped);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_false(quire_process_look(child, 0, &look));
    assert_int_equal(look.work_ns, 0);
    assert_false(quire_process_look(0, 0, &look));
    close(out[0]);
    close(out[1]);
}

static void numbers_are_as_people_write_them(void **state)
{
    (void)state;
    static const struct {
        const char *text, *rest;
        double value;
    } good[] = {{"5", "", 5}, {"0,1", ",1", 0}, {".5", "", 0.5}, {"1.25e2x", "x", 125}, {"10", "", 10}, {"0e1", "", 0}};
    static const char *const wrong[] = {"",    ".",   "x",   " 5",  "\t5", "-1",     "+1",
                                        "0x5", "0X5", "inf", "nan", "126", "1e-320", "1e999"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        const char *at = good[i].text;
        double value = -1;
        assert_true(quire_take_number(&at, 125, &value));
        assert_true(value == good[i].value);
        assert_string_equal(at, good[i].rest);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const char *at = wrong[i];
        double value;
        assert_false(quire_take_number(&at, 125, &value));
    }
}

static void a_server_is_found_by_what_people_type(void **state)
{
    (void)state;
    static const char *const good[][2] = {{"127.0.0.1:8000", "http://127.0.0.1:8000"},
                                          {"localhost", "http://localhost"},
                                          {"v1", "http://v1"},
                                          {"host/v1", "http://host"},
                                          {"http://host:1/v1/", "http://host:1"},
                                          {"HTTP://Host//v1//", "http://Host"},
                                          {"https://[::1]:8443/llm/v1", "https://[::1]:8443/llm"},
                                          {"https://host/v1/v1", "https://host/v1"},
                                          {"host/dev1", "http://host/dev1"}};
    static const char *const wrong[][2] = {{"ftp://host", "must begin with"},
                                           {"://host", "must begin with"},
                                           {"http://", "has no host"},
                                           {"http:///v1", "has no host"},
                                           {"", "has no host"},
                                           {"/v1", "has no host"},
                                           {":8000", "has no host"},
                                           {"host /v1", "must not have"},
                                           {"host?key=1", "must not have"},
                                           {"host#a", "must not have"},
                                           {"a-host-too-long", "bytes"}};
    char url[64];
    struct quire_error err;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(quire_server_url(good[i][0], url, sizeof url, &err), QUIRE_OK);
        assert_string_equal(url, good[i][1]);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(quire_server_url(wrong[i][0], url, 20, &err), QUIRE_INVALID);
        assert_non_null(strstr(err.text, wrong[i][1]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_and_its_threads_are_looked_at),
        cmocka_unit_test(the_clock_counts_up_in_every_unit),
        cmocka_unit_test(the_wall_clock_is_of_this_century),
        cmocka_unit_test(a_moment_becomes_a_timespec),
        cmocka_unit_test(integers_lie_least_significant_byte_first),
        cmocka_unit_test(a_buffer_grows_and_keeps_what_it_has),
        cmocka_unit_test(a_buffer_remembers_that_there_was_no_space),
        cmocka_unit_test(a_buffer_is_a_string_when_asked),
        cmocka_unit_test(a_file_is_read_up_to_a_bound),
        cmocka_unit_test(an_id_map_is_its_model),
        cmocka_unit_test(sizes_are_what_people_say),
        cmocka_unit_test(numbers_are_as_people_write_them),
        cmocka_unit_test(a_server_is_found_by_what_people_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
