/* Collectives between processes: sums with the bits of the tree, gathered and broadcast data, and calls that do not
 * match. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "parallel/hosts/hosts.h"
#include "ranks.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TIMEOUT_MS 120000

static const uint32_t sizes[] = {1, 2, 4, 8};
static const size_t lengths[] = {0, 1, 7, 4096, 8191, 32768, 32769, 1000000};
#define N_LENGTHS (sizeof lengths / sizeof lengths[0])

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static float of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Element i of a rank's vector: of all magnitudes, so that the order of additions matters, and some special values. */
static float element(uint32_t rank, size_t i)
{
    static const uint32_t special[] = {0x80000000u, 0,           0x00000001u, 0x807fffffu,
                                       0x7f800000u, 0xff800000u, 0x7fc00001u, 0x7f7fffffu};
    uint64_t x = mix((uint64_t)i * 64 + rank + UINT64_C(0x9e3779b97f4a7c15));
    if (i % 5 == 3)
        return of_bits(0x80000000u); /* -0 of every rank is -0 */
    if (i % 7 == 2)
        return of_bits((uint32_t)(x & 0x80ffffffu)); /* around the least normal number */
    if (i % 11 == 4)
        return of_bits(special[x % 8]);
    return of_bits((uint32_t)(x & 0x807fffffu) | (uint32_t)(110 + (x >> 40) % 30) << 23);
}

/* The tree, one addition at a time. */
static float tree(uint32_t first, uint32_t n, size_t i)
{
    if (n == 1)
        return element(first, i);
    volatile float left = tree(first, n / 2, i), right = tree(first + n / 2, n / 2, i);
    volatile float sum = left + right;
    return sum;
}

static bool is_same(float got, float want)
{
    return isnan(want) ? isnan(got) : bits_of(got) == bits_of(want);
}

/* ---- sums ---- */

static int sum(struct collective *c, const void *argument, struct outcome *mine, struct quire_error *err)
{
    uint32_t rank = collective_rank(c), size = collective_size(c);
    int status = QUIRE_OK;
    (void)argument;
    for (size_t k = 0; k < N_LENGTHS && status == QUIRE_OK; k++) {
        size_t n = lengths[k];
        float *x = malloc((n + 1) * sizeof *x);
        for (size_t i = 0; i < n; i++)
            x[i] = element(rank, i);
        x[n] = 12345.0f;
        status = collective_all_reduce_tree(c, x, n, err);
        for (size_t i = 0; i < n && status == QUIRE_OK && !mine->problem[0]; i++) {
            mine->value = mix(mine->value + bits_of(x[i]));
            if (!is_same(x[i], tree(0, size, i)))
                snprintf(mine->problem, sizeof mine->problem, "%zu floats: element %zu is %a, not %a", n, i, x[i],
                         tree(0, size, i));
        }
        if (x[n] != 12345.0f)
            snprintf(mine->problem, sizeof mine->problem, "%zu floats: it wrote behind them", n);
        free(x);
    }
    return status;
}

static void assert_all_went_well(const struct ranks *ranks)
{
    for (uint32_t r = 0; r < ranks->n; r++) {
        if (ranks->outcomes[r].status != QUIRE_OK || ranks->outcomes[r].problem[0])
            print_error("rank %u of %u: %s%s\n", r, ranks->n, ranks->outcomes[r].text, ranks->outcomes[r].problem);
        assert_true(ranks->outcomes[r].is_done);
        assert_int_equal(ranks->outcomes[r].status, QUIRE_OK);
        assert_string_equal(ranks->outcomes[r].problem, "");
        assert_true(ranks->outcomes[r].value == ranks->outcomes[0].value);
    }
}

static void run_well(uint32_t n, rank_fn fn)
{
    struct ranks ranks;
    ranks_start(&ranks, n, TIMEOUT_MS, fn, NULL);
    ranks_join(&ranks);
    assert_all_went_well(&ranks);
    ranks_free(&ranks);
}

