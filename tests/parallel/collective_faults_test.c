/* A rank that dies, leaves, stops, is late or gives up: every other rank soon gets its number, and no resources remain.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "ranks.h"
#include "tests/sample.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifdef TEST_HOSTS /* the meeting takes longer than the fault */
#define ONE_IN 10
#else
#define ONE_IN 5
#endif
#define N_TIMES 100
#define PATIENCE_MS 600000 /* for ranks that must detect a death long before */
#define TIMEOUT_MS 500u /* for ranks that must time out, at first */
#define MAX_TIMEOUT_MS 32000u /* at last: on a busy machine another rank may not run for a time-out, and is named */
#define SOON_NS UINT64_C(60000000000) /* a tenth of that */

enum fault { KILLED, EXITS, LEAVES, STOPPED, GIVES_UP };

struct scene {
    enum fault fault;
    uint32_t rank; /* whose */
    int at; /* number of successful calls */
    uint32_t timeout_ms;
    bool is_loading; /* the time-out is that of loading */
};

/* Calls of all kinds, large and small, until one fails. */
static int call_on(struct collective *c, const void *argument, struct outcome *mine, struct quire_error *err)
{
    static float x[50000], all[COLLECTIVE_MAX_RANKS * 1000];
    const struct scene *scene = argument;
    int status = QUIRE_OK;
    for (int i = 0; status == QUIRE_OK; i++) {
        atomic_fetch_add(&mine->progress, 1);
        if (i == scene->at && collective_rank(c) == scene->rank) {
            if (scene->fault == EXITS)
                _exit(3);
            if (scene->fault == LEAVES)
                return QUIRE_OK;
            if (scene->fault == GIVES_UP)
                collective_abort(c, "it is\ntired");
        }
        switch (i % 5) {
        case 0: status = collective_all_reduce_tree(c, x, i % 3 ? 1024 : 50000, err); break;
        case 1: status = collective_all_gather(c, x, 4000, all, err); break;
        case 2: status = collective_broadcast(c, x, 20000, (uint32_t)i / 5 % collective_size(c), err); break;
        case 3: status = collective_gather(c, x, 4000, (uint32_t)i / 5 % collective_size(c), all, err); break;
        default: status = collective_barrier(c, err);
        }
        memset(x, 0, sizeof x);
    }
    return status;
}

static bool names_another(const struct scene *scene, const struct outcome *o)
{
    char name[32];
    snprintf(name, sizeof name, "rank %u ", scene->rank);
    return !strstr(o->text, name);
}

static void check_time_out(const struct scene *scene, const struct outcome *o)
{
    char within[32];
    snprintf(within, sizeof within, "within %.1f s", scene->is_loading ? 4.0 : scene->timeout_ms / 1e3);
#ifdef TEST_HOSTS /* with a longer time-out, the missing heartbeats come first */
    if (strstr(o->text, "sent no data"))
        return;
#endif
    assert_non_null(strstr(o->text, within));
}

static void check_survivor(const struct scene *scene, const struct outcome *o, uint64_t since)
{
    char name[32];
    snprintf(name, sizeof name, "rank %u ", scene->rank);
    if (o->status != QUIRE_UNAVAILABLE || !strstr(o->text, name))
        print_error("fault %d of rank %u at %d: status %d, \"%s\"\n", scene->fault, scene->rank, scene->at, o->status,
                    o->text);
    assert_true(atomic_load(&o->is_done));
    assert_int_equal(o->status, QUIRE_UNAVAILABLE);
    assert_non_null(strstr(o->text, name));
    assert_true(o->failed_ns < since + SOON_NS);
    if (scene->fault == GIVES_UP)
        assert_non_null(strstr(o->text, "it is?tired"));
    if (scene->fault == STOPPED)
        check_time_out(scene, o);
}

/* Returns false if a survivor names another rank, which did not run for the time-out. */
static bool act(const struct scene *scene, struct ranks *ranks)
{
    ranks_await(ranks, scene->rank, scene->at + 1);
    if (scene->fault == KILLED)
        kill(ranks->processes[scene->rank], SIGKILL);
    if (scene->fault == STOPPED)
        kill(ranks->processes[scene->rank], SIGSTOP);
    uint64_t since = quire_now_ns();
    bool are_told = true;
    for (uint32_t r = 0; r < ranks->n; r++)
        if (r != scene->rank) {
            while (!atomic_load(&ranks->outcomes[r].is_done) && quire_now_ns() < since + SOON_NS)
                usleep(1000);
            are_told = are_told && atomic_load(&ranks->outcomes[r].is_done);
        }
    if (scene->fault == STOPPED) /* it finds that the group is over; if no rank noticed, all would continue forever */
        kill(ranks->processes[scene->rank], are_told ? SIGCONT : SIGKILL);
    ranks_join(ranks);
    for (uint32_t r = 0; r < ranks->n; r++)
        if (r != scene->rank && scene->timeout_ms < MAX_TIMEOUT_MS && names_another(scene, &ranks->outcomes[r]))
            return false;
    for (uint32_t r = 0; r < ranks->n; r++)
        if (r != scene->rank)
            check_survivor(scene, &ranks->outcomes[r], since);
    if (scene->fault == STOPPED || scene->fault == GIVES_UP)
        assert_int_equal(ranks->outcomes[scene->rank].status, QUIRE_UNAVAILABLE);
    return true;
}

