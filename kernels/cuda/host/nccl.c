/* See nccl.h.
 *
 * A call of NCCL may wait for a peer that is gone. The start therefore runs on its own thread, while the ranks exchange
 * their progress over the group; if the group ends, the thread is abandoned. All later calls hold `lock`, which keeps
 * the communicator alive while they run. nccl_abort() waits ABORT_MS for the lock. After that it assumes that a call
 * hangs, and aborts the communicator, which ends the call.
 */
#include "kernels/cuda/host/nccl.h"
#include "base/clock.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOK_MS 20
#define ABORT_MS 500
/* The time that NCCL may take to start, in time-outs of the group. NCCL opens its own connections, which a network may
 * drop. */
#define START_TIMEOUTS 30
/* The functions exist in older versions, but their abort is untested. */
#define LEAST_VERSION 21400

struct nccl {
    struct nccl_calls calls;
    char version[32];
    pthread_mutex_t lock;
    struct nccl_comm *comm; /* NULL before the start and after an abort */
    int n_ranks;
    _Atomic bool is_aborted;
};

enum progress { UNDER_WAY, WELL, FAILED };

/* A start that may be abandoned; the last user frees it. */
struct start {
    struct nccl_calls calls;
    int device, rank, n_ranks;
    struct nccl_id id;
    struct nccl_comm *comm;
    int result;
    cudaError_t error;
    uint64_t until_ms; /* of quire_now_ms() */
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool is_done, is_left;
};

static void in_ms(struct timespec *out, long ms)
{
    clock_gettime(CLOCK_REALTIME, out);
    out->tv_nsec += ms * 1000000;
    out->tv_sec += out->tv_nsec / 1000000000;
    out->tv_nsec %= 1000000000;
}

/* ---- opening ----------------------------------------------------------------------------------- */

