/* The placement of threads and memory on machines simulated by hwloc's synthetic topologies, and the limits of control
 * groups. */
#include "kernels/host/cpu_quota.h"
#include "kernels/host/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define TWO_NODES "node:2 core:4 pu:2" /* CPUs 0-7 on node 0; 2 c and 2 c + 1 share a core */
#define SMT "core:4 pu:2"
#define PLAIN "core:4 pu:1"

struct plan_case {
    const char *machine;
    uint32_t n_threads;
    const char *cpu_bind;
    const char *text;
    int32_t first, last; /* CPUs of the first and the last thread; -1: the kernel chooses */
};

static const struct plan_case plans[] = {
    /* the kernel cannot choose badly, so it chooses */
    {PLAIN, 0, NULL, "4 threads", -1, -1},
    {PLAIN, 9, "auto", "9 threads", -1, -1},
    /* SMT: one core each, if every core has a thread */
    {SMT, 0, "auto", "4 threads on CPU 0,2,4,6", 0, 6},
    {SMT, 0, "none", "4 threads", -1, -1},
    {SMT, 3, "auto", "3 threads", -1, -1},
    {SMT, 8, "auto", "8 threads", -1, -1},
    {"core:1 pu:2", 0, "auto", "1 thread", -1, -1},
    /* two nodes */
    {TWO_NODES, 0, "auto", "8 threads on CPU 0,2,4,6,8,10,12,14, memory interleaved over NUMA nodes 0-1", 0, 14},
    {TWO_NODES, 0, "none", "8 threads, memory interleaved over NUMA nodes 0-1", -1, -1},
    {TWO_NODES, 2, "auto", "2 threads, memory interleaved over NUMA nodes 0-1", -1, -1},
    {"node:2 core:2 pu:1", 0, "auto", "4 threads on CPU 0-3, memory interleaved over NUMA nodes 0-1", 0, 3},
    /* lists: their order, their nodes */
    {TWO_NODES, 0, "8,10-12", "4 threads on CPU 8,10-12, memory on NUMA node 1", 8, 12},
    {TWO_NODES, 3, "9,0-1", "3 threads on CPU 0-1,9, memory interleaved over NUMA nodes 0-1", 9, 1},
    {PLAIN, 0, "3", "1 thread on CPU 3", 3, 3},
};

static void set_machine(const char *synthetic)
{
    if (synthetic)
        setenv("HWLOC_SYNTHETIC", synthetic, 1);
    else
        unsetenv("HWLOC_SYNTHETIC");
}

static void test_plans(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        const struct plan_case *c = &plans[i];
        struct k_placement *p;
        struct quire_error err;
        set_machine(c->machine);
        if (k_placement_create(c->n_threads, c->cpu_bind, &p, &err) != QUIRE_OK)
            fail_msg("%s, %s: %s", c->machine, c->cpu_bind, err.text);
        assert_string_equal(k_placement_text(p), c->text);
        assert_int_equal(k_placement_cpu(p, 0), c->first);
        assert_int_equal(k_placement_cpu(p, k_placement_n_threads(p) - 1), c->last);
        /* nothing is applied on a simulated machine */
        cpu_set_t before, after;
        static char area[1 << 20];
        assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
        k_placement_pin(p, 0);
        k_placement_memory(p, area, sizeof area);
        assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
        assert_true(CPU_EQUAL(&before, &after));
        k_placement_destroy(p);
    }
    set_machine(NULL);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *cpu_bind;
        uint32_t n_threads;
        const char *says;
    } cases[] = {
        {"", 0, "must be auto, none or CPUs"},
        {"Auto", 0, "got 'Auto'"},
        {"0-", 0, "must be"},
        {"-1", 0, "must be"},
        {"3-1", 0, "must be"},
        {"0,,1", 0, "must be"},
        {"0,", 0, "must be"},
        {"0 1", 0, "must be"},
        {"0x1", 0, "must be"},
        {"0-1-2", 0, "must be"},
        {"18446744073709551616", 0, "must be"},
        {"0-999999", 0, "CPU 4 is not available to this process; available: 0-3"},
        {"999999", 0, "CPU 999999 is not available"},
        {"1,0-2", 0, "CPU 1 is listed twice"},
        {"0-2", 4, "lists 3 CPUs for 4 threads"},
        {"0-2", 2, "lists 3 CPUs for 2 threads"},
        {"none", K_MAX_THREADS + 1, "threads: must be 1 to 512"},
    };
    set_machine(PLAIN);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct k_placement *p;
        struct quire_error err = {.text = ""};
        assert_int_equal(k_placement_create(cases[i].n_threads, cases[i].cpu_bind, &p, &err), QUIRE_INVALID);
        assert_null(p);
        if (!strstr(err.text, cases[i].says))
            fail_msg("'%s': %s", cases[i].cpu_bind, err.text);
    }
    set_machine("core:600 pu:1"); /* more than the maximum number of threads */
    struct k_placement *p;
    struct quire_error err;
    assert_int_equal(k_placement_create(0, "0-599", &p, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "at most 512"));
    assert_int_equal(k_default_threads(), K_MAX_THREADS);
    set_machine(NULL);
}