static void many_times(enum fault fault)
{
    uint32_t n_descriptors = count_descriptors(), n_shared = count_shared_memory();
    struct sample sample = sample_of(ONE_IN);
    for (uint32_t i = 0; i < N_TIMES; i++) {
        const uint32_t n = (const uint32_t[]){2, 4, 8, 2}[i % 4];
        struct scene scene = {.fault = fault, .rank = i / 4 % n, .at = (int)(i * 7 % 40)};
        scene.timeout_ms = fault == STOPPED ? TIMEOUT_MS : PATIENCE_MS;
        if (!sample_takes(&sample))
            continue;
        for (bool is_over = false; !is_over; scene.timeout_ms *= 2) {
            struct ranks ranks;
            ranks_start(&ranks, n, scene.timeout_ms, call_on, &scene);
            is_over = act(&scene, &ranks);
            ranks_free(&ranks);
        }
    }
    sample_report(&sample, "faults");
    assert_int_equal(count_descriptors(), n_descriptors);
    assert_int_equal(count_shared_memory(), n_shared);
}

static void a_rank_that_is_killed_is_named(void **state)
{
    (void)state;
    many_times(KILLED);
}

static void a_rank_that_exits_is_named(void **state)
{
    (void)state;
    many_times(EXITS);
}

static void a_rank_that_leaves_is_named(void **state)
{
    (void)state;
    many_times(LEAVES);
}

static void a_rank_that_is_stopped_is_named(void **state)
{
    (void)state;
    many_times(STOPPED);
}

#ifndef TEST_HOSTS /* there, heartbeats are missing */
/* Also while ranks may be far apart, as during loading: within the usual time, not the long one. */
static void a_rank_that_is_stopped_while_others_are_patient_is_named(void **state)
{
    (void)state;
    const struct scene scene = {
        .fault = STOPPED, .rank = 1, .at = 3, .timeout_ms = 30u * 60 * 1000, .is_loading = true};
    struct ranks ranks;
    ranks_start(&ranks, 2, scene.timeout_ms, call_on, &scene);
    assert_true(act(&scene, &ranks));
    ranks_free(&ranks);
}
#endif

static void a_rank_that_gives_up_is_named_and_why(void **state)
{
    (void)state;
    many_times(GIVES_UP);
}

/* ---- one that never comes, and waiting without a time-out ---- */

#ifndef TEST_HOSTS /* there, an absent rank ends the meeting: hosts_test */
static void a_rank_that_never_joins_is_named(void **state)
{
    (void)state;
    struct collective *c;
    struct quire_error err;
    int fd;
    assert_int_equal(collective_create_shared(2, &fd, &err), QUIRE_OK);
    assert_int_equal(collective_join_shared(fd, 0, 100, &c, &err), QUIRE_OK);
    close(fd);
    assert_int_equal(collective_barrier(c, &err), QUIRE_UNAVAILABLE);
    assert_non_null(strstr(err.text, "rank 1 has not joined"));
    collective_leave(c);
}

#endif

static int wait_long(struct collective *c, const void *argument, struct outcome *mine, struct quire_error *err)
{
    struct collective_stats stats;
    uint32_t x = 7 * (collective_rank(c) == 0);
    const struct outcome *other = mine + 1; /* of rank 1 */
    const uint32_t pause_ms = *(const uint32_t *)argument;
    if (collective_rank(c) == 1)
        atomic_store(&mine->progress, 1);
    while (collective_rank(c) == 0 && atomic_load(&other->progress) == 0)
        usleep(1000);
    if (collective_rank(c) == 0)
        usleep(pause_ms * 1000);
    int status = collective_broadcast_when_ready(c, &x, sizeof x, 0, err);
    collective_get_stats(c, &stats);
    if (x != 7)
        snprintf(mine->problem, sizeof mine->problem, "it got %u", x);
    mine->value = stats.waited_ns[0];
    return status;
}

