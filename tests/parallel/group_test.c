/* A group of processes: started, watched and ended. Workers that are killed, exit, hang or lose rank 0 leave nothing
 * behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "parallel/group.h"
#include "ranks.h"
#include "tests/sample.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMEOUT_MS 120000

/* The arguments select a worker's action: PROGRAM KIND RANK, with the rank it applies to. */
static int work(int argc, char **argv)
{
    struct collective *c;
    struct quire_error err;
    if (argc != 3 || group_join(&c, &err) != QUIRE_OK)
        return 90;
    int status = QUIRE_OK, process = getpid(), processes[COLLECTIVE_MAX_RANKS];
    bool is_meant = collective_rank(c) == (uint32_t)atoi(argv[2]);
    if (group_is_worker() || collective_all_gather(c, &process, sizeof process, processes, &err) != QUIRE_OK)
        return 91;
    for (int i = 0; status == QUIRE_OK; i++) {
        uint32_t is_over = 0;
        float x = 1;
        if (is_meant && i == 3 && strcmp(argv[1], "exit") == 0)
            _exit(7);
        if (is_meant && i == 3 && strcmp(argv[1], "unable") == 0)
            _exit(127); /* like one that could not be executed */
        if (is_meant && i == 3 && strcmp(argv[1], "kill") == 0)
            raise(SIGKILL);
        if (is_meant && i == 3 && strcmp(argv[1], "stop") == 0)
            raise(SIGSTOP);
        if (is_meant && i == 3 && strcmp(argv[1], "linger") == 0)
            for (;;)
                pause();
        status = collective_broadcast_when_ready(c, &is_over, sizeof is_over, 0, &err);
        if (status == QUIRE_OK && is_over)
            break;
        if (status == QUIRE_OK)
            status = collective_all_reduce_tree(c, &x, 1, &err);
    }
    collective_leave(c);
    return 0;
}

struct rig {
    struct group *group;
    struct collective *c;
    int processes[COLLECTIVE_MAX_RANKS];
};

static void start(struct rig *rig, uint32_t n, const char *kind, uint32_t rank, uint32_t timeout_ms)
{
    char number[16];
    struct quire_error err;
    int process = getpid();
    snprintf(number, sizeof number, "%u", rank);
    char *argv[] = {(char[]){"group_test"}, (char *)kind, number, NULL};
    const struct group_options options = {.n_ranks = n, .argv = argv, .timeout_ms = timeout_ms};
    assert_int_equal(group_start(&options, &rig->group, &err), QUIRE_OK);
    rig->c = group_collective(rig->group);
    assert_int_equal(collective_all_gather(rig->c, &process, sizeof process, rig->processes, &err), QUIRE_OK);
}

/* One turn of the workers' loop. */
static int turn(struct rig *rig, float *x, struct quire_error *err)
{
    uint32_t is_over = 0;
    int status = collective_broadcast(rig->c, &is_over, sizeof is_over, 0, err);
    return status == QUIRE_OK ? collective_all_reduce_tree(rig->c, x, 1, err) : status;
}

static void nothing_is_left(const struct rig *rig, uint32_t n)
{
    for (uint32_t r = 1; r < n; r++)
        assert_true(kill(rig->processes[r], 0) != 0 && errno == ESRCH);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static void a_group_works_and_ends(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 8; n *= 2) {
        uint32_t n_descriptors = count_descriptors(), is_over = 1;
        struct quire_error err;
        struct rig rig;
        start(&rig, n, "work", 0, TIMEOUT_MS);
        for (int i = 0; i < 5; i++) {
            float x = 2;
            int status = turn(&rig, &x, &err);
            if (status != QUIRE_OK)
                print_error("%u ranks, turn %d: %s\n", n, i, err.text);
            assert_int_equal(status, QUIRE_OK);
            assert_true(x == (float)n + 1);
        }
        assert_int_equal(collective_broadcast(rig.c, &is_over, sizeof is_over, 0, NULL), QUIRE_OK);
        assert_int_equal(group_check(rig.group, NULL), QUIRE_OK);
        group_stop(rig.group);
        nothing_is_left(&rig, n);
        assert_int_equal(count_descriptors(), n_descriptors);
    }
}

static void workers_that_wait_for_work_end_with_the_group(void **state)
{
    (void)state;
    struct rig rig;
    start(&rig, 4, "work", 0, TIMEOUT_MS);
    group_stop(rig.group);
    nothing_is_left(&rig, 4);
}

