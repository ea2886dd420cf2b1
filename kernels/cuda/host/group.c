/* Ranks on GPUs. Each rank has memory that the others map (CUDA's handles between processes), and kernels exchange data
 * there (peers.cuh).
 *
 * A kernel that waits for a peer ends when its time is up, or earlier when the host sets a word in host memory: a
 * thread checks every LOOK_MS whether the group has ended, and writes the word. That thread makes no CUDA calls. The
 * queued work then runs through without effect, and the wait for it returns the reason.
 *
 * If a GPU cannot access a peer's memory, as across hosts, NCCL transfers the data (nccl.h), through the memory that
 * would be this rank's areas, and fold.cu adds it. NCCL's kernels know neither a time-out nor a word of the host. The
 * watcher therefore reads fold.cu's two words to measure how long a kernel waits, and aborts NCCL. Nothing is recorded
 * in this mode, because a graph outlives what was aborted. With --invariance off NCCL also adds; fold.cu then reads
 * sums instead of parts.
 */
#include "kernels/cuda/host/group.h"
#include "kernels/cuda/host/memory.h"
#include "kernels/cuda/host/nccl.h"
#include "kernels/cuda/host/operations.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/plan/plan.h"
#include "base/clock.h"
#include "kernels/check.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOK_MS 50
/* From this size on, each of 4 or 8 ranks that NCCL connects adds a part of the vector and receives the others' sums in
 * a second call. With 4 ranks that saves half of the bytes. Assumes 12 GB/s and 20 µs per call. */
#define NCCL_TWO_SHOT_BYTES (UINT64_C(256) << 10)

struct cuda_group {
    struct k_group group;
    struct cuda_peers peers; /* memory of ranks; NULL if it is not mapped */
    struct nccl *nccl; /* NULL if kernels access the peers' memory */
    uint32_t turn; /* number of NCCL calls so far */
    uint32_t seen; /* for the watcher: the last call that it saw begin, and the time */
    uint64_t seen_ms;
    pthread_t watcher;
    bool has_watcher;
    sem_t stop;
};

/* A rank's message to the others: the handle of its memory, or the reason for its failure. */
struct greeting {
    int32_t status;
    char text[QUIRE_ERROR_BYTES];
    cudaIpcMemHandle_t memory;
    char version[32]; /* NCCL's */
    struct nccl_id id; /* rank 0's */
};

/* ---- the watcher ------------------------------------------------------------------------------- */

static void control_store(struct cuda_group *g, int word, uint32_t value)
{
    atomic_store((_Atomic uint32_t *)(void *)&g->peers.control[word], value);
}

static uint32_t control_load(const struct cuda_group *g, int word)
{
    return atomic_load((_Atomic uint32_t *)(void *)&g->peers.control[word]);
}

/* Ends the group if NCCL has failed or waits too long. */
static void look_at_nccl(struct cuda_group *g)
{
    struct quire_error error;
    const uint32_t arrived = control_load(g, CUDA_CONTROL_ARRIVED);
    const uint64_t now = quire_now_ms();
    if (nccl_look(g->nccl, &error) != QUIRE_OK)
        g->group.abort(g->group.context, error.text);
    if (arrived == control_load(g, CUDA_CONTROL_LEFT) || arrived != g->seen) {
        g->seen = arrived;
        g->seen_ms = now;
    } else if (now - g->seen_ms > g->group.timeout_ms) {
        char whom[16] = "another"; /* with several peers, the late one is unknown */
        if (g->group.n_ranks == 2)
            snprintf(whom, sizeof whom, "rank %u", g->group.first + 1 - g->group.rank);
        snprintf(error.text, sizeof error.text, "rank %u's GPU waits for %s's, through NCCL, for %.1f s",
                 g->group.first + g->group.rank, whom, g->group.timeout_ms / 1e3);
        g->group.abort(g->group.context, error.text);
    }
}