static void who_waits_for_work_has_no_time_out(void **state)
{
    (void)state;
    uint64_t waited_ns = 0;
    /* Rank 1 may not run for a while before it waits: then the next pause is longer. */
    for (uint32_t pause_ms = 4 * TIMEOUT_MS; waited_ns < TIMEOUT_MS * UINT64_C(1000000); pause_ms *= 2) {
        struct ranks ranks;
        assert_true(pause_ms <= 2 * MAX_TIMEOUT_MS);
        ranks_start(&ranks, 2, TIMEOUT_MS, wait_long, &pause_ms);
        ranks_join(&ranks);
        for (uint32_t r = 0; r < 2; r++) {
            assert_int_equal(ranks.outcomes[r].status, QUIRE_OK);
            assert_string_equal(ranks.outcomes[r].problem, "");
        }
        waited_ns = ranks.outcomes[1].value;
        ranks_free(&ranks);
    }
}

static int die_as_root(struct collective *c, const void *argument, struct outcome *mine, struct quire_error *err)
{
    uint32_t x = 0;
    (void)argument;
    (void)mine;
    if (collective_rank(c) == 0) {
        usleep(50000);
        _exit(1);
    }
    return collective_broadcast_when_ready(c, &x, sizeof x, 0, err);
}

static void but_it_notices_that_the_root_died(void **state)
{
    (void)state;
    struct ranks ranks;
    ranks_start(&ranks, 4, TIMEOUT_MS, die_as_root, NULL);
    ranks_join(&ranks);
    for (uint32_t r = 1; r < 4; r++)
        assert_int_equal(ranks.outcomes[r].status, QUIRE_UNAVAILABLE);
    ranks_free(&ranks);
}

/* Without the bell, ranks would sleep until their own checks, 100 ms apart: 20 calls in a row took 765 ms or more, against 50
 * ms. On a busy machine most calls may take as long for another reason, but not all. Rank 0 makes calls until 20 in a
 * row were quick, or a minute has passed; its progress is then the number of calls that all make. */
static int be_waited_for(struct collective *c, const void *argument, struct outcome *mine, struct quire_error *err)
{
    enum { IN_A_ROW = 20 };
    const uint32_t rank = collective_rank(c);
    atomic_int *n_calls = &mine[-(int)rank].progress;
    uint64_t at[IN_A_ROW] = {0}, shortest = UINT64_MAX;
    const uint64_t began = quire_now_ns();
    int status = QUIRE_OK;
    (void)argument;
    for (int i = 0; status == QUIRE_OK && (atomic_load(n_calls) == 0 || i < atomic_load(n_calls)); i++) {
        const uint64_t now = quire_now_ns(), before = at[i % IN_A_ROW];
        at[i % IN_A_ROW] = now;
        if (before && now - before < shortest)
            shortest = now - before;
        if (rank == 0 && (shortest < UINT64_C(500000000) || now - began > UINT64_C(60000000000)))
            atomic_store(n_calls, i + 1);
        if ((uint32_t)i % collective_size(c) == rank)
            usleep(1000);
        status = collective_barrier(c, err);
    }
    if (rank == 0 && shortest >= UINT64_C(500000000))
        snprintf(mine->problem, sizeof mine->problem, "no %d calls took less than %u ms", IN_A_ROW,
                 (unsigned)(shortest / 1000000));
    return status;
}

static void a_sleeper_is_woken(void **state)
{
    (void)state;
    struct ranks ranks;
    ranks_start(&ranks, 4, PATIENCE_MS, be_waited_for, NULL);
    ranks_join(&ranks);
    for (uint32_t r = 0; r < 4; r++) {
        assert_int_equal(ranks.outcomes[r].status, QUIRE_OK);
        assert_string_equal(ranks.outcomes[r].problem, "");
    }
    ranks_free(&ranks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sleeper_is_woken),
        cmocka_unit_test(a_rank_that_is_killed_is_named),
        cmocka_unit_test(a_rank_that_exits_is_named),
        cmocka_unit_test(a_rank_that_leaves_is_named),
        cmocka_unit_test(a_rank_that_is_stopped_is_named),
#ifndef TEST_HOSTS
        cmocka_unit_test(a_rank_that_is_stopped_while_others_are_patient_is_named),
#endif
        cmocka_unit_test(a_rank_that_gives_up_is_named_and_why),
#ifndef TEST_HOSTS
        cmocka_unit_test(a_rank_that_never_joins_is_named),
#endif
        cmocka_unit_test(who_waits_for_work_has_no_time_out),
        cmocka_unit_test(but_it_notices_that_the_root_died),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