static void sums_have_the_bits_of_the_tree_on_every_rank(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        run_well(sizes[s], sum);
}

/* ---- bytes ---- */

static unsigned char byte(uint32_t rank, size_t i)
{
    return (unsigned char)mix(i * 8 + rank + 99);
}

static int gather_and_broadcast(struct collective *c, const void *argument, struct outcome *mine,
                                struct quire_error *err)
{
    uint32_t rank = collective_rank(c), size = collective_size(c);
    int status = QUIRE_OK;
    (void)argument;
    for (size_t k = 0; k < N_LENGTHS && status == QUIRE_OK; k++) {
        size_t n = lengths[k] / 3;
        unsigned char *one = malloc(n + 1), *all = malloc(n * size + 1);
        for (size_t i = 0; i < n; i++)
            one[i] = byte(rank, i);
        status = collective_all_gather(c, one, n, all, err);
        for (size_t i = 0; i < n * size && status == QUIRE_OK; i++)
            if (all[i] != byte((uint32_t)(i / n), i % n))
                snprintf(mine->problem, sizeof mine->problem, "all-gather of %zu: byte %zu", n, i);
        for (uint32_t root = 0; root < size && status == QUIRE_OK; root++) {
            memset(all, 0, n * size);
            status = collective_gather(c, one, n, root, rank == root ? all : NULL, err);
            for (size_t i = 0; rank == root && i < n * size && status == QUIRE_OK; i++)
                if (all[i] != byte((uint32_t)(i / n), i % n))
                    snprintf(mine->problem, sizeof mine->problem, "gather of %zu by %u: byte %zu", n, root, i);
        }
        for (uint32_t root = 0; root < size && status == QUIRE_OK; root++) {
            for (size_t i = 0; i < n; i++)
                one[i] = byte(rank, i);
            /* Either is the same call. */
            status = (k + root + rank) % 2 ? collective_broadcast(c, one, n, root, err)
                                           : collective_broadcast_when_ready(c, one, n, root, err);
            for (size_t i = 0; i < n && status == QUIRE_OK; i++)
                if (one[i] != byte(root, i))
                    snprintf(mine->problem, sizeof mine->problem, "broadcast of %zu by %u: byte %zu", n, root, i);
        }
        free(one);
        free(all);
        if (status == QUIRE_OK && k % 2)
            status = collective_barrier(c, err);
    }
    return status;
}

static void every_rank_gets_what_the_others_have(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        run_well(sizes[s], gather_and_broadcast);
}

/* The last rank counts before a barrier that the others pass after it. */
static atomic_int *counter;

static int count_at_barriers(struct collective *c, const void *argument, struct outcome *mine, struct quire_error *err)
{
    int status = QUIRE_OK;
    (void)argument;
    for (int i = 1; i <= 200 && status == QUIRE_OK; i++) {
        if (collective_rank(c) == collective_size(c) - 1)
            atomic_fetch_add(counter, 1);
        status = collective_barrier(c, err);
        if (atomic_load(counter) != i)
            snprintf(mine->problem, sizeof mine->problem, "barrier %d: the counter is %d", i, atomic_load(counter));
        if (status == QUIRE_OK)
            status = collective_barrier(c, err);
    }
    return status;
}