static int find_calls(struct nccl_calls *calls, struct quire_error *err)
{
    void *library = dlopen(NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return quire_fail(err, QUIRE_UNSUPPORTED, NCCL_LIBRARY " is not there (%.120s)", dlerror());
    const struct {
        const char *name;
        void *at;
    } all[] = {
        {"ncclGetVersion", &calls->get_version},
        {"ncclGetUniqueId", &calls->get_unique_id},
        {"ncclCommInitRank", &calls->comm_init_rank},
        {"ncclAllGather", &calls->all_gather},
        {"ncclAllReduce", &calls->all_reduce},
        {"ncclGroupStart", &calls->group_start},
        {"ncclGroupEnd", &calls->group_end},
        {"ncclSend", &calls->send},
        {"ncclRecv", &calls->recv},
        {"ncclCommGetAsyncError", &calls->comm_get_async_error},
        {"ncclCommAbort", &calls->comm_abort},
        {"ncclCommDestroy", &calls->comm_destroy},
        {"ncclGetErrorString", &calls->get_error_string},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        void *symbol = dlsym(library, all[i].name);
        if (!symbol)
            return quire_fail(err, QUIRE_UNSUPPORTED, "the installed " NCCL_LIBRARY " lacks %s", all[i].name);
        memcpy(all[i].at, &symbol, sizeof symbol);
    }
    return QUIRE_OK;
}

static int check_version(struct nccl *n, struct quire_error *err)
{
    int v = 0;
    const int result = n->calls.get_version(&v);
    if (result != NCCL_SUCCESS)
        return quire_fail(err, QUIRE_UNSUPPORTED, NCCL_LIBRARY ": cannot read its version: %.120s",
                          n->calls.get_error_string(result));
    if (v < 10000) /* before 2.9 a thousand was a major version */
        snprintf(n->version, sizeof n->version, "%d.%d.%d", v / 1000, v / 100 % 10, v % 100);
    else
        snprintf(n->version, sizeof n->version, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    if (v < LEAST_VERSION || v / 10000 != 2)
        return quire_fail(err, QUIRE_UNSUPPORTED, NCCL_LIBRARY " is version %s, and one of 2.14 to 2.99 is needed",
                          n->version);
    return QUIRE_OK;
}

int nccl_open(struct nccl **out, struct quire_error *err)
{
    *out = NULL;
    struct nccl *n = calloc(1, sizeof *n);
    if (!n)
        return quire_fail(err, QUIRE_NO_MEMORY, "NCCL: out of memory");
    pthread_mutex_init(&n->lock, NULL);
    int status = find_calls(&n->calls, err);
    if (status == QUIRE_OK)
        status = check_version(n, err);
    if (status != QUIRE_OK) {
        nccl_close(n);
        return status;
    }
    *out = n;
    return QUIRE_OK;
}

const char *nccl_version(const struct nccl *n)
{
    return n->version;
}

static int failed(struct nccl *n, const char *call, int result, struct quire_error *err)
{
    return quire_fail(err, QUIRE_UNAVAILABLE, "NCCL %s: %s: %.160s", n->version, call,
                      n->calls.get_error_string(result));
}

int nccl_make_id(struct nccl *n, struct nccl_id *out, struct quire_error *err)
{
    const int result = n->calls.get_unique_id(out);
    return result == NCCL_SUCCESS ? QUIRE_OK : failed(n, "ncclGetUniqueId", result, err);
}

/* ---- starting ---------------------------------------------------------------------------------- */

static void free_start(struct start *s)
{
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->done);
    free(s);
}

static void *start_one(void *start)
{
    struct start *s = start;
    s->error = cudaSetDevice(s->device);
    if (s->error == cudaSuccess)
        s->result = s->calls.comm_init_rank(&s->comm, s->n_ranks, s->id, s->rank);
    pthread_mutex_lock(&s->lock);
    const bool is_left = s->is_left;
    s->is_done = true;
    pthread_cond_signal(&s->done);
    pthread_mutex_unlock(&s->lock);
    if (!is_left)
        return NULL;
    if (s->error == cudaSuccess && s->result == NCCL_SUCCESS)
        s->calls.comm_abort(s->comm);
    free_start(s);
    return NULL;
}

static int start_thread(struct start *s, struct quire_error *err)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the caller's threads */
    const int why = pthread_create(&thread, NULL, start_one, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (why != 0)
        return quire_fail(err, QUIRE_IO, "cannot start a thread: %s", strerror(why));
    pthread_detach(thread);
    return QUIRE_OK;
}

/* Returns whether the start has finished after LOOK_MS, and whether it succeeded. */
static enum progress look_at_start(struct start *s)
{
    struct timespec until;
    in_ms(&until, LOOK_MS);
    pthread_mutex_lock(&s->lock);
    while (!s->is_done && pthread_cond_timedwait(&s->done, &s->lock, &until) == 0) {
    }
    const enum progress at = !s->is_done ? (quire_now_ms() < s->until_ms ? UNDER_WAY : FAILED)
                             : s->error == cudaSuccess && s->result == NCCL_SUCCESS ? WELL
                                                                                    : FAILED;
    pthread_mutex_unlock(&s->lock);
    return at;
}

/* Waits until the start has finished on all ranks, or has failed on one, whose error becomes the group's. The group
 * detects lost ranks. */
static int await(struct start *s, const struct k_group *group, struct quire_error *err)
{
    int status = QUIRE_OK;
    uint32_t n_well = 0;
    while (n_well < group->n_ranks && status == QUIRE_OK) {
        unsigned char mine = (unsigned char)look_at_start(s), all[K_MAX_RANKS];
        status = group->all_gather(group->context, &mine, 1, all, err);
        n_well = 0;
        for (uint32_t r = 0; r < group->n_ranks && status == QUIRE_OK && mine != FAILED; r++) {
            n_well += all[r] == WELL;
            if (all[r] == FAILED)
                status = quire_fail(err, QUIRE_UNSUPPORTED, "NCCL does not start on rank %u", group->first + r);
        }
        if (mine == FAILED && status == QUIRE_OK) /* nccl_start() returns NCCL's own error */
            status = quire_fail(err, QUIRE_UNAVAILABLE,
                                "NCCL has not started within %.0f s: NCCL_DEBUG=INFO shows what it waits for, "
                                "NCCL_SOCKET_IFNAME selects the network",
                                START_TIMEOUTS * group->timeout_ms / 1e3);
    }
    return status;
}

/* Returns whether the caller must free it. */
static bool is_left_done(struct start *s)
{
    pthread_mutex_lock(&s->lock);
    const bool is_done = s->is_done;
    s->is_left = !is_done;
    pthread_mutex_unlock(&s->lock);
    return is_done;
}

int nccl_start(struct nccl *n, int device, const struct k_group *group, const struct nccl_id *id,
               struct quire_error *err)
{
    struct start *s = calloc(1, sizeof *s);
    if (!s)
        return quire_fail(err, QUIRE_NO_MEMORY, "NCCL: out of memory");
    s->calls = n->calls;
    s->device = device;
    s->rank = (int)group->rank;
    s->n_ranks = (int)group->n_ranks;
    s->id = *id;
    s->until_ms = quire_now_ms() + START_TIMEOUTS * (uint64_t)group->timeout_ms;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->done, NULL);
    int status = start_thread(s, err);
    if (status != QUIRE_OK) {
        free_start(s);
        return status;
    }
    status = await(s, group, err);
    if (!is_left_done(s))
        return status;
    if (status != QUIRE_OK && s->error == cudaSuccess && s->result == NCCL_SUCCESS)
        s->calls.comm_abort(s->comm);
    else if (s->error != cudaSuccess)
        status = quire_fail(err, QUIRE_UNAVAILABLE, "NCCL: GPU %d: %s", device, cudaGetErrorString(s->error));
    else if (s->result != NCCL_SUCCESS)
        status = failed(n, "ncclCommInitRank", s->result, err);
    else
        n->comm = s->comm;
    n->n_ranks = s->n_ranks;
    free_start(s);
    return status;
}