/* The fault shows in a call of rank 0 and in group_check(); want: how the worker ended. */
static void fail_with(const char *kind, uint32_t n, uint32_t rank, const char *want)
{
    struct quire_error err = {.text = ""};
    struct rig rig;
    char name[32];
    float x = 1;
    snprintf(name, sizeof name, "rank %u ", rank);
    start(&rig, n, kind, rank, TIMEOUT_MS);
    int status = QUIRE_OK;
    for (int i = 0; i < 10 && status == QUIRE_OK; i++)
        status = turn(&rig, &x, &err);
    assert_int_equal(status, QUIRE_UNAVAILABLE);
    assert_non_null(strstr(err.text, name));
    while (group_check(rig.group, &err) == QUIRE_OK)
        usleep(1000);
    if (!strstr(err.text, want) || !strstr(err.text, name))
        print_error("%s: \"%s\"\n", kind, err.text);
    assert_non_null(strstr(err.text, name));
    assert_non_null(strstr(err.text, want));
    group_stop(rig.group);
    nothing_is_left(&rig, n);
}

static void a_worker_that_ends_ends_the_group(void **state)
{
    (void)state;
    uint32_t n_descriptors = count_descriptors();
    struct sample sample = sample_of(5);
    for (uint32_t i = 0; i < 100; i++) {
        const uint32_t n = (const uint32_t[]){2, 4, 8, 2}[i % 4], rank = 1 + i / 4 % (n - 1);
        if (!sample_takes(&sample))
            continue;
        if (i / 2 % 2)
            fail_with("kill", n, rank, "signal 9");
        else
            fail_with("exit", n, rank, "ended with status 7");
    }
    sample_report(&sample, "deaths");
    fail_with("unable", 2, 1, "ended with status 127: this program could not be started again");
    assert_int_equal(count_descriptors(), n_descriptors);
}

/* Returns false if another worker is named, which did not run for the time-out. */
static bool hang(const char *kind, uint32_t timeout_ms)
{
    struct quire_error err = {.text = ""};
    struct rig rig;
    float x = 1;
    start(&rig, 4, kind, 2, TIMEOUT_MS);
    collective_set_timeout(rig.c, timeout_ms);
    int status = QUIRE_OK;
    for (int i = 0; i < 10 && status == QUIRE_OK; i++)
        status = turn(&rig, &x, &err);
    assert_int_equal(status, QUIRE_UNAVAILABLE);
    assert_non_null(strstr(err.text, "did not reach"));
    group_stop(rig.group);
    nothing_is_left(&rig, 4);
    return strstr(err.text, "rank 2 ") != NULL;
}

static void a_worker_that_hangs_is_named_and_killed(void **state)
{
    (void)state;
    static const char *const kinds[] = {"stop", "linger"};
    for (size_t k = 0; k < 2; k++)
        for (uint32_t timeout_ms = 2000; !hang(kinds[k], timeout_ms); timeout_ms *= 2)
            assert_true(timeout_ms < 60000);
}

/* Rank 0 in a separate process that is killed: the kernel kills its workers, and this process reaps them. */
static void workers_do_not_outlive_rank_0(void **state)
{
    (void)state;
    struct rig rig;
    int fds[2];
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    assert_int_equal(pipe(fds), 0);
    pid_t leader = fork();
    if (leader == 0) {
        start(&rig, 4, "linger", 2, TIMEOUT_MS);
        if (write(fds[1], rig.processes, sizeof rig.processes) != (ssize_t)sizeof rig.processes)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(fds[0], rig.processes, sizeof rig.processes), sizeof rig.processes);
    close(fds[0]);
    close(fds[1]);
    kill(leader, SIGKILL);
    assert_int_equal(waitpid(leader, NULL, 0), leader);
    for (uint32_t r = 1; r < 4; r++) {
        int how = 0;
        assert_int_equal(waitpid(rig.processes[r], &how, 0), rig.processes[r]);
        assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    }
    nothing_is_left(&rig, 4);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
}

static void a_wrong_place_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", "x", "3", "3 1", "3 1 5 7", "-3 1 5", "3 1 5x", "99999 1 5", "0 1 5"};
    struct collective *c;
    struct quire_error err;
    assert_int_equal(group_join(&c, &err), QUIRE_NOT_FOUND);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        setenv("QUIRE_GROUP", wrong[i], 1);
        assert_int_equal(group_join(&c, &err), QUIRE_INVALID);
        assert_non_null(strstr(err.text, "QUIRE_GROUP"));
    }
    unsetenv("QUIRE_GROUP");
    struct group *g;
    assert_int_equal(group_start(&(struct group_options){.n_ranks = 9}, &g, &err), QUIRE_INVALID);
}

int main(int argc, char **argv)
{
    if (group_is_worker())
        return work(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_works_and_ends),
        cmocka_unit_test(workers_that_wait_for_work_end_with_the_group),
        cmocka_unit_test(a_worker_that_ends_ends_the_group),
        cmocka_unit_test(a_worker_that_hangs_is_named_and_killed),
        cmocka_unit_test(workers_do_not_outlive_rank_0),
        cmocka_unit_test(a_wrong_place_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
