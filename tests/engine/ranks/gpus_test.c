/* Which GPU each rank takes, from what each says that it sees. */
#include "engine/ranks/gpus.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct rank_gpus all[COLLECTIVE_MAX_RANKS];

/* For each rank its host's letter and the GPUs that it sees, "a:01 a:01 b:2"; host and digit identify a GPU. */
static uint32_t see(const char *text)
{
    uint32_t n = 0;
    memset(all, 0, sizeof all);
    for (; *text; n++) {
        struct rank_gpus *r = &all[n];
        const char host = *text;
        snprintf(r->host, sizeof r->host, "node%c of a boot", host);
        for (text += 2; *text && *text != ' '; text++) {
            r->seen[r->n].bytes[0] = (unsigned char)host;
            r->seen[r->n++].bytes[K_GPU_ID_BYTES - 1] = (unsigned char)*text;
        }
        text += *text == ' ';
    }
    return n;
}

/* places: of each rank's among what it sees. */
static void deals(const char *text, const char *places)
{
    uint32_t taken[COLLECTIVE_MAX_RANKS];
    struct quire_error err;
    const uint32_t n = see(text);
    if (gpus_deal(all, n, taken, &err) != QUIRE_OK)
        fail_msg("%s: %s", text, err.text);
    for (uint32_t r = 0; r < n; r++)
        assert_int_equal(taken[r], places[r] - '0');
}

static void a_rank_takes_the_first_that_is_free(void **state)
{
    (void)state;
    deals("a:0 a:0123 a:0123 a:0123", "0123"); /* rank 0 reports the one that it uses */
    deals("a:0 a:01 b:01 b:01", "0101");
    deals("a:0 b:01 a:01 b:01", "0011"); /* ranks dealt out in turns */
    deals("a:0 a:1 b:0 b:1", "0000"); /* each process sees its own */
    deals("a:0 a:10 b:01 b:10", "0000"); /* in an order of its own */
    deals("a:2 a:23", "01"); /* --device cuda:2 */
    deals("a:0 a: a:01", "001"); /* rank 1 failed before */
    deals("a:0", "0");
}

static void refuses(const char *text, const char *wanted)
{
    uint32_t taken[COLLECTIVE_MAX_RANKS];
    struct quire_error err;
    const uint32_t n = see(text);
    assert_int_equal(gpus_deal(all, n, taken, &err), QUIRE_INVALID);
    if (!strstr(err.text, wanted))
        fail_msg("%s: %s", text, err.text);
}

static void no_gpu_is_had_twice(void **state)
{
    (void)state;
    refuses("a:0 a:0",
            "no GPU is left for rank 1 on host nodea: it sees 1 from --device's number on, taken by rank 0; ");
    refuses("a:0 a:01 b:01 a:01",
            "no GPU is left for rank 3 on host nodea: it sees 2 from --device's number on, taken by ranks 0, 1; ");
    refuses("a:0 b:7 b:7",
            "no GPU is left for rank 2 on host nodeb: it sees 1 from --device's number on, taken by rank 1; ");
}

static void hosts_are_told_apart(void **state)
{
    (void)state;
    see("a:0 a:01 b:01 b:01");
    assert_false(gpus_are_across_hosts(all, 0, 2));
    assert_true(gpus_are_across_hosts(all, 0, 4));
    assert_true(gpus_are_across_hosts(all, 1, 2));
    assert_false(gpus_are_across_hosts(all, 2, 2));
    assert_false(gpus_are_across_hosts(all, 1, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_takes_the_first_that_is_free),
        cmocka_unit_test(no_gpu_is_had_twice),
        cmocka_unit_test(hosts_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