static void nobody_passes_a_barrier_alone(void **state)
{
    (void)state;
    counter = mmap(NULL, sizeof *counter, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (size_t s = 1; s < sizeof sizes / sizeof sizes[0]; s++) {
        atomic_store(counter, 0);
        run_well(sizes[s], count_at_barriers);
    }
    munmap(counter, sizeof *counter);
}

/* ---- calls that do not match ---- */

static int call_something_else(struct collective *c, const void *argument, struct outcome *mine,
                               struct quire_error *err)
{
    int status = QUIRE_OK, kind = *(const int *)argument;
    float x[64] = {0};
    (void)mine;
    bool is_odd = collective_rank(c) == 1;
    for (int i = 0; i < 3 && status == QUIRE_OK; i++)
        status = collective_all_reduce_tree(c, x, 8, err);
    if (status != QUIRE_OK)
        return status; /* others are a call ahead and have detected it: the message names the call */
    switch (kind) {
    case 0: status = collective_all_reduce_tree(c, x, is_odd ? 7 : 8, err); break;
    case 1: status = is_odd ? collective_barrier(c, err) : collective_all_reduce_tree(c, x, 8, err); break;
    case 2: status = collective_broadcast(c, x, 32, is_odd ? 1 : 0, err); break;
    default: status = is_odd ? collective_broadcast(c, x, 32, 0, err) : collective_all_reduce_tree(c, x, 8, err);
    }
    /* A root may detect it one call later. */
    for (int i = 0; i < 2 && status == QUIRE_OK; i++)
        status = collective_barrier(c, err);
    if (status == QUIRE_OK || collective_barrier(c, NULL) == QUIRE_OK)
        status = QUIRE_OK; /* nothing more after a failure */
    return status;
}

static void ranks_that_call_different_things_are_told_both(void **state)
{
    (void)state;
    static const char *const named[][2] = {{"all-reduce of 28 bytes", "all-reduce of 32 bytes"},
                                           {"(barrier)", "all-reduce of 32 bytes"},
                                           {"broadcast of 32 bytes by rank 0", "broadcast of 32 bytes by rank 1"},
                                           {"broadcast of 32 bytes by rank 0", "all-reduce of 32 bytes"}};
    for (uint32_t n = 2; n <= 4; n *= 2)
        for (int kind = 0; kind < 4; kind++) {
            struct ranks ranks;
            ranks_start(&ranks, n, TIMEOUT_MS, call_something_else, &kind);
            ranks_join(&ranks);
            for (uint32_t r = 0; r < n; r++) {
                assert_int_equal(ranks.outcomes[r].status, QUIRE_INVALID);
                assert_non_null(strstr(ranks.outcomes[r].text, "rank 1"));
                assert_non_null(strstr(ranks.outcomes[r].text, named[kind][0]));
                assert_non_null(strstr(ranks.outcomes[r].text, named[kind][1]));
                assert_non_null(strstr(ranks.outcomes[r].text, "call 4 "));
            }
            ranks_free(&ranks);
        }
}

/* ---- invalid groups ---- */

#ifndef TEST_HOSTS
static void memory_that_is_no_groups_is_refused(void **state)
{
    (void)state;
    struct collective *c, *again;
    struct quire_error err;
    uint64_t version = 77;
    int fd;
    assert_int_equal(collective_create_shared(9, &fd, &err), QUIRE_INVALID);
    assert_int_equal(collective_create_shared(0, &fd, &err), QUIRE_INVALID);
    assert_int_equal(collective_join_shared(-1, 0, 0, &c, &err), QUIRE_INVALID);
    int null = open("/dev/zero", O_RDWR);
    assert_int_equal(collective_join_shared(null, 0, 0, &c, &err), QUIRE_INVALID);
    close(null);
    int plain = memfd_create("plain", MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(plain, 1 << 20), 0);
    assert_int_equal(collective_join_shared(plain, 0, 0, &c, &err), QUIRE_INVALID); /* the file could be truncated */
    assert_int_equal(fcntl(plain, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    assert_int_equal(collective_join_shared(plain, 0, 0, &c, &err), QUIRE_INVALID);
    close(plain);

    assert_int_equal(collective_create_shared(2, &fd, &err), QUIRE_OK);
    assert_int_equal(collective_join_shared(fd, 2, 0, &c, &err), QUIRE_INVALID);
    assert_int_equal(collective_join_shared(fd, 1, 0, &c, &err), QUIRE_OK);
    assert_int_equal(collective_join_shared(fd, 1, 0, &again, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "in use"));
    float x = 0;
    assert_int_equal(collective_broadcast(c, &x, 4, 2, &err), QUIRE_INVALID);
    collective_leave(c);
    /* Every field of the head is checked. */
    for (off_t at = 0; at < 40; at += 4) {
        uint32_t was, spoiled;
        assert_int_equal(pread(fd, &was, 4, at), 4);
        spoiled = was ^ 5;
        assert_int_equal(pwrite(fd, &spoiled, 4, at), 4);
        bool is_checked = collective_join_shared(fd, 0, 0, &c, &err) == QUIRE_INVALID;
        if (!is_checked)
            print_error("byte %d of the head\n", (int)at);
        assert_true(is_checked);
        assert_int_equal(pwrite(fd, &was, 4, at), 4);
    }
    assert_int_equal(pwrite(fd, &version, 4, 8), 4);
    assert_int_equal(collective_join_shared(fd, 0, 0, &c, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "version 77"));
    close(fd);
}

static void a_group_of_one_needs_nobody(void **state)
{
    (void)state;
    struct collective *c;
    struct collective_stats stats;
    float x[3] = {1, -0.0f, 3}, all[3];
    int fd;
    assert_int_equal(collective_create_shared(1, &fd, NULL), QUIRE_OK);
    assert_int_equal(collective_join_shared(fd, 0, 0, &c, NULL), QUIRE_OK);
    close(fd);
    assert_int_equal(collective_all_reduce_tree(c, x, 3, NULL), QUIRE_OK);
    assert_int_equal(collective_all_gather(c, x, sizeof x, all, NULL), QUIRE_OK);
    assert_int_equal(collective_barrier(c, NULL), QUIRE_OK);
    assert_memory_equal(all, ((float[]){1, -0.0f, 3}), sizeof all);
    collective_get_stats(c, &stats);
    assert_int_equal(stats.calls, 3);
    assert_int_equal(stats.bytes, 24);
    collective_leave(c);
}

#endif

#ifdef TEST_HOSTS
/* One of n ranks that mpirun started: the same, over its MPI. */
static int run_as_rank(uint32_t n)
{
    struct position position;
    struct collective *c;
    struct quire_error err = {.text = ""};
    struct outcome mine = {.status = QUIRE_OK};
    const struct rank_position_flags flags = {.transport = TRANSPORT_MPI};
    int status = rank_position_find(&flags, n, &position, &err);
    const struct hosts_options options = {.position = &position, .transport = TRANSPORT_MPI, .timeout_ms = TIMEOUT_MS};
    if (status == QUIRE_OK)
        status = hosts_join(&options, &c, &err);
    if (status != QUIRE_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    status = sum(c, NULL, &mine, &err);
    if (status == QUIRE_OK)
        status = gather_and_broadcast(c, NULL, &mine, &err);
    if (status == QUIRE_OK)
        status = collective_barrier(c, &err);
    collective_leave(c);
    if (status != QUIRE_OK || mine.problem[0])
        fprintf(stderr, "rank %u: %s%s\n", position.rank, err.text, mine.problem);
    return status != QUIRE_OK || mine.problem[0];
}
#endif

int main(void)
{
#ifdef TEST_HOSTS
    const char *size = getenv("OMPI_COMM_WORLD_SIZE") ? getenv("OMPI_COMM_WORLD_SIZE") : getenv("PMI_SIZE");
    if (size)
        return run_as_rank((uint32_t)atoi(size));
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_have_the_bits_of_the_tree_on_every_rank),
        cmocka_unit_test(every_rank_gets_what_the_others_have),
        cmocka_unit_test(nobody_passes_a_barrier_alone),
        cmocka_unit_test(ranks_that_call_different_things_are_told_both),
#ifndef TEST_HOSTS
        cmocka_unit_test(memory_that_is_no_groups_is_refused),
        cmocka_unit_test(a_group_of_one_needs_nobody),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