static void *watch(void *group)
{
    struct cuda_group *g = group;
    struct quire_error ignored;
    for (;;) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_MS * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (sem_timedwait(&g->stop, &until) == 0)
            return NULL;
        if (g->nccl)
            look_at_nccl(g);
        if (g->group.check(g->group.context, &ignored) == QUIRE_OK)
            continue;
        control_store(g, CUDA_CONTROL_ABORT, 1);
        if (g->nccl) {
            control_store(g, CUDA_CONTROL_OVER, 1); /* before waiting kernels are released, because fold.cu reads it */
            nccl_abort(g->nccl);
        }
    }
}

static int start_watcher(struct cuda_group *g, struct quire_error *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the caller's threads */
    int why = pthread_create(&g->watcher, NULL, watch, g);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    g->has_watcher = why == 0;
    return why == 0 ? QUIRE_OK : quire_fail(err, QUIRE_IO, "cannot start a thread: %s", strerror(why));
}

/* ---- joining ----------------------------------------------------------------------------------- */

/* Allocates this rank's memory, zeroes its head before other ranks map it, and allocates the words shared with the
 * host. */
static int alloc_own(struct k_backend *b, struct cuda_group *g, struct quire_error *err)
{
    struct cuda_backend *c = cuda_of(b);
    void *own, *control;
    int status = cuda_alloc_host(b, CUDA_CONTROL_WORDS * sizeof *g->peers.control, &control, err);
    if (status != QUIRE_OK)
        return status;
    memset(control, 0, CUDA_CONTROL_WORDS * sizeof *g->peers.control);
    g->peers.control = control;
    status = cuda_alloc(b, CUDA_PEER_BYTES, &own, err);
    if (status != QUIRE_OK)
        return status;
    g->peers.own = g->peers.memory[g->group.rank] = own;
    status = cuda_check(b, cudaMemsetAsync(own, 0, CUDA_PEER_HEAD_BYTES, c->stream), "clearing flags", err);
    if (status == QUIRE_OK)
        status = cuda_check(b, cudaStreamSynchronize(c->stream), "clearing flags", err);
    return status;
}

static int lend_own(struct k_backend *b, const struct cuda_group *g, struct greeting *mine, struct quire_error *err)
{
    cudaError_t error = cudaIpcGetMemHandle(&mine->memory, g->peers.own);
    if (error == cudaSuccess)
        return QUIRE_OK;
    cudaGetLastError(); /* refused, and not the next caller's error */
    return quire_fail(err, QUIRE_UNSUPPORTED, "GPU %d cannot share its memory with other processes: %s",
                      cuda_of(b)->device, cudaGetErrorString(error));
}

static int map_peers(struct k_backend *b, struct cuda_group *g, const struct greeting *all, struct quire_error *err)
{
    for (uint32_t r = 0; r < g->group.n_ranks; r++) {
        void *memory;
        if (r == g->group.rank)
            continue;
        cudaError_t error = cudaIpcOpenMemHandle(&memory, all[r].memory, cudaIpcMemLazyEnablePeerAccess);
        if (error != cudaSuccess) {
            cudaGetLastError();
            return quire_fail(err, QUIRE_UNSUPPORTED, "GPU %d does not reach the memory of rank %u's: %s",
                              cuda_of(b)->device, g->group.first + r, cudaGetErrorString(error));
        }
        g->peers.memory[r] = memory;
    }
    return QUIRE_OK;
}

/* Exchanges the statuses. If one rank failed, all ranks return its error. */
static int agree(struct cuda_group *g, int status, struct greeting *mine, struct greeting *all, struct quire_error *err)
{
    mine->status = status;
    if (status != QUIRE_OK)
        snprintf(mine->text, sizeof mine->text, "%s", err->text);
    status = g->group.all_gather(g->group.context, mine, sizeof *mine, all, err);
    if (status != QUIRE_OK)
        return status;
    const struct greeting *worst = NULL; /* an unsupported path may have an alternative, so other errors come first */
    for (uint32_t r = 0; r < g->group.n_ranks; r++)
        if (all[r].status != QUIRE_OK &&
            (!worst || (worst->status == QUIRE_UNSUPPORTED && all[r].status != worst->status)))
            worst = &all[r];
    return worst ? quire_fail(err, worst->status, "rank %u: %.*s", g->group.first + (unsigned)(worst - all),
                              (int)sizeof worst->text - 16, worst->text)
                 : QUIRE_OK;
}

