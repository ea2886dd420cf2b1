/* What ranks bring together, by ranks that are processes: the bits of the tree, whatever the sizes and however they are cut, eager
 * and recorded; and the end of a group whose rank dies or gives up.
 *
 * kernels_group_test BACKEND [FAULT]: with a fault the kernels are broken (CMakeLists.txt), and it must be found. */
#include "base/clock.h"
#include "kernels/args/group.h"
#include "kernels/args/norm.h"
#include "kernels/backend.h"
#include "kernels/format.h"
#include "kernels/gemm_form.h"
#include "kernels/group.h"
#include "kernels/math/checksum.h"
#include "kernels/open.h"
#include "parallel/collective.h"
#include "tests/isolate_print.h"
#ifdef TEST_EMULATED
#include "tests/simt/control.h"
#endif

#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIMT_EXIT_STATUS 86 /* of tests/simt/control.h: a kernel's fault */
#define TIMEOUT_MS 120000 /* for ranks that come, on an emulator that has a small part of a CPU */
#define DEATH_MS 6000 /* for one that died */
#define WAIT_MS 3000 /* for one that does not come */
#define WAITED "3.0 s"
#define CASE_LIMIT_S 60 /* isolated; 8 contexts of one GPU take turns */

static const char *device;
static struct quire_error err; /* of the last call that failed */
#ifdef TEST_EMULATED
static bool is_apart; /* rank 1's GPU does not reach the others', and ranks have the NCCL stub */
static bool is_across; /* every other rank is on another host, whose memory a GPU must not try to reach */
static bool is_free; /* --invariance off: that stub adds, too */
static void be_apart(uint32_t rank)
{
    if (is_across)
        setenv("QUIRE_SIMT_HOST", rank % 2 ? "b" : "a", 1);
    if (!is_apart)
        return;
    if (rank == 1 && !is_across)
        setenv("QUIRE_SIMT_FAIL", "cudaIpcOpenMemHandle:1:801", 1);
    if (!dlopen(TEST_NCCL, RTLD_NOW)) { /* found from now on by its name */
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
}
#else
static const bool is_across = false, is_free = false;
static void be_apart(uint32_t rank)
{
    (void)rank;
}
#endif

struct rank {
    struct collective *collective;
    struct k_backend *b;
    struct k_group group;
    uint32_t n_ranks, rank;
};

#define CHECK(condition, ...) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
            fprintf(stderr, __VA_ARGS__); \
            fprintf(stderr, "\n"); \
            exit(1); \
        } \
    } while (0)
