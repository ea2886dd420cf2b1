/* Ranks on GPUs: each has memory that the others map (CUDA's handles between processes), and kernels meet there (peers.cuh).
 *
 * A kernel that waits for a peer ends when the time is up, or before that by a word in host memory: a thread looks every
 * LOOK_MS whether the group is over, and writes it. It calls nothing of CUDA. What was queued then runs through without
 * effect, and the wait for it says why. */
#include "kernels/cuda/host/group.h"
#include "kernels/cuda/host/memory.h"
#include "kernels/cuda/host/operations.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/plan/plan.h"
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

struct cuda_group {
    struct k_group group;
    struct cuda_peers peers; /* memory of ranks that were not reached: NULL */
    pthread_t watcher;
    bool has_watcher;
    sem_t stop;
};

/* What a rank tells the others: where its memory is, or why there is none. */
struct greeting {
    int32_t status;
    char text[QUIRE_ERROR_BYTES];
    cudaIpcMemHandle_t memory;
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
        if (g->group.check(g->group.context, &ignored) != QUIRE_OK)
            control_store(g, CUDA_CONTROL_ABORT, 1);
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
    return why == 0 ? QUIRE_OK : quire_fail(err, QUIRE_IO, "starting a thread: %s", strerror(why));
}

/* ---- joining ----------------------------------------------------------------------------------- */

/* This rank's memory, its head of zeros before anybody hears of it, and words for both sides. */
static int alloc_own(struct k_backend *b, struct cuda_group *g, struct greeting *mine, struct quire_error *err)
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
    if (status != QUIRE_OK)
        return status;
    cudaError_t error = cudaIpcGetMemHandle(&mine->memory, own);
    if (error == cudaSuccess)
        return QUIRE_OK;
    cudaGetLastError(); /* refused, and not the next caller's error */
    return quire_fail(err, QUIRE_UNSUPPORTED, "GPU %d does not give its memory to other processes: %s", c->device,
                      cudaGetErrorString(error));
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
                              cuda_of(b)->device, r, cudaGetErrorString(error));
        }
        g->peers.memory[r] = memory;
    }
    return QUIRE_OK;
}

/* All ranks hear of it where one of them could not go on. */
static int agree(struct cuda_group *g, int status, struct greeting *mine, struct greeting *all, struct quire_error *err)
{
    mine->status = status;
    if (status != QUIRE_OK)
        snprintf(mine->text, sizeof mine->text, "%s", err->text);
    status = g->group.all_gather(g->group.context, mine, sizeof *mine, all, err);
    for (uint32_t r = 0; r < g->group.n_ranks && status == QUIRE_OK; r++)
        if (all[r].status != QUIRE_OK)
            status = quire_fail(err, all[r].status, "rank %u: %.*s", r, (int)sizeof all[r].text - 16, all[r].text);
    return status;
}

static int meet(struct k_backend *b, struct cuda_group *g, struct greeting *mine, struct greeting *all,
                struct quire_error *err)
{
    int status = alloc_own(b, g, mine, err);
    status = agree(g, status, mine, all, err);
    if (status != QUIRE_OK)
        return status;
    status = map_peers(b, g, all, err);
    return agree(g, status, mine, all, err);
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

/* What a peer still maps the driver keeps until it lets go. */
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
        control_store(g, CUDA_CONTROL_ABORT, 1); /* what is still queued waits for nobody */
    cuda_alive(b, NULL);
    cuda_drop_recording(b);
    cudaStreamSynchronize(c->stream);
    for (uint32_t r = 0; r < g->group.n_ranks; r++)
        if (g->peers.memory[r] && g->peers.memory[r] != g->peers.own)
            cudaIpcCloseMemHandle(g->peers.memory[r]);
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
    int status = g->group.check(g->group.context, err);
    if (status != QUIRE_OK)
        return status;
    const uint32_t late = control_load(g, CUDA_CONTROL_LATE);
    snprintf(why, sizeof why, "rank %u's GPU has not come to what rank %u's waits for, for %.1f s", late - 1,
             g->group.rank, g->group.timeout_ms / 1e3);
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

/* The group of a backend that has joined one. */
static int group_of(struct k_backend *b, const char *operation, struct cuda_group **out, struct quire_error *err)
{
    static const struct k_group none;
    int status = cuda_alive(b, err);
    if (status != QUIRE_OK)
        return status;
    *out = cuda_of(b)->group;
    return k_check_group(operation, *out ? &(*out)->group : &none, err);
}

int cuda_all_reduce(struct k_backend *b, const struct k_all_reduce_args *a, struct quire_error *err)
{
    struct cuda_group *g;
    int status = group_of(b, "all_reduce", &g, err);
    if (status != QUIRE_OK || a->n_tokens == 0 || a->n_cols == 0)
        return status;
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
        return quire_fail(err, QUIRE_INVALID, "all_gather: %u rows of %u columns are more than a launch has",
                          a->n_tokens, a->first_cols[g->group.n_ranks]);
    return cuda_check(b, launch_all_gather(cuda_of(b)->stream, &g->peers, a), "all_gather", err);
}

int cuda_group_rmsnorm(struct k_backend *b, const struct k_rmsnorm_args *a, struct quire_error *err)
{
    struct cuda_group *g;
    cudaStream_t stream = cuda_of(b)->stream;
    int status = group_of(b, "rmsnorm", &g, err);
    if (status != QUIRE_OK)
        return status;
    if (cuda_fuses_sum(g->group.n_ranks, a))
        return cuda_check(b, launch_rmsnorm_of_sum(stream, &g->peers, a), "rmsnorm of a sum", err);
    status = cuda_all_reduce(b,
                             &(struct k_all_reduce_args){.x_dev = (float *)(uintptr_t)a->add_dev,
                                                         .bias_dev = a->add_bias_dev,
                                                         .n_tokens = a->n_tokens,
                                                         .n_cols = a->n_cols},
                             err);
    return status == QUIRE_OK ? cuda_check(b, launch_rmsnorm(stream, a), "rmsnorm", err) : status;
}