static void unmap_peers(struct cuda_group *g)
{
    for (uint32_t r = 0; r < g->group.n_ranks; r++)
        if (g->peers.memory[r] && g->peers.memory[r] != g->peers.own) {
            cudaIpcCloseMemHandle(g->peers.memory[r]);
            g->peers.memory[r] = NULL;
        }
}

static int open_nccl(struct cuda_group *g, struct greeting *mine, struct quire_error *err)
{
    int status = nccl_open(&g->nccl, err);
    if (status == QUIRE_OK) {
        snprintf(mine->version, sizeof mine->version, "%s", nccl_version(g->nccl));
        status = g->group.rank == 0 ? nccl_make_id(g->nccl, &mine->id, err) : QUIRE_OK;
    }
    return status;
}

/* Returns whether --invariance off is set, which also loads cuBLASLt. */
static bool adds_by_nccl(struct k_backend *b)
{
    return cuda_of(b)->lt != NULL;
}

/* The alternative path of all ranks. *err holds the reason against the direct path. */
static int meet_through_nccl(struct k_backend *b, struct cuda_group *g, struct greeting *mine, struct greeting *all,
                             struct quire_error *err)
{
    struct cuda_backend *c = cuda_of(b);
    const struct quire_error why = *err;
    unmap_peers(g);
    int status = agree(g, open_nccl(g, mine, err), mine, all, err);
    for (uint32_t r = 1; r < g->group.n_ranks && status == QUIRE_OK; r++)
        if (strcmp(all[r].version, all[0].version) != 0)
            status = quire_fail(err, QUIRE_UNSUPPORTED, "rank %u has NCCL %.31s, and rank %u %.31s", g->group.first,
                                all[0].version, g->group.first + r, all[r].version);
    if (status == QUIRE_OK)
        status = agree(g, nccl_start(g->nccl, c->device, &g->group, &all[0].id, err), mine, all, err);
    if (status != QUIRE_OK) {
        const struct quire_error then = *err;
        return quire_fail(err, status, "%.140s; %.140s", why.text, then.text);
    }
    c->base.ops = &cuda_ops_without_graphs;
    const size_t at = strlen(c->placement);
    snprintf(c->placement + at, sizeof c->placement - at, ", its ranks by NCCL %s%s", nccl_version(g->nccl),
             adds_by_nccl(b) ? ", sums too" : "");
    return QUIRE_OK;
}

static int meet(struct k_backend *b, struct cuda_group *g, struct greeting *mine, struct greeting *all,
                struct quire_error *err)
{
    const bool is_across_hosts = g->group.is_across_hosts;
    int status = alloc_own(b, g, err);
    if (status == QUIRE_OK && !is_across_hosts)
        status = lend_own(b, g, mine, err);
    status = agree(g, status, mine, all, err);
    if (status == QUIRE_OK && is_across_hosts)
        status = quire_fail(err, QUIRE_UNSUPPORTED, "GPUs of several hosts do not reach each other's memory");
    else if (status == QUIRE_OK)
        status = agree(g, map_peers(b, g, all, err), mine, all, err);
    return status == QUIRE_UNSUPPORTED ? meet_through_nccl(b, g, mine, all, err) : status;
}