#define OK(call) \
    do { \
        err.text[0] = 0; \
        int status_ = (call); \
        CHECK(status_ == QUIRE_OK, #call ": %s", err.text); \
    } while (0)

/* ---- a rank ------------------------------------------------------------------------------------ */

static int all_reduce_tree(void *c, float *x, size_t n, struct quire_error *e)
{
    return collective_all_reduce_tree(c, x, n, e);
}
static int all_gather(void *c, const void *mine, size_t n_bytes, void *all, struct quire_error *e)
{
    return collective_all_gather(c, mine, n_bytes, all, e);
}
static int gather(void *c, const void *mine, size_t n_bytes, void *all, struct quire_error *e)
{
    return collective_gather(c, mine, n_bytes, 0, all, e);
}
static int check(void *c, struct quire_error *e)
{
    return collective_check(c, e);
}
static void end(void *c, const char *why)
{
    collective_abort(c, why);
}

static void open_rank(struct rank *r, int fd, uint32_t timeout_ms)
{
    const struct k_format formats[] = {K_FORMAT_F32, K_FORMAT_BF16};
    const struct k_backend_options options = {.device = device,
                                              .n_threads = 1,
                                              .weight_format = formats[is_free],
                                              .form = K_FORM_AUTO,
                                              .not_invariant = is_free};
    const char *why;
    be_apart(r->rank);
    OK(collective_join_shared(fd, r->rank, TIMEOUT_MS, &r->collective, &err));
    OK(k_backend_open(&options, &r->b, &why, &err));
    r->group = (struct k_group){.context = r->collective,
                                .rank = r->rank,
                                .n_ranks = r->n_ranks,
                                .is_across_hosts = is_across,
                                .all_reduce_tree = all_reduce_tree,
                                .all_gather = all_gather,
                                .gather = gather,
                                .check = check,
                                .abort = end,
                                .timeout_ms = timeout_ms};
}

static void join(struct rank *r, int fd, uint32_t timeout_ms)
{
    open_rank(r, fd, timeout_ms);
    OK(r->b->ops->join(r->b, &r->group, &err));
}

static void close_rank(struct rank *r)
{
    r->b->ops->leave(r->b);
    r->b->ops->close(r->b);
    collective_leave(r->collective);
}

static void *new_memory(struct rank *r, const void *from, uint64_t bytes)
{
    void *dev;
    OK(r->b->ops->alloc(r->b, bytes, &dev, &err));
    if (from)
        OK(r->b->ops->copy_in(r->b, dev, from, bytes, &err));
    return dev;
}

static void fetch(struct rank *r, void *host, const void *dev, uint64_t bytes)
{
    uint64_t ticket;
    OK(r->b->ops->fence(r->b, &ticket, &err));
    OK(r->b->ops->wait(r->b, ticket, &err));
    OK(r->b->ops->copy_out(r->b, host, dev, bytes, &err));
}

/* Of many magnitudes, so that another order of additions gives other bits. */
static float value(uint32_t rank, uint32_t seed, uint64_t i)
{
    uint64_t x = (rank + 1) * UINT64_C(0x9E3779B97F4A7C15) + i * UINT64_C(0xBF58476D1CE4E5B9) + seed;
    x = (x ^ (x >> 29)) * UINT64_C(0x94D049BB133111EB);
    x ^= x >> 32;
    return ldexpf((float)(int32_t)x * 0x1p-31f, (int)(x >> 40 & 15) - 8);
}

/* The sum over the ranks: by the tree, or from the last rank to the first as the NCCL stub adds. */
static float tree(uint32_t n_ranks, uint32_t seed, uint64_t i)
{
    float x[8];
    for (uint32_t r = 0; r < n_ranks; r++)
        x[r] = value(r, seed, i);
    if (is_free) {
        float sum = x[n_ranks - 1];
        for (uint32_t r = n_ranks - 1; r-- > 0;)
            sum += x[r];
        return sum;
    }
    if (n_ranks == 2)
        return x[0] + x[1];
    if (n_ranks == 4)
        return (x[0] + x[1]) + (x[2] + x[3]);
    return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}

/* ---- sums -------------------------------------------------------------------------------------- */

struct sum_case {
    uint32_t n_tokens, n_cols;
    bool has_bias;
    uint32_t most_ranks; /* 0: all */
};
static const struct sum_case sum_cases[] = {
    {1, 1, false, 0},    {1, 4, true, 0},      {3, 5, true, 0},      {1, 2048, false, 0},    {1, 2052, true, 4},
    {1, 4096, true, 0},  {2, 896, true, 0},    {7, 33, true, 0},     {16, 132, true, 4},     {5, 1027, false, 4},
#ifdef TEST_WHOLE_AREAS /* by two meetings with 8 ranks, and with 4; more than all blocks' areas hold */
    {17, 4100, true, 0}, {1, 70001, false, 0}, {33, 4096, false, 4}, {1, 1048580, false, 2},
#endif
};
#define N_SUMS (sizeof sum_cases / sizeof sum_cases[0])

struct sum {
    struct k_all_reduce_args args;
    float *host;
    uint64_t n;
};

static void make_sum(struct rank *r, const struct sum_case *c, uint32_t seed, struct sum *s)
{
    s->n = (uint64_t)c->n_tokens * c->n_cols;
    s->host = malloc(s->n * sizeof *s->host);
    CHECK(s->host, "out of memory");
    for (uint64_t i = 0; i < s->n; i++)
        s->host[i] = value(r->rank, seed, i);
    s->args = (struct k_all_reduce_args){.n_tokens = c->n_tokens, .n_cols = c->n_cols};
    s->args.x_dev = new_memory(r, s->host, s->n * sizeof *s->host);
    for (uint64_t i = 0; i < c->n_cols; i++)
        s->host[i] = value(99, seed, i);
    if (c->has_bias)
        s->args.bias_dev = new_memory(r, s->host, c->n_cols * sizeof *s->host);
}

static void check_sum(struct rank *r, const struct sum_case *c, uint32_t seed, struct sum *s)
{
    fetch(r, s->host, s->args.x_dev, s->n * sizeof *s->host);
    for (uint64_t i = 0; i < s->n; i++) {
        float want = tree(r->n_ranks, seed, i);
        if (c->has_bias)
            want = want + value(99, seed, i % c->n_cols);
        CHECK(memcmp(&want, &s->host[i], sizeof want) == 0, "%u ranks, %u x %u, rank %u: element %llu is %a, not %a",
              r->n_ranks, c->n_tokens, c->n_cols, r->rank, (unsigned long long)i, s->host[i], want);
    }
    r->b->ops->free(r->b, s->args.x_dev);
    r->b->ops->free(r->b, (void *)(uintptr_t)s->args.bias_dev);
    free(s->host);
}

static void sum_all(struct rank *r, size_t n_cases)
{
    for (size_t i = 0; i < n_cases; i++) {
        struct sum s;
        if (sum_cases[i].most_ranks && r->n_ranks > sum_cases[i].most_ranks)
            continue;
        make_sum(r, &sum_cases[i], (uint32_t)i, &s);
        OK(r->b->ops->all_reduce(r->b, &s.args, &err));
        check_sum(r, &sum_cases[i], (uint32_t)i, &s);
    }
}

/* Several in one queue, which nobody waits for in between: areas are used again and again. */
static void sum_in_a_row(struct rank *r)
{
    struct sum s[12];
    static const size_t of[12] = {0, 5, 8, 1, 5, 9, 7, 2, 5, 3, 8, 4};
    for (uint32_t i = 0; i < 12; i++)
        make_sum(r, &sum_cases[of[i]], 50 + i, &s[i]);
    for (uint32_t i = 0; i < 12; i++)
        OK(r->b->ops->all_reduce(r->b, &s[i].args, &err));
    for (uint32_t i = 0; i < 12; i++)
        check_sum(r, &sum_cases[of[i]], 50 + i, &s[i]);
}

/* ---- columns ----------------------------------------------------------------------------------- */

struct gather_case {
    uint32_t n_tokens, n_cols, more; /* rank r has n_cols + (r % 3) * more */
    bool to_first;
};
static const struct gather_case gather_cases[] = {
    {1, 1, 0, false},   {1, 8, 4, true},    {3, 5, 2, false},     {2, 64, 0, true},
    {7, 132, 4, false}, {3, 1000, 1, true}, {1, 18992, 16, true}, {64, 96, 4, false},
};
#define N_GATHERS (sizeof gather_cases / sizeof gather_cases[0])

static void gather_one(struct rank *r, const struct gather_case *c, uint32_t seed)
{
    struct k_all_gather_args a = {.n_tokens = c->n_tokens, .to_first = c->to_first};
    uint32_t most = 0;
    for (uint32_t q = 0; q < r->n_ranks; q++) {
        const uint32_t n = c->n_cols + q % 3 * c->more;
        a.first_cols[q + 1] = a.first_cols[q] + n;
        most = n > most ? n : most;
    }
    const uint32_t n_all = a.first_cols[r->n_ranks], n_own = a.first_cols[r->rank + 1] - a.first_cols[r->rank];
    const uint64_t n = (uint64_t)c->n_tokens * n_all;
    float *host = malloc((n + most) * sizeof *host);
    CHECK(host, "out of memory");
    for (uint64_t i = 0; i < (uint64_t)c->n_tokens * n_own; i++)
        host[i] = value(r->rank, seed, i);
    float *own = new_memory(r, host, ((uint64_t)c->n_tokens * n_own + most) * sizeof *host);
    a.own_dev = own;
    a.out_dev = new_memory(r, NULL, n * sizeof *host);
    a.scratch_dev = new_memory(r, NULL, (uint64_t)r->n_ranks * c->n_tokens * most * sizeof *host);
    OK(r->b->ops->all_gather(r->b, &a, &err));
    fetch(r, host, a.out_dev, n * sizeof *host);
    for (uint64_t i = 0; i < n && (!c->to_first || r->rank == 0); i++) {
        uint32_t q = 0;
        const uint64_t t = i / n_all, col = i % n_all;
        while (a.first_cols[q + 1] <= col)
            q++;
        const uint32_t width = a.first_cols[q + 1] - a.first_cols[q];
        const float want = value(q, seed, t * width + col - a.first_cols[q]);
        CHECK(memcmp(&want, &host[i], sizeof want) == 0,
              "%u ranks, rows of %u: element %llu of rank %u's is %a, not %a", r->n_ranks, n_all, (unsigned long long)i,
              q, host[i], want);
    }
    r->b->ops->free(r->b, own);
    r->b->ops->free(r->b, a.out_dev);
    r->b->ops->free(r->b, a.scratch_dev);
    free(host);
}

/* ---- recorded ---------------------------------------------------------------------------------- */

/* A recorded sum of x, run three times on what it left: every rank then has the same, so it is n times as much. */
static void sum_recorded(struct rank *r)
{
    const struct sum_case c = {2, 260, false, 0};
    struct k_graph *graph;
    struct sum s;
    if (!r->b->ops->graph_begin)
        return;
    make_sum(r, &c, 70, &s);
    OK(r->b->ops->graph_begin(r->b, &err));
    OK(r->b->ops->all_reduce(r->b, &s.args, &err));
    OK(r->b->ops->all_reduce(r->b, &s.args, &err));
    OK(r->b->ops->graph_end(r->b, &graph, &err));
    for (int i = 0; i < 3; i++)
        OK(r->b->ops->graph_launch(r->b, graph, &err));
    fetch(r, s.host, s.args.x_dev, s.n * sizeof *s.host);
    for (uint64_t i = 0; i < s.n; i++) {
        float want = tree(r->n_ranks, 70, i);
        for (int k = 0; k < 5; k++)
            want = want * (float)r->n_ranks;
        CHECK(memcmp(&want, &s.host[i], sizeof want) == 0, "recorded: element %llu is %a, not %a",
              (unsigned long long)i, s.host[i], want);
    }
    r->b->ops->graph_destroy(r->b, graph);
    r->b->ops->free(r->b, s.args.x_dev);
    free(s.host);
}

/* ---- checksums --------------------------------------------------------------------------------- */

/* Twice of the same rows, then with one bit that is other. */
static void sum_up(struct rank *r, uint32_t n_tokens, uint32_t n_cols)
{
    const uint64_t n = (uint64_t)n_tokens * n_cols, before = UINT64_C(0xfedcba9876543210);
    uint64_t want = before, got[2];
    float *host = malloc(n * sizeof *host);
    CHECK(host, "out of memory");
    for (uint64_t i = 0; i < n; i++) {
        host[i] = value(r->rank, 90, i);
        want += 2 * k_checksum_term(host[i], (uint32_t)i);
    }
    struct k_checksum_args a = {.x_dev = new_memory(r, host, n * sizeof *host),
                                .sum_dev = new_memory(r, &before, sizeof before),
                                .n_tokens = n_tokens,
                                .n_cols = n_cols};
    OK(r->b->ops->checksum(r->b, &a, &err));
    OK(r->b->ops->checksum(r->b, &a, &err));
    fetch(r, &got[0], a.sum_dev, sizeof got[0]);
    CHECK(got[0] == want, "%u x %u: checksum %llx, not %llx", n_tokens, n_cols, (unsigned long long)got[0],
          (unsigned long long)want);
    ((uint32_t *)(void *)host)[n / 2] ^= 1;
    OK(r->b->ops->copy_in(r->b, (void *)(uintptr_t)a.x_dev, host, n * sizeof *host, &err));
    OK(r->b->ops->copy_in(r->b, a.sum_dev, &before, sizeof before, &err));
    OK(r->b->ops->checksum(r->b, &a, &err));
    OK(r->b->ops->checksum(r->b, &a, &err));
    fetch(r, &got[1], a.sum_dev, sizeof got[1]);
    CHECK(got[1] != got[0], "%u x %u: a bit is other, and the checksum the same", n_tokens, n_cols);
    r->b->ops->free(r->b, (void *)(uintptr_t)a.x_dev);
    r->b->ops->free(r->b, a.sum_dev);
    free(host);
}

/* ---- RMSNorm of a sum -------------------------------------------------------------------------- */

/* x, then out, of n_tokens rows each, against the sum and the norm one after the other. */
static void norm_one(struct rank *r, uint32_t n_tokens, uint32_t n_cols, bool has_bias)
{
    const struct sum_case c = {n_tokens, n_cols, has_bias, 0};
    const uint64_t n = (uint64_t)n_tokens * n_cols, bytes = n * sizeof(float);
    float *x[2], *out[2], *host = malloc(4 * bytes);
    struct sum s[2];
    CHECK(host, "out of memory");
    for (uint64_t i = 0; i < n; i++)
        host[i] = value(40, 80, i);
    float *weight = new_memory(r, host, n_cols * sizeof *host);
    for (int i = 0; i < 2; i++) {
        make_sum(r, &c, 81, &s[i]);
        x[i] = new_memory(r, host, bytes);
        out[i] = new_memory(r, NULL, bytes);
        struct k_rmsnorm_args a = {.x_dev = x[i],
                                   .add_dev = s[i].args.x_dev,
                                   .weight_dev = weight,
                                   .out_dev = out[i],
                                   .n_tokens = n_tokens,
                                   .n_cols = n_cols,
                                   .eps = 1e-6f};
        if (i == 0) {
            a.add_is_part = true;
            a.add_bias_dev = s[i].args.bias_dev;
        } else {
            OK(r->b->ops->all_reduce(r->b, &s[i].args, &err));
        }
        OK(r->b->ops->rmsnorm(r->b, &a, &err));
    }
    for (int i = 0; i < 2; i++) {
        fetch(r, host + i * 2 * n, x[i], bytes);
        fetch(r, host + i * 2 * n + n, out[i], bytes);
        r->b->ops->free(r->b, x[i]);
        r->b->ops->free(r->b, out[i]);
        r->b->ops->free(r->b, s[i].args.x_dev);
        r->b->ops->free(r->b, (void *)(uintptr_t)s[i].args.bias_dev);
        free(s[i].host);
    }
    for (uint64_t i = 0; i < 2 * n; i++)
        CHECK(memcmp(&host[i], &host[2 * n + i], sizeof *host) == 0 && isfinite(host[i]),
              "%u ranks, %u x %u: element %llu of the norm is %a, not %a", r->n_ranks, n_tokens, n_cols,
              (unsigned long long)i, host[i], host[2 * n + i]);
    r->b->ops->free(r->b, weight);
    free(host);
}

/* ---- what ranks do ------------------------------------------------------------------------------ */

static void compute(struct rank *r, int fd)
{
    join(r, fd, TIMEOUT_MS);
    sum_all(r, N_SUMS);
    sum_in_a_row(r);
    for (size_t i = 0; i < N_GATHERS; i++)
        gather_one(r, &gather_cases[i], 20 + (uint32_t)i);
    sum_recorded(r);
    sum_up(r, 1, 1);
    sum_up(r, 3, 897);
    norm_one(r, 1, 896, true);
    norm_one(r, 3, 2048, false);
    norm_one(r, 70, 64, true);
    norm_one(r, 2, 2051, true);
    close_rank(r);
}

/* A few rounds of kernels that are broken. */
static void compute_little(struct rank *r, int fd)
{
    struct sum s[6];
    join(r, fd, TIMEOUT_MS);
    for (uint32_t i = 0; i < 6; i++)
        make_sum(r, &sum_cases[i % 2 ? 5 : 8], i, &s[i]);
    for (uint32_t i = 0; i < 6; i++) {
        uint64_t ticket;
        if (r->b->ops->all_reduce(r->b, &s[i].args, &err) != QUIRE_OK ||
            r->b->ops->fence(r->b, &ticket, &err) != QUIRE_OK || r->b->ops->wait(r->b, ticket, &err) != QUIRE_OK)
            break;
    }
    for (uint32_t i = 0; i < 6; i++) {
        r->b->ops->free(r->b, s[i].args.x_dev);
        r->b->ops->free(r->b, (void *)(uintptr_t)s[i].args.bias_dev);
        free(s[i].host);
    }
    close_rank(r);
}

/* All ranks have the sum before one of them may fail: a rank that still waits for it hears of the failure too early. */
static void sum_together(struct rank *r, struct sum *s)
{
    make_sum(r, &sum_cases[5], 1, s);
    OK(r->b->ops->all_reduce(r->b, &s->args, &err));
    check_sum(r, &sum_cases[5], 1, s);
    OK(collective_barrier(r->collective, &err));
}

/* The last rank is gone after the first sum: the others are told, and who it was. */
static void lose_one(struct rank *r, int fd, bool is_told)
{
    struct sum s;
    uint64_t ticket;
    const uint64_t began = quire_now_ms();
    join(r, fd, is_told ? TIMEOUT_MS : DEATH_MS);
    sum_together(r, &s);
    if (r->rank + 1 == r->n_ranks) {
        if (!is_told)
            raise(SIGKILL);
        collective_abort(r->collective, "it has had enough");
        close_rank(r);
        return;
    }
    make_sum(r, &sum_cases[5], 1, &s);
    int status = r->b->ops->all_reduce(r->b, &s.args, &err);
    for (int i = 0; i < 20 && status == QUIRE_OK; i++) /* what is queued behind runs through */
        status = r->b->ops->all_reduce(r->b, &s.args, &err);
    if (status == QUIRE_OK)
        status = r->b->ops->fence(r->b, &ticket, &err);
    if (status == QUIRE_OK)
        status = r->b->ops->wait(r->b, ticket, &err);
    CHECK(status == QUIRE_UNAVAILABLE, "status %d", status);
    CHECK(strstr(err.text, is_told ? "had enough" : "rank "), "\"%s\"", err.text);
    CHECK(quire_now_ms() - began < TIMEOUT_MS / 2, "told after %llu ms", (unsigned long long)(quire_now_ms() - began));
    r->b->ops->free(r->b, s.args.x_dev);
    r->b->ops->free(r->b, (void *)(uintptr_t)s.args.bias_dev);
    free(s.host);
    close_rank(r);
}

#ifdef TEST_EMULATED
/* One GPU does not reach the others': all ranks hear whose. */
static void stay_apart(struct rank *r, int fd)
{
    if (r->rank == 1)
        setenv("QUIRE_SIMT_FAIL", "cudaIpcOpenMemHandle:1:801", 1);
    open_rank(r, fd, TIMEOUT_MS);
    const int status = r->b->ops->join(r->b, &r->group, &err);
    CHECK(status == QUIRE_UNSUPPORTED, "status %d", status);
    CHECK(strstr(err.text, "rank 1: GPU 0 does not reach the memory of rank 0's: operation not supported"), "\"%s\"",
          err.text);
    CHECK(strstr(err.text, "; rank 0: libnccl.so.2 is not there"), "\"%s\"", err.text);
    close_rank(r);
}

static void stay_on_hosts(struct rank *r, int fd)
{
    open_rank(r, fd, TIMEOUT_MS);
    const int status = r->b->ops->join(r->b, &r->group, &err);
    CHECK(status == QUIRE_UNSUPPORTED, "status %d", status);
    CHECK(strstr(err.text, "GPUs of several hosts do not reach each other's memory; rank 0: libnccl.so.2 is not there"),
          "\"%s\"", err.text);
    close_rank(r);
}

/* With --invariance off NCCL adds, whatever the order; bias, columns and the norm of a sum are ours. */
static void compute_free(struct rank *r, int fd)
{
    join(r, fd, TIMEOUT_MS);
    CHECK(strstr(r->b->placement, "its ranks by NCCL 2.27.3, sums too"), "\"%s\"", r->b->placement);
    sum_all(r, 6);
    gather_one(r, &gather_cases[4], 20);
    norm_one(r, 2, 2051, true);
    close_rank(r);
}

/* With the NCCL stub, which `name` has do what it should not on rank `rank`: all hear of it. */
static void refuse(struct rank *r, int fd, uint32_t rank, const char *name, const char *value, int wanted,
                   const char *text)
{
    if (!r->b)
        open_rank(r, fd, TIMEOUT_MS);
    if (r->rank == rank && name)
        setenv(name, value, 1);
    else if (r->rank == rank)
        simt_fail_call(value, 1, (cudaError_t)2);
    const int status = r->b->ops->join(r->b, &r->group, &err);
    CHECK(status == wanted, "status %d", status);
    CHECK(strstr(err.text, text) && strstr(err.text, " not reach "), "\"%s\"", err.text);
    close_rank(r);
}
static void refuse_old(struct rank *r, int fd)
{
    refuse(r, fd, 2, "SIMT_NCCL_VERSION", "20803", QUIRE_UNSUPPORTED,
           "rank 2: libnccl.so.2 is version 2.8.3, and one of 2.14 to 2.99 is needed");
}
static void refuse_other(struct rank *r, int fd)
{
    refuse(r, fd, 3, "SIMT_NCCL_VERSION", "22907", QUIRE_UNSUPPORTED, "rank 0 has NCCL 2.27.3, and rank 3 2.29.7");
}
static void refuse_id(struct rank *r, int fd)
{
    refuse(r, fd, 0, NULL, "ncclGetUniqueId", QUIRE_UNAVAILABLE,
           "rank 0: NCCL 2.27.3: ncclGetUniqueId: unhandled system error");
}
static void refuse_start(struct rank *r, int fd)
{
    refuse(r, fd, 1, NULL, "ncclCommInitRank", QUIRE_UNAVAILABLE,
           "rank 1: NCCL 2.27.3: ncclCommInitRank: unhandled system error");
}
static void hang_at_start(struct rank *r, int fd)
{
    open_rank(r, fd, 100);
    refuse(r, fd, 3, "SIMT_NCCL_HANGS", "", QUIRE_UNAVAILABLE, "NCCL has not started within 3 s: ");
}
static void die_at_start(struct rank *r, int fd)
{
    refuse(r, fd, 3, "SIMT_NCCL_DIES", "", QUIRE_UNAVAILABLE, "rank 3");
}

/* The last rank's NCCL fails, or the last rank does not come: the others' sums end with it. `wanted` is what they hear. */
static void lose_nccl(struct rank *r, int fd, const char *call, const char *wanted)
{
    struct sum s;
    const uint64_t began = quire_now_ms();
    const bool is_last = r->rank + 1 == r->n_ranks;
    uint64_t ticket;
    join(r, fd, call ? TIMEOUT_MS : WAIT_MS);
    CHECK(!r->b->ops->graph_begin && strstr(r->b->placement, "its ranks by NCCL 2.27.3"), "\"%s\"", r->b->placement);
    sum_together(r, &s);
    make_sum(r, &sum_cases[5], 1, &s);
    if (is_last && call && strcmp(call, "ncclCommGetAsyncError") == 0)
        setenv("SIMT_NCCL_ASYNC", "2", 1);
    else if (is_last && call)
        simt_fail_call(call, 1, (cudaError_t)2);
    while (is_last && !call && collective_check(r->collective, &err) == QUIRE_OK)
        usleep(1000);
    int status = r->b->ops->all_reduce(r->b, &s.args, &err);
    /* A rank's watcher finds the error when it runs, however many sums were computed before. */
    while (status == QUIRE_OK && quire_now_ms() - began < TIMEOUT_MS / 2) {
        if (r->b->ops->fence(r->b, &ticket, &err) == QUIRE_OK)
            status = r->b->ops->wait(r->b, ticket, &err);
        usleep(1000);
        if (status == QUIRE_OK)
            status = r->b->ops->all_reduce(r->b, &s.args, &err);
    }
    CHECK(status == QUIRE_UNAVAILABLE, "status %d", status);
    CHECK(strstr(err.text, wanted), "\"%s\"", err.text);
    CHECK(quire_now_ms() - began < TIMEOUT_MS / 2, "told after %llu ms", (unsigned long long)(quire_now_ms() - began));
    r->b->ops->free(r->b, s.args.x_dev);
    r->b->ops->free(r->b, (void *)(uintptr_t)s.args.bias_dev);
    free(s.host);
    close_rank(r);
}
static void lose_by_error(struct rank *r, int fd)
{
    lose_nccl(r, fd, "ncclAllGather", "NCCL 2.27.3: ncclAllGather: unhandled system error");
}
static void lose_by_async_error(struct rank *r, int fd)
{
    lose_nccl(r, fd, "ncclCommGetAsyncError", "NCCL 2.27.3: what it carries: unhandled system error");
}
static void lose_by_waiting(struct rank *r, int fd)
{
    lose_nccl(r, fd, NULL,
              r->n_ranks == 2 ? "rank 0's GPU waits for rank 1's, through NCCL, for " WAITED
                              : "'s GPU waits for another's, through NCCL, for " WAITED);
}
#endif

static void lose_one_by_death(struct rank *r, int fd)
{
    lose_one(r, fd, false);
}
static void lose_one_by_word(struct rank *r, int fd)
{
    lose_one(r, fd, true);
}

/* ---- processes --------------------------------------------------------------------------------- */

#define MOST_TEXT (1u << 16)

/* Runs n ranks; their exit statuses, and what they said. */
static void run(uint32_t n, void (*fn)(struct rank *r, int fd), int statuses[8], char text[MOST_TEXT])
{
    int fd, pipes[2];
    pid_t children[8];
    size_t at = 0;
    OK(collective_create_shared(n, &fd, &err));
    CHECK(pipe(pipes) == 0, "pipe");
    for (uint32_t r = 0; r < n; r++) {
        children[r] = fork();
        CHECK(children[r] >= 0, "fork");
        if (children[r] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            dup2(pipes[1], STDERR_FILENO);
            close(pipes[0]);
            close(pipes[1]);
            struct rank rank = {.rank = r, .n_ranks = n};
            fn(&rank, fd);
            exit(0);
        }
    }
    close(fd);
    close(pipes[1]);
    for (ssize_t k; (k = read(pipes[0], text + at, MOST_TEXT - 1 - at)) > 0;)
        at += (size_t)k;
    text[at] = 0;
    close(pipes[0]);
    for (uint32_t r = 0; r < n; r++) {
        int how;
        CHECK(waitpid(children[r], &how, 0) == children[r], "waitpid");
        statuses[r] = WIFSIGNALED(how) ? -WTERMSIG(how) : WEXITSTATUS(how);
    }
}

static void all_end_well(uint32_t n, void (*fn)(struct rank *r, int fd), int last_status, const char *what)
{
    static char text[MOST_TEXT];
    int statuses[8];
    run(n, fn, statuses, text);
    for (uint32_t r = 0; r < n; r++)
        if (statuses[r] != (r + 1 == n ? last_status : 0)) {
            fprintf(stderr, "%s: rank %u of %u ended with %d\n%s", what, r, n, statuses[r], text);
            exit(1);
        }
    printf("%u ranks: %s\n", n, what);
    fflush(stdout);
}

static int find_fault(const char *kind)
{
    static char text[MOST_TEXT];
    int statuses[8];
    bool is_found = false;
    run(2, compute_little, statuses, text);
    for (uint32_t r = 0; r < 2; r++)
        is_found |= statuses[r] == SIMT_EXIT_STATUS;
    is_found &= strstr(text, kind) != NULL;
    printf("%s%s\n", text, is_found ? "found" : "NOT FOUND");
    return is_found ? 0 : 1;
}

struct group_case {
    uint32_t n_ranks;
    void (*fn)(struct rank *r, int fd);
    int last_status;
    const char *what;
};

/* On a GPU every rank is a process with a context on it: few ranks first, and each case in a process of its own where
 * QUIRE_ISOLATE is set, so that one that hangs stops no other. */
static int run_cases(void)
{
    static const struct group_case cases[] = {
        {2, compute, 0, "the bits of the tree"},
        {4, compute, 0, "the bits of the tree"},
        {8, compute, 0, "the bits of the tree"},
        {2, lose_one_by_word, 0, "a rank that gives up ends the others"},
        {4, lose_one_by_death, -SIGKILL, "a rank that dies ends the others"},
    };
    const size_t n = strcmp(device, "cuda") == 0 ? sizeof cases / sizeof cases[0] : 3;
    const struct isolate_range range = isolate_range(n);
    const struct isolate_job job = {.n = n, .limit_s = CASE_LIMIT_S, .one_each = true};
    if (!range.is_child && getenv("QUIRE_ISOLATE"))
        return isolate_run_printing(job, false);
    for (size_t i = range.first; i < range.end; i++) {
        char name[96];
        snprintf(name, sizeof name, "%u ranks: %s", cases[i].n_ranks, cases[i].what);
        isolate_enter(i, name);
        all_end_well(cases[i].n_ranks, cases[i].fn, cases[i].last_status, cases[i].what);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    device = argv[1];
    if (argc > 2)
        return find_fault(argv[2]);
    int status = run_cases();
#ifdef TEST_EMULATED
    if (status == 0 && strcmp(device, "cuda") == 0) {
        all_end_well(4, stay_apart, 0, "GPUs that do not reach each other are named");
        is_across = true;
        all_end_well(4, stay_on_hosts, 0, "GPUs of several hosts need NCCL");
        is_apart = true;
        all_end_well(4, compute, 0, "the bits of the tree, on several hosts by the NCCL stub");
        all_end_well(4, lose_one_by_death, -SIGKILL, "on several hosts, a rank that dies ends the others");
        is_across = false;
        for (uint32_t n = 2; n <= 8; n *= 2)
            all_end_well(n, compute, 0, "the bits of the tree, by the NCCL stub");
        all_end_well(4, lose_one_by_death, -SIGKILL, "by the NCCL stub, a rank that dies ends the others");
        all_end_well(2, lose_one_by_word, 0, "by the NCCL stub, a rank that gives up ends the others");
        for (uint32_t n = 2; n <= 4; n *= 2)
            all_end_well(n, lose_by_waiting, 0, "by the NCCL stub, a rank that does not come ends the others");
        all_end_well(4, lose_by_error, 0, "an error of the NCCL stub ends all");
        all_end_well(4, lose_by_async_error, 0, "an error of the NCCL stub that comes later ends all");
        all_end_well(4, refuse_old, 0, "an old NCCL is named");
        all_end_well(4, refuse_other, 0, "two versions of NCCL are named");
        all_end_well(4, refuse_id, 0, "an NCCL that does not start is named");
        all_end_well(4, refuse_start, 0, "an NCCL that does not start on one rank is named");
        all_end_well(4, hang_at_start, 0, "an NCCL that hangs at its start is named");
        all_end_well(4, die_at_start, -SIGKILL, "a rank that dies while NCCL starts ends the others");
        is_free = true;
        all_end_well(4, compute_free, 0, "what the NCCL stub adds up");
    }
#endif
    return status;
}
