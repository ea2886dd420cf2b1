/* Groups within a group, like stages of ranks: calls of one do not wait for another, the end of one ends all, and a
 * rank that computes long is not late if that is allowed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "parallel/progress.h"
#include "ranks.h"
#include "tests/sample.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT_MS 120000
#define N_STAGES 3u
#define N_PLACES 2u
#define N_FLOATS 70000u /* more than two slots */

/* Of one rank: the ranks of its stage, and those with its number in the previous stage and in the next one. */
struct parts {
    struct collective *stage, *before, *next;
};

static int open_link(struct collective *c, uint32_t stage, uint32_t rank_in_stage, struct collective **out,
                     struct quire_error *err)
{
    const uint32_t ends[2] = {stage * N_PLACES + rank_in_stage, (stage + 1) * N_PLACES + rank_in_stage};
    return collective_open_part(c, N_STAGES + ends[0], ends, 2, out, err);
}

static int open_parts(struct collective *c, struct parts *out, struct quire_error *err)
{
    const uint32_t stage = collective_rank(c) / N_PLACES, rank_in_stage = collective_rank(c) % N_PLACES;
    const uint32_t members[N_PLACES] = {stage * N_PLACES, stage * N_PLACES + 1};
    *out = (struct parts){NULL, NULL, NULL};
    int status = collective_open_part(c, stage, members, N_PLACES, &out->stage, err);
    if (status == QUIRE_OK && stage > 0)
        status = open_link(c, stage - 1, rank_in_stage, &out->before, err);
    return status == QUIRE_OK && stage + 1 < N_STAGES ? open_link(c, stage, rank_in_stage, &out->next, err) : status;
}

static void close_parts(struct parts *parts)
{
    collective_leave(parts->stage);
    collective_leave(parts->before);
    collective_leave(parts->next);
}

/* Data of the previous stage is summed in this one and passed on; every 7th time all ranks meet. */
static int pass_on(struct collective *c, const struct parts *p, int i, struct outcome *mine, struct quire_error *err)
{
    static float x[N_FLOATS];
    const size_t n = i % 3 == 0 ? N_FLOATS : 100;
    const float begin = (float)(i + 1);
    int status = QUIRE_OK;
    for (size_t k = 0; k < n && !p->before; k++)
        x[k] = begin;
    if (p->before)
        status = collective_broadcast(p->before, x, n * sizeof *x, 0, err);
    if (status == QUIRE_OK)
        status = collective_all_reduce_tree(p->stage, x, n, err);
    if (status == QUIRE_OK && p->next)
        status = collective_broadcast(p->next, x, n * sizeof *x, 0, err);
    const float want = begin * (float)(1u << (collective_rank(c) / N_PLACES + 1));
    for (size_t k = 0; k < n && status == QUIRE_OK; k++)
        if (x[k] != want)
            snprintf(mine->problem, sizeof mine->problem, "round %d: [%zu] is %g, not %g", i, k, (double)x[k],
                     (double)want);
    return status == QUIRE_OK && i % 7 == 0 ? collective_barrier(c, err) : status;
}

static int run_stages(struct collective *c, const void *argument, struct outcome *mine, struct quire_error *err)
{
    struct parts parts;
    float x[3] = {0};
    (void)argument;
    int status = open_parts(c, &parts, err);
    for (int i = 0; i < 60 && status == QUIRE_OK; i++)
        status = pass_on(c, &parts, i, mine, err);
    struct quire_error why;
    if (status == QUIRE_OK && collective_all_reduce_tree(c, x, 3, &why) != QUIRE_INVALID)
        snprintf(mine->problem, sizeof mine->problem, "6 ranks have a tree");
    close_parts(&parts);
    return status;
}

static void stages_compute_side_by_side(void **state)
{
    (void)state;
    struct ranks ranks;
    ranks_start(&ranks, N_STAGES * N_PLACES, TIMEOUT_MS, run_stages, NULL);
    ranks_join(&ranks);
    for (uint32_t r = 0; r < ranks.n; r++) {
        if (ranks.outcomes[r].status != QUIRE_OK)
            print_error("rank %u: %s\n", r, ranks.outcomes[r].text);
        assert_int_equal(ranks.outcomes[r].status, QUIRE_OK);
        assert_string_equal(ranks.outcomes[r].problem, "");
    }
    ranks_free(&ranks);
}