int cuda_join(struct k_backend *b, const struct k_group *group, struct quire_error *err)
{
    struct cuda_backend *c = cuda_of(b);
    int status = cuda_eager(b, "join", err);
    if (status == QUIRE_OK)
        status = k_check_group("join", group, err);
    if (status != QUIRE_OK)
        return status;
    struct cuda_group *g = calloc(1, sizeof *g);
    struct greeting *all = calloc(group->n_ranks + 1, sizeof *all);
    if (!g || !all) {
        free(g);
        free(all);
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    g->group = *group;
    g->peers.rank = group->rank;
    g->peers.n_ranks = group->n_ranks;
    g->peers.timeout_ns = group->timeout_ms * UINT64_C(1000000);
    sem_init(&g->stop, 0, 0);
    c->group = g;
    status = meet(b, g, &all[group->n_ranks], all, err);
    free(all);
    return status == QUIRE_OK ? start_watcher(g, err) : status;
}

/* The driver keeps memory that a peer still maps until the peer unmaps it. */
void cuda_leave(struct k_backend *b)
{
    struct cuda_backend *c = cuda_of(b);
    struct cuda_group *g = c->group;
    if (!g)
        return;
    if (g->has_watcher) {
        sem_post(&g->stop);
        pthread_join(g->watcher, NULL);
    }
    if (g->peers.control)
        control_store(g, CUDA_CONTROL_ABORT, 1); /* queued kernels wait for no peer */
    if (g->nccl && control_load(g, CUDA_CONTROL_LEFT) != g->turn)
        nccl_abort(g->nccl);
    cuda_alive(b, NULL);
    cuda_drop_recording(b);
    cudaStreamSynchronize(c->stream);
    nccl_close(g->nccl);
    unmap_peers(g);
    cuda_free(b, g->peers.own);
    cuda_free(b, g->peers.control);
    sem_destroy(&g->stop);
    free(g);
    c->group = NULL;
}

static int check_group(struct k_backend *b, struct quire_error *err)
{
    struct cuda_group *g = cuda_of(b)->group;
    char why[160];
    if (!g || !control_load(g, CUDA_CONTROL_OVER))
        return QUIRE_OK;
    if (g->nccl && control_load(g, CUDA_CONTROL_LEFT) == g->turn)
        return QUIRE_OK; /* the group ended after all data had been exchanged */
    int status = g->group.check(g->group.context, err);
    if (status != QUIRE_OK)
        return status;
    const uint32_t late = control_load(g, CUDA_CONTROL_LATE);
    snprintf(why, sizeof why, "rank %u's GPU has not answered rank %u's for %.1f s", g->group.first + late - 1,
             g->group.first + g->group.rank, g->group.timeout_ms / 1e3);
    g->group.abort(g->group.context, why);
    return quire_fail(err, QUIRE_UNAVAILABLE, "%s", why);
}

int cuda_group_wait(struct k_backend *b, uint64_t ticket, struct quire_error *err)
{
    int status = cuda_wait(b, ticket, err);
    return status == QUIRE_OK ? check_group(b, err) : status;
}

int cuda_group_copy_out(struct k_backend *b, void *dst, const void *src_dev, uint64_t bytes, struct quire_error *err)
{
    int status = cuda_copy_out(b, dst, src_dev, bytes, err);
    return status == QUIRE_OK ? check_group(b, err) : status;
}

/* ---- operations -------------------------------------------------------------------------------- */

/* Returns the group of a backend that has joined one. */
static int group_of(struct k_backend *b, const char *operation, struct cuda_group **out, struct quire_error *err)
{
    static const struct k_group none;
    int status = cuda_alive(b, err);
    if (status != QUIRE_OK)
        return status;
    *out = cuda_of(b)->group;
    return k_check_group(operation, *out ? &(*out)->group : &none, err);
}

/* nccl_all_gather and similar functions. */
typedef int nccl_call(struct nccl *n, const float *own_dev, float *out_dev, size_t n_floats, cudaStream_t stream,
                      struct quire_error *err);

/* Runs a call of NCCL. An error of NCCL ends the group; after that the group's error is the reason. */
static int bring_by_nccl(struct k_backend *b, struct cuda_group *g, nccl_call *call, struct cuda_fold *f,
                         const float *own, struct quire_error *err)
{
    cudaStream_t stream = cuda_of(b)->stream;
    f->turn = ++g->turn;
    int status = cuda_check(b, launch_fold_arrive(stream, f), "a gathering by NCCL", err);
    if (status != QUIRE_OK)
        return status;
    status = call(g->nccl, own, f->gathered, f->n, stream, err);
    if (status == QUIRE_OK)
        return QUIRE_OK;
    g->group.abort(g->group.context, err->text);
    return g->group.check(g->group.context, err);
}

/* Returns elements [from, n) of the data, at most as many as the areas hold for n_parts. */
static struct cuda_fold fold_from(const struct cuda_group *g, uint32_t n_parts, uint64_t from, uint64_t n)
{
    const uint64_t most = CUDA_PEER_BLOCKS * UINT64_C(2) * CUDA_PEER_AREA_BYTES / sizeof(float) / n_parts;
    return (struct cuda_fold){.gathered = (float *)(void *)(g->peers.own + CUDA_PEER_HEAD_BYTES),
                              .control = g->peers.control,
                              .from = from,
                              .n = (uint32_t)(n - from < most ? n - from : most)};
}

/* Sends 2 (R - 1) / R n bytes through a GPU's links; the other method sends (R - 1) n. */
static int sum_parts_by_nccl(struct k_backend *b, struct cuda_group *g, const struct k_all_reduce_args *a,
                             struct quire_error *err)
{
    cudaStream_t stream = cuda_of(b)->stream;
    const uint32_t n_ranks = g->group.n_ranks;
    const uint64_t n = (uint64_t)a->n_tokens * a->n_cols;
    int status = QUIRE_OK;
    struct cuda_fold f;
    for (uint64_t from = 0; from < n && status == QUIRE_OK; from += (uint64_t)n_ranks * f.n) {
        f = fold_from(g, n_ranks, 0, (n - from) / n_ranks);
        f.from = from + (uint64_t)g->group.rank * f.n;
        status = bring_by_nccl(b, g, nccl_exchange, &f, a->x_dev + from, err);
        if (status == QUIRE_OK)
            status = cuda_check(b, launch_fold(stream, &f, n_ranks, a), "a sum over ranks", err);
        f.gathered = a->x_dev + from;
        if (status == QUIRE_OK)
            status = bring_by_nccl(b, g, nccl_all_gather, &f, a->x_dev + f.from, err);
        if (status == QUIRE_OK)
            status = cuda_check(b, launch_fold_leave(stream, &f), "a sum over ranks", err);
    }
    return status;
}

static int sum_by_nccl(struct k_backend *b, struct cuda_group *g, const struct k_all_reduce_args *a,
                       struct quire_error *err)
{
    const uint64_t n = (uint64_t)a->n_tokens * a->n_cols;
    if (!adds_by_nccl(b) && g->group.n_ranks > 2 && n % g->group.n_ranks == 0 &&
        n * sizeof(float) >= NCCL_TWO_SHOT_BYTES)
        return sum_parts_by_nccl(b, g, a, err);
    const bool is_added = adds_by_nccl(b);
    const uint32_t n_parts = is_added ? 1 : g->group.n_ranks;
    int status = QUIRE_OK;
    struct cuda_fold f;
    for (uint64_t from = 0; from < n && status == QUIRE_OK; from += f.n) {
        f = fold_from(g, n_parts, from, n);
        status = bring_by_nccl(b, g, is_added ? nccl_all_reduce : nccl_all_gather, &f, a->x_dev + from, err);
        if (status == QUIRE_OK)
            status = cuda_check(b, launch_fold(cuda_of(b)->stream, &f, n_parts, a), "a sum over ranks", err);
    }
    return status;
}

static int columns_by_nccl(struct k_backend *b, struct cuda_group *g, const struct k_all_gather_args *a,
                           struct quire_error *err)
{
    cudaStream_t stream = cuda_of(b)->stream;
    uint32_t most = 0;
    for (uint32_t r = 0; r < g->group.n_ranks; r++) {
        const uint32_t n = a->first_cols[r + 1] - a->first_cols[r];
        most = n > most ? n : most;
    }
    const uint64_t n = (uint64_t)a->n_tokens * most;
    int status = QUIRE_OK;
    struct cuda_fold f;
    for (uint64_t from = 0; from < n && status == QUIRE_OK; from += f.n) {
        f = fold_from(g, g->group.n_ranks, from, n);
        status = cuda_check(b, launch_fold_pack(stream, &f, g->group.rank, g->group.n_ranks, a), "all_gather", err);
        if (status == QUIRE_OK)
            status = bring_by_nccl(b, g, nccl_all_gather, &f, f.gathered + (uint64_t)g->group.rank * f.n, err);
        if (status == QUIRE_OK)
            status = cuda_check(b, launch_fold_unpack(stream, &f, g->group.rank, g->group.n_ranks, a), "all_gather",
                                err);
    }
    return status;
}

int cuda_all_reduce(struct k_backend *b, const struct k_all_reduce_args *a, struct quire_error *err)
{
    struct cuda_group *g;
    int status = group_of(b, "all_reduce", &g, err);
    if (status != QUIRE_OK || a->n_tokens == 0 || a->n_cols == 0)
        return status;
    if (g->nccl)
        return sum_by_nccl(b, g, a, err);
    return cuda_check(b, launch_all_reduce(cuda_of(b)->stream, &g->peers, a), "all_reduce", err);
}

int cuda_all_gather(struct k_backend *b, const struct k_all_gather_args *a, struct quire_error *err)
{
    struct cuda_group *g;
    int status = group_of(b, "all_gather", &g, err);
    if (status == QUIRE_OK)
        status = k_check_all_gather(a, &g->group, err);
    if (status != QUIRE_OK || a->n_tokens == 0 || a->first_cols[g->group.n_ranks] == 0)
        return status;
    if ((uint64_t)a->n_tokens * a->first_cols[g->group.n_ranks] > UINT32_MAX)
        return quire_fail(err, QUIRE_INVALID, "all_gather: %u rows of %u columns exceed one launch", a->n_tokens,
                          a->first_cols[g->group.n_ranks]);
    if (g->nccl)
        return columns_by_nccl(b, g, a, err);
    return cuda_check(b, launch_all_gather(cuda_of(b)->stream, &g->peers, a), "all_gather", err);
}

int cuda_checksum(struct k_backend *b, const struct k_checksum_args *a, struct quire_error *err)
{
    int status = cuda_alive(b, err);
    if (status != QUIRE_OK || a->n_tokens == 0 || a->n_cols == 0)
        return status;
    return cuda_check(b, launch_checksum(cuda_of(b)->stream, a), "checksum", err);
}

int cuda_group_rmsnorm(struct k_backend *b, const struct k_rmsnorm_args *a, struct quire_error *err)
{
    struct cuda_group *g;
    cudaStream_t stream = cuda_of(b)->stream;
    int status = group_of(b, "rmsnorm", &g, err);
    if (status != QUIRE_OK)
        return status;
    if (!g->nccl && cuda_fuses_sum(g->group.n_ranks, a))
        return cuda_check(b, launch_rmsnorm_of_sum(stream, &g->peers, a), "rmsnorm of a sum", err);
    status = cuda_all_reduce(b,
                             &(struct k_all_reduce_args){.x_dev = (float *)(uintptr_t)a->add_dev,
                                                         .bias_dev = a->add_bias_dev,
                                                         .n_tokens = a->n_tokens,
                                                         .n_cols = a->n_cols},
                             err);
    return status == QUIRE_OK ? cuda_check(b, launch_rmsnorm(stream, a), "rmsnorm", err) : status;
}