static void note_cpus(void *context, struct k_piece piece)
{
    cpu_set_t *sets = context;
    if (sched_getaffinity(0, sizeof sets[piece.thread], &sets[piece.thread]) != 0)
        CPU_ZERO(&sets[piece.thread]);
}

static void test_pinning(void **state)
{
    (void)state;
    cpu_set_t before, now;
    struct k_placement *p;
    char list[16];
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &before))
        cpu++;
    snprintf(list, sizeof list, "%d", cpu);
    assert_int_equal(k_placement_create(0, list, &p, NULL), QUIRE_OK);
    assert_int_equal(k_placement_cpu(p, 0), cpu);
    k_placement_pin(p, 0);
    note_cpus(&now, (struct k_piece){0, 1, 0});
    assert_true(CPU_COUNT(&now) == 1 && CPU_ISSET(cpu, &now));
    k_placement_destroy(p);

    /* only CPUs that this thread may use are offered */
    assert_int_equal(k_default_threads(), 1);
    for (cpu = CPU_SETSIZE - 1; cpu > 0 && !CPU_ISSET(cpu, &before); cpu--) {
    }
    if (!CPU_ISSET(cpu, &now)) {
        struct quire_error err;
        snprintf(list, sizeof list, "%d", cpu);
        assert_int_equal(k_placement_create(0, list, &p, &err), QUIRE_INVALID);
    }
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

/* The threads of a backend run on their assigned CPUs from the first step on. */
static void test_backend(void **state)
{
    (void)state;
    cpu_set_t before, now, sets[4];
    uint32_t cpus[4], n_cpus = 0, n;
    char list[64] = "";
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    for (int cpu = CPU_SETSIZE - 1; cpu >= 0 && n_cpus < 4; cpu--) { /* in an unusual order */
        if (!CPU_ISSET(cpu, &before))
            continue;
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%d", n_cpus ? "," : "", cpu);
        cpus[n_cpus++] = (uint32_t)cpu;
    }
    struct k_backend_options options = {.device = "ref", .cpu_bind = list};
    struct k_backend *b;
    const char *why;
    struct quire_error err;
    assert_int_equal(k_backend_threads(&options, &n, &err), QUIRE_OK);
    assert_int_equal(n, n_cpus);
    assert_int_equal(k_backend_open(&options, &b, &why, &err), QUIRE_OK);
    assert_int_equal(b->n_threads, n_cpus);
    assert_non_null(strstr(b->placement, " on CPU "));
    note_cpus(&now, (struct k_piece){0, 1, 0});
    assert_true(CPU_EQUAL(&now, &before)); /* the opening thread need not be the computing one */
    for (int step = 0; step < 2; step++) {
        assert_int_equal(b->ops->step_begin(b, &err), QUIRE_OK);
        k_pool_each(host_of(b)->pool, note_cpus, sets);
        for (uint32_t i = 0; i < n_cpus; i++)
            assert_true(CPU_COUNT(&sets[i]) == 1 && CPU_ISSET(cpus[i], &sets[i]));
        assert_int_equal(b->ops->step_end(b, &err), QUIRE_OK);
    }
    b->ops->close(b);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    options.cpu_bind = "7,";
    assert_int_equal(k_backend_open(&options, &b, &why, &err), QUIRE_INVALID);
    assert_int_equal(k_backend_threads(&options, &n, &err), QUIRE_INVALID);
}