static int one_exits(struct collective *c, const void *argument, struct outcome *mine, struct quire_error *err)
{
    const uint32_t who = *(const uint32_t *)argument;
    struct parts parts;
    int status = open_parts(c, &parts, err);
    for (int i = 0; status == QUIRE_OK; i++) {
        if (i == 20 && collective_rank(c) == who)
            _exit(3);
        status = pass_on(c, &parts, i, mine, err);
    }
    close_parts(&parts);
    return status;
}

static void who_dies_in_a_stage_ends_all(void **state)
{
    (void)state;
    for (uint32_t who = 0; who < N_STAGES * N_PLACES; who++) {
        struct ranks ranks;
        char name[32];
        snprintf(name, sizeof name, "rank %u ", who);
        ranks_start(&ranks, N_STAGES * N_PLACES, TIMEOUT_MS, one_exits, &who);
        ranks_join(&ranks);
        for (uint32_t r = 0; r < ranks.n; r++) {
            if (r == who)
                continue;
            if (!strstr(ranks.outcomes[r].text, name))
                print_error("rank %u: %s\n", r, ranks.outcomes[r].text);
            assert_int_equal(ranks.outcomes[r].status, QUIRE_UNAVAILABLE);
            assert_non_null(strstr(ranks.outcomes[r].text, name));
        }
        ranks_free(&ranks);
    }
}

/* ---- late, or computing ---- */

/* The time-out at first and at last: with other tests running, a process may not run for it, and is late. */
#define SHORT_MS (SAMPLE_IS_FOR_RACES ? 2000u : 1000u)
#define LONG_MS 30000u

/* The rule: 2 % of the time, a page from a disk, or waiting for one. */
static void progress_is_a_share_of_the_time(void **state)
{
    (void)state;
    const uint64_t ms = 1000000;
    struct quire_process_look look = {.work_ns = 5000 * ms};
    struct progress w = {0};
    progress_look(&w, 3, &look, 100 * ms);
    assert_int_equal(w.idle_ns, 0); /* another rank is waited for */
    look.work_ns += 2 * ms;
    progress_look(&w, 3, &look, 100 * ms);
    assert_int_equal(w.idle_ns, 100 * ms); /* not more than a fiftieth */
    look.work_ns += 10 * ms;
    progress_look(&w, 3, &look, 100 * ms);
    assert_int_equal(w.idle_ns, 0);
    for (int i = 0; i < 600; i++) { /* a waiting rank's polls, in ticks */
        look.work_ns += i % 100 == 99 ? 10 * ms : 0;
        progress_look(&w, 3, &look, 100 * ms);
    }
    assert_int_equal(w.idle_ns, 60000 * ms);
    look.work_ns += QUIRE_PROCESS_PAGE_NS;
    progress_look(&w, 3, &look, 100 * ms);
    assert_int_equal(w.idle_ns, 0);
    progress_look(&w, 3, &look, 100 * ms);
    look.is_at_disk = true;
    progress_look(&w, 3, &look, 100 * ms);
    assert_int_equal(w.idle_ns, 0);
    look = (struct quire_process_look){.work_ns = 0}; /* one that cannot be observed */
    progress_look(&w, 3, &look, 100 * ms);
    assert_int_equal(w.idle_ns, 100 * ms);
}

static void compute_for(uint64_t ms)
{
    const uint64_t began = quire_now_ms();
    while (quire_now_ms() - began < ms)
        ;
}

static void *compute_on(void *nothing)
{
    compute_for(UINT64_MAX); /* ends with its process */
    return nothing;
}

static int hand_on(struct collective *c, struct collective *const links[2], struct quire_error *err)
{
    const uint32_t rank = collective_rank(c);
    float x = 0;
    int status = rank > 0 ? collective_broadcast(links[rank - 1], &x, sizeof x, 0, err) : QUIRE_OK;
    return status == QUIRE_OK && rank < 2 ? collective_broadcast(links[rank], &x, sizeof x, 0, err) : status;
}

/* Rank 0 computes for longer than the time-out, while rank 1 waits for it and rank 2 for rank 1. Then it sleeps until it
 * is blamed, while another thread of its process computes. */