/* ---- running ----------------------------------------------------------------------------------- */

/* Takes the lock. end_call() releases it. */
static int begin_call(struct nccl *n, struct quire_error *err)
{
    pthread_mutex_lock(&n->lock);
    if (!atomic_load(&n->is_aborted))
        return QUIRE_OK;
    pthread_mutex_unlock(&n->lock);
    return quire_fail(err, QUIRE_UNAVAILABLE, "NCCL: the group has ended");
}

static int end_call(struct nccl *n, const char *call, int result, struct quire_error *err)
{
    const int status = result == NCCL_SUCCESS ? QUIRE_OK : failed(n, call, result, err);
    pthread_mutex_unlock(&n->lock);
    return status;
}

int nccl_all_gather(struct nccl *n, const float *own_dev, float *all_dev, size_t n_floats, cudaStream_t stream,
                    struct quire_error *err)
{
    const int status = begin_call(n, err);
    if (status != QUIRE_OK)
        return status;
    return end_call(n, "ncclAllGather", n->calls.all_gather(own_dev, all_dev, n_floats, NCCL_F32, n->comm, stream),
                    err);
}

/* One operation, for which each rank must know all its calls. */
static int send_and_receive(const struct nccl *n, const float *own, float *parts, size_t n_floats, cudaStream_t stream)
{
    int result = n->calls.group_start();
    if (result != NCCL_SUCCESS)
        return result;
    for (int r = 0; r < n->n_ranks && result == NCCL_SUCCESS; r++) {
        result = n->calls.send(own + (size_t)r * n_floats, n_floats, NCCL_F32, r, n->comm, stream);
        if (result == NCCL_SUCCESS)
            result = n->calls.recv(parts + (size_t)r * n_floats, n_floats, NCCL_F32, r, n->comm, stream);
    }
    const int end = n->calls.group_end();
    return result == NCCL_SUCCESS ? end : result;
}

int nccl_exchange(struct nccl *n, const float *own_dev, float *parts_dev, size_t n_floats, cudaStream_t stream,
                  struct quire_error *err)
{
    const int status = begin_call(n, err);
    if (status != QUIRE_OK)
        return status;
    return end_call(n, "ncclSend and ncclRecv", send_and_receive(n, own_dev, parts_dev, n_floats, stream), err);
}

int nccl_all_reduce(struct nccl *n, const float *own_dev, float *sums_dev, size_t n_floats, cudaStream_t stream,
                    struct quire_error *err)
{
    const int status = begin_call(n, err);
    if (status != QUIRE_OK)
        return status;
    return end_call(n, "ncclAllReduce",
                    n->calls.all_reduce(own_dev, sums_dev, n_floats, NCCL_F32, NCCL_SUM, n->comm, stream), err);
}

/* Does not wait for a call that hangs; the end of the group ends that call. */
int nccl_look(struct nccl *n, struct quire_error *err)
{
    int status = QUIRE_OK, error = NCCL_SUCCESS;
    if (pthread_mutex_trylock(&n->lock) != 0)
        return QUIRE_OK;
    if (n->comm && !atomic_load(&n->is_aborted)) {
        const int result = n->calls.comm_get_async_error(n->comm, &error);
        if (result != NCCL_SUCCESS || (error != NCCL_SUCCESS && error != NCCL_IN_PROGRESS))
            status = failed(n, "what it carries", result != NCCL_SUCCESS ? result : error, err);
    }
    pthread_mutex_unlock(&n->lock);
    return status;
}

void nccl_abort(struct nccl *n)
{
    struct timespec until;
    if (atomic_exchange(&n->is_aborted, true))
        return;
    in_ms(&until, ABORT_MS);
    const bool is_locked = pthread_mutex_timedlock(&n->lock, &until) == 0;
    if (n->comm)
        n->calls.comm_abort(n->comm);
    n->comm = NULL;
    if (is_locked)
        pthread_mutex_unlock(&n->lock);
}

void nccl_close(struct nccl *n)
{
    if (!n)
        return;
    if (n->comm)
        n->calls.comm_destroy(n->comm);
    pthread_mutex_destroy(&n->lock);
    free(n);
}
