/* NCCL on one rank: what docs assume of it, tried on a machine with a single GPU. Prints one JSON object.
 *
 *   gpu_nccl          with libnccl.so.2 on the loader's path
 *
 * 1. It opens, starts and says its version. 2. An all-gather and an exchange move the bits they are given, and a sum over one
 * rank is that rank's. 3. ncclCommAbort from another thread ends a communicator whose stream is blocked, and later calls are
 * refused. Exit status 0: all of it holds; 1: not; 77: no NCCL, or no GPU. */
#include "base/clock.h"
#include "kernels/cuda/host/nccl.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_FLOATS 1000003u
#define ABORT_LIMIT_MS 5000

static struct quire_error err;

static int gather_alone(void *context, const void *mine, size_t n_bytes, void *all, struct quire_error *e)
{
    (void)context;
    (void)e;
    memmove(all, mine, n_bytes);
    return QUIRE_OK;
}

static int fail(const char *what, const char *why)
{
    printf("{\"failed\":\"%s\",\"why\":\"%s\"}\n", what, why);
    return 1;
}

/* Moves n floats by each call and compares; NULL or what differs. */
static const char *move(struct nccl *n, cudaStream_t stream, float *own, float *out, const float *want)
{
    static float got[N_FLOATS];
    int (*const calls[])(struct nccl *, const float *, float *, size_t, cudaStream_t,
                         struct quire_error *) = {nccl_all_gather, nccl_exchange, nccl_all_reduce};
    static const char *const names[] = {"all-gather", "exchange", "all-reduce"};
    for (int i = 0; i < 3; i++) {
        if (cudaMemset(out, 0xee, sizeof got) != cudaSuccess ||
            calls[i](n, own, out, N_FLOATS, stream, &err) != QUIRE_OK || cudaStreamSynchronize(stream) != cudaSuccess ||
            cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost) != cudaSuccess ||
            memcmp(got, want, sizeof got) != 0)
            return names[i];
    }
    return NULL;
}

/* A stream that waits for the host until it may go on. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool may_go_on, is_aborted;

static void block(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    while (!may_go_on)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void *abort_it(void *n)
{
    nccl_abort(n);
    pthread_mutex_lock(&lock);
    is_aborted = true;
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Milliseconds until the abort was over; the stream may go on after a second of it. */
static uint64_t abort_meanwhile(struct nccl *n, bool *waited)
{
    pthread_t thread;
    const uint64_t from = quire_now_ms();
    pthread_create(&thread, NULL, abort_it, n);
    usleep(1000000);
    pthread_mutex_lock(&lock);
    *waited = !is_aborted;
    may_go_on = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(thread, NULL);
    return quire_now_ms() - from;
}

int main(void)
{
    const struct k_group alone = {.n_ranks = 1, .all_gather = gather_alone, .gather = gather_alone, .timeout_ms = 2000};
    static float host[N_FLOATS];
    struct nccl *n;
    struct nccl_id id;
    cudaStream_t stream;
    float *own, *out;
    bool waited;
    if (cudaSetDevice(0) != cudaSuccess || nccl_open(&n, &err) != QUIRE_OK) {
        printf("%s\n", err.text[0] ? err.text : "no GPU");
        return 77;
    }
    for (uint32_t i = 0; i < N_FLOATS; i++)
        host[i] = (float)i * 1.37f - 5e5f;
    if (cudaStreamCreate(&stream) != cudaSuccess || cudaMalloc((void **)&own, sizeof host) != cudaSuccess ||
        cudaMalloc((void **)&out, sizeof host) != cudaSuccess ||
        cudaMemcpy(own, host, sizeof host, cudaMemcpyHostToDevice) != cudaSuccess)
        return fail("memory", "");
    const uint64_t from = quire_now_ms();
    if (nccl_make_id(n, &id, &err) != QUIRE_OK || nccl_start(n, 0, &alone, &id, &err) != QUIRE_OK)
        return fail("start", err.text);
    const uint64_t start_ms = quire_now_ms() - from;
    const char *differs = move(n, stream, own, out, host);
    if (differs)
        return fail(differs, err.text);
    if (cudaLaunchHostFunc(stream, block, NULL) != cudaSuccess ||
        nccl_all_gather(n, own, out, N_FLOATS, stream, &err) != QUIRE_OK)
        return fail("an all-gather behind a blocked stream", err.text);
    const uint64_t abort_ms = abort_meanwhile(n, &waited);
    const bool is_refused = nccl_all_gather(n, own, out, N_FLOATS, stream, &err) == QUIRE_UNAVAILABLE;
    const bool can_go_on = cudaStreamSynchronize(stream) == cudaSuccess; /* the GPU is as it was */
    printf(
        "{\"version\":\"%s\",\"start_ms\":%llu,\"moved_floats\":%u,\"abort_ms\":%llu,\"abort_waited_for_the_stream\":%s,"
        "\"refused_after\":%s,\"gpu_goes_on\":%s}\n",
        nccl_version(n), (unsigned long long)start_ms, N_FLOATS, (unsigned long long)abort_ms,
        waited ? "true" : "false", is_refused ? "true" : "false", can_go_on ? "true" : "false");
    nccl_close(n);
    cudaFree(own);
    cudaFree(out);
    cudaStreamDestroy(stream);
    return !(is_refused && can_go_on && abort_ms < ABORT_LIMIT_MS);
}