static int compute_and_sleep(struct collective *c, const void *argument, struct outcome *mine, struct quire_error *err)
{
    struct collective *links[2] = {NULL, NULL};
    const uint32_t rank = collective_rank(c);
    const uint32_t timeout_ms = *(const uint32_t *)argument;
    pthread_t other;
    int status = QUIRE_OK;
    for (uint32_t i = 0; i < 2 && status == QUIRE_OK; i++)
        if (rank == i || rank == i + 1) {
            status = collective_open_part(c, i, (const uint32_t[]){i, i + 1}, 2, &links[i], err);
            if (status == QUIRE_OK)
                collective_be_patient(links[i]);
        }
    if (status == QUIRE_OK)
        status = collective_barrier(c, err);
    if (status == QUIRE_OK && rank == 0)
        compute_for(UINT64_C(2) * timeout_ms);
    if (status == QUIRE_OK)
        status = hand_on(c, links, err);
    mine->value = status == QUIRE_OK;
    const uint64_t began = quire_now_ms();
    if (rank == 0 && pthread_create(&other, NULL, compute_on, NULL) == 0)
        while (collective_check(c, err) == QUIRE_OK && quire_now_ms() - began < UINT64_C(20) * timeout_ms)
            usleep(1000u * timeout_ms / 4);
    return status == QUIRE_OK ? hand_on(c, links, err) : status;
}

static void who_computes_is_not_late_and_who_sleeps_is(void **state)
{
    (void)state;
    bool is_so = false;
    for (uint32_t timeout_ms = SHORT_MS; !is_so; timeout_ms *= 2) {
        struct ranks ranks;
        ranks_start(&ranks, 3, timeout_ms, compute_and_sleep, &timeout_ms);
        ranks_join(&ranks);
        is_so = true;
        for (uint32_t r = 0; r < 3; r++)
            is_so = is_so && ranks.outcomes[r].value == 1;
        for (uint32_t r = 1; r < 3; r++) {
            const struct outcome *o = &ranks.outcomes[r];
            is_so = is_so && o->status == QUIRE_UNAVAILABLE && strstr(o->text, "rank 0 ") && strstr(o->text, "hangs");
        }
        if (!is_so && timeout_ms > LONG_MS)
            fail_msg("rank 0: %s; rank 1: %s; rank 2: %s", ranks.outcomes[0].text, ranks.outcomes[1].text,
                     ranks.outcomes[2].text);
        ranks_free(&ranks);
    }
}

/* ---- invalid parts ---- */

#ifndef TEST_HOSTS
static void parts_are_some_of_the_ranks_by_rising_number(void **state)
{
    (void)state;
    struct collective *c, *part;
    struct quire_error err;
    int fd;
    assert_int_equal(collective_create_shared(4, &fd, &err), QUIRE_OK);
    assert_int_equal(collective_join_shared(fd, 1, 0, &c, &err), QUIRE_OK);
    close(fd);
    assert_int_equal(collective_open_part(c, 0, (const uint32_t[]){0, 2}, 2, &part, &err), QUIRE_INVALID);
    assert_int_equal(collective_open_part(c, 0, (const uint32_t[]){1, 4}, 2, &part, &err), QUIRE_INVALID);
    assert_int_equal(collective_open_part(c, 0, (const uint32_t[]){2, 1}, 2, &part, &err), QUIRE_INVALID);
    assert_int_equal(collective_open_part(c, 0, NULL, 0, &part, &err), QUIRE_INVALID);
    assert_int_equal(collective_open_part(c, COLLECTIVE_MAX_PARTS, (const uint32_t[]){1}, 1, &part, &err),
                     QUIRE_INVALID);
    struct collective *inner;
    assert_int_equal(collective_open_part(c, 0, (const uint32_t[]){1, 3}, 2, &part, &err), QUIRE_OK);
    assert_int_equal(collective_rank(part), 0);
    assert_int_equal(collective_size(part), 2);
    assert_int_equal(collective_open_part(part, 1, (const uint32_t[]){0}, 1, &inner, &err), QUIRE_INVALID);
    assert_int_equal(collective_open_part(c, 0, (const uint32_t[]){1, 3}, 2, &inner, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "in use"));
    collective_leave(part);
    collective_leave(c);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_compute_side_by_side),
        cmocka_unit_test(who_dies_in_a_stage_ends_all),
        cmocka_unit_test(progress_is_a_share_of_the_time),
        cmocka_unit_test(who_computes_is_not_late_and_who_sleeps_is),
#ifndef TEST_HOSTS
        cmocka_unit_test(parts_are_some_of_the_ranks_by_rising_number),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
