/* Plan frames: written frames can be read, every change is detected, and ranks follow each other's steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "parallel/plan_frame.h"
#include "ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES 200000

static const size_t lengths[] = {0, 1, 7, 8, 9, 31, 32, 33, 64, 100, 20000, 131072, 131073, MAX_BYTES};
#define N_LENGTHS (sizeof lengths / sizeof lengths[0])

static void fill(unsigned char *payload, size_t n, uint64_t step)
{
    for (size_t i = 0; i < n; i++)
        payload[i] = (unsigned char)(i * 7 + i / 256 + step);
}

static int read_whole(const unsigned char *head, const void *payload, struct plan_frame *frame, struct quire_error *err)
{
    int status = plan_frame_read(head, 12, 4096, frame, err);
    return status == QUIRE_OK ? plan_frame_check(frame, payload, err) : status;
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    unsigned char head[PLAN_FRAME_HEAD_BYTES], payload[256];
    for (size_t n = 0; n < sizeof payload; n++) {
        struct plan_frame got, frame = {.step = 12, .kind = 0xfedcba98u, .n_bytes = n};
        fill(payload, n, 12);
        plan_frame_write(&frame, payload, head);
        assert_int_equal(read_whole(head, payload, &got, NULL), QUIRE_OK);
        assert_true(got.step == 12 && got.kind == 0xfedcba98u && got.n_bytes == n);
    }
}

static void every_bit_is_checked(void **state)
{
    (void)state;
    unsigned char head[PLAN_FRAME_HEAD_BYTES], payload[77];
    struct plan_frame got, frame = {.step = 12, .kind = 3, .n_bytes = sizeof payload};
    fill(payload, sizeof payload, 12);
    plan_frame_write(&frame, payload, head);
    for (size_t bit = 0; bit < (sizeof head + sizeof payload) * 8; bit++) {
        unsigned char *at = bit / 8 < sizeof head ? head + bit / 8 : payload + bit / 8 - sizeof head;
        /* A length may exceed the data: the buffer has as many bytes as allowed. */
        unsigned char all[4096] = {0};
        *at ^= (unsigned char)(1u << bit % 8);
        memcpy(all, payload, sizeof payload);
        assert_int_equal(read_whole(head, all, &got, NULL), QUIRE_INVALID);
        *at ^= (unsigned char)(1u << bit % 8);
    }
    assert_int_equal(read_whole(head, payload, &got, NULL), QUIRE_OK);
    memcpy(payload + 40, payload + 8, 8); /* swapped words */
    memcpy(payload + 8, payload + 32, 8);
    assert_int_equal(read_whole(head, payload, &got, NULL), QUIRE_INVALID);
}

static void the_error_names_the_field(void **state)
{
    (void)state;
    unsigned char head[PLAN_FRAME_HEAD_BYTES], payload[64] = {0};
    struct plan_frame got, frame = {.step = 12, .n_bytes = sizeof payload};
    struct quire_error err;
    plan_frame_write(&frame, payload, head);
    assert_int_equal(plan_frame_read(head, 13, 64, &got, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "step: received 12, expected 13"));
    assert_int_equal(plan_frame_read(head, 12, 63, &got, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "n_bytes: 64 is more than the limit 63"));
    payload[5] = 1;
    assert_int_equal(plan_frame_read(head, 12, 64, &got, &err), QUIRE_OK);
    assert_int_equal(plan_frame_check(&got, payload, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "checksum"));
    head[0] = 0;
    assert_int_equal(plan_frame_read(head, 12, 64, &got, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "wrong magic"));
}

/* ---- between ranks ---- */

static int follow(struct collective *c, const void *argument, struct outcome *mine, struct quire_error *err)
{
    unsigned char *payload = malloc(MAX_BYTES), *want = malloc(MAX_BYTES);
    int status = QUIRE_OK;
    (void)argument;
    for (uint64_t step = 0; step < 50 && status == QUIRE_OK; step++) {
        struct plan_frame frame = {.step = step, .kind = (uint32_t)step * 3, .n_bytes = lengths[step % N_LENGTHS]};
        fill(want, frame.n_bytes, step);
        if (collective_rank(c) == 0) {
            status = plan_frame_send(c, &frame, want, err);
            continue;
        }
        struct plan_frame got = {0};
        status = plan_frame_receive(c, step, MAX_BYTES, &got, payload, err);
        if (status == QUIRE_OK && (got.kind != frame.kind || got.n_bytes != frame.n_bytes || got.step != step ||
                                   memcmp(payload, want, got.n_bytes) != 0))
            snprintf(mine->problem, sizeof mine->problem, "step %u", (unsigned)step);
    }
    free(payload);
    free(want);
    return status;
}

static void every_rank_gets_every_step(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 8; n *= 2) {
        struct ranks ranks;
        ranks_start(&ranks, n, 20000, follow, NULL);
        ranks_join(&ranks);
        for (uint32_t r = 0; r < n; r++) {
            assert_int_equal(ranks.outcomes[r].status, QUIRE_OK);
            assert_string_equal(ranks.outcomes[r].problem, "");
        }
        ranks_free(&ranks);
    }
}

static int lose_step(struct collective *c, const void *argument, struct outcome *mine, struct quire_error *err)
{
    unsigned char payload[16] = {0};
    struct plan_frame got, frame = {.step = 8, .n_bytes = sizeof payload};
    (void)argument;
    (void)mine;
    if (collective_rank(c) > 0)
        return plan_frame_receive(c, 7, sizeof payload, &got, payload, err);
    int status = plan_frame_send(c, &frame, payload, err);
    return status == QUIRE_OK ? collective_barrier(c, err) : status;
}

static void who_loses_step_ends_the_group(void **state)
{
    (void)state;
    struct ranks ranks;
    ranks_start(&ranks, 2, 20000, lose_step, NULL);
    ranks_join(&ranks);
    assert_int_equal(ranks.outcomes[0].status, QUIRE_UNAVAILABLE);
    assert_int_equal(ranks.outcomes[1].status, QUIRE_INVALID);
    for (uint32_t r = 0; r < 2; r++)
        assert_non_null(strstr(ranks.outcomes[r].text, "step: received 8, expected 7"));
    ranks_free(&ranks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),       cmocka_unit_test(every_bit_is_checked),
        cmocka_unit_test(the_error_names_the_field),     cmocka_unit_test(every_rank_gets_every_step),
        cmocka_unit_test(who_loses_step_ends_the_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