/* ---- control groups -------------------------------------------------------------------------- */

static char root[64];

/* Writes text to root/path and creates its directories. */
static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *c = full + strlen(root) + 1; *c; c++) {
        if (*c == '/') {
            *c = '\0';
            mkdir(full, 0700);
            *c = '/';
        }
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    fclose(file);
}

static void new_root(void)
{
    strcpy(root, "/tmp/quire_quota_XXXXXX");
    assert_non_null(mkdtemp(root));
}

static void drop_root(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", root);
    assert_int_equal(system(command), 0);
}

static void test_quota_v2(void **state)
{
    (void)state;
    new_root();
    assert_int_equal(cpu_quota(root), 0);
    put("proc/self/cgroup", "0::/\n"); /* a container: its group is its root */
    assert_int_equal(cpu_quota(root), 0);
    put("sys/fs/cgroup/cpu.max", "max 100000\n");
    assert_int_equal(cpu_quota(root), 0);
    put("sys/fs/cgroup/cpu.max", "250000 100000\n");
    assert_int_equal(cpu_quota(root), 2);
    put("sys/fs/cgroup/cpu.max", "50000 100000\n");
    assert_int_equal(cpu_quota(root), 1);
    static const char *const odd[] = {"", "x", "5", "-5 100000", "100000 0", "max"};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        put("sys/fs/cgroup/cpu.max", odd[i]);
        assert_int_equal(cpu_quota(root), 0);
    }
    /* the smallest limit of the group and those above */
    put("proc/self/cgroup", "0::/a.slice/b.scope\n");
    put("sys/fs/cgroup/a.slice/cpu.max", "300000 100000\n");
    put("sys/fs/cgroup/a.slice/b.scope/cpu.max", "800000 100000\n");
    assert_int_equal(cpu_quota(root), 3);
    put("sys/fs/cgroup/a.slice/b.scope/cpu.max", "200000 100000\n");
    assert_int_equal(cpu_quota(root), 2);
    drop_root();
}

static void test_quota_v1(void **state)
{
    (void)state;
    new_root();
    put("proc/self/cgroup", "9:cpuset:/x\n4:cpu,cpuacct:/docker/c0\n2:memory:/\n0::/\n");
    assert_int_equal(cpu_quota(root), 0);
    /* the host's path does not exist in the container, whose own group is the mount's root */
    put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "450000\n");
    assert_int_equal(cpu_quota(root), 0);
    put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cpu_quota(root), 4);
    put("sys/fs/cgroup/cpu/docker/c0/cpu.cfs_quota_us", "150000\n");
    put("sys/fs/cgroup/cpu/docker/c0/cpu.cfs_period_us", "50000\n");
    assert_int_equal(cpu_quota(root), 3);
    put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu/docker/c0/cpu.cfs_quota_us", "-1\n");
    assert_int_equal(cpu_quota(root), 0);
    drop_root();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans),   cmocka_unit_test(test_refusals), cmocka_unit_test(test_pinning),
        cmocka_unit_test(test_backend), cmocka_unit_test(test_quota_v2), cmocka_unit_test(test_quota_v1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
