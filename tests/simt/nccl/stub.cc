/* A stub of the NCCL functions that kernels/cuda/host/nccl.c calls, for the emulator: a libnccl.so.2 whose ranks are
 * processes that share a memory file. A collective runs as a kernel on the stream and waits there for the other ranks
 * until it is aborted, as NCCL's own kernels do. ncclCommInitRank waits for them and cannot be aborted.
 *
 * It checks its arguments: memory must exist, and the count must be equal on every rank. simt_fail_call() or
 * QUIRE_SIMT_FAIL inject failures; their error is the result. SIMT_NCCL_VERSION is the version that it reports.
 * SIMT_NCCL_DIES ends the process in ncclCommInitRank, and SIMT_NCCL_HANGS makes it hang there. SIMT_NCCL_ASYNC is the
 * result of ncclCommGetAsyncError. A leak ends the process with the emulator's status.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

#include "kernels/cuda/host/nccl.h"
#include "kernels/kv.h"
#include "tests/simt/runtime.h"
#include "tests/simt/simt.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

struct Shared {
    std::atomic<uint32_t> n_arrived;
    std::atomic<uint64_t> bytes[K_MAX_RANKS];
    std::atomic<uint64_t> sent[K_MAX_RANKS][K_MAX_RANKS]; /* from, to */
    unsigned char data[16u << 20];
};
const uint64_t most_sent = (16u << 20) / K_MAX_RANKS; /* by a rank, in total */

struct nccl_comm {
    Shared *shared;
    uint32_t n_ranks, rank, n_meetings;
    std::atomic<bool> is_aborted, is_running;
};

namespace
{

enum { SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4 };
std::atomic<long> n_live;

[[noreturn]] void defect(const char *what)
{
    fprintf(stderr, "simt: NCCL: %s\n", what);
    _exit(SIMT_EXIT_STATUS);
}

struct Leaks {
    ~Leaks()
    {
        if (n_live != 0)
            defect("a communicator was not given back");
    }
} leaks;

int asked_for(const char *call)
{
    return (int)simt_runtime::injected(call);
}

int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

/* Returns false if it was aborted meanwhile. */
bool meet(nccl_comm *c)
{
    const uint32_t wanted = ++c->n_meetings * c->n_ranks;
    c->shared->n_arrived++;
    while ((int32_t)(c->shared->n_arrived - wanted) < 0) {
        if (c->is_aborted)
            return false;
        usleep(20);
    }
    return true;
}

struct Gathering {
    nccl_comm *comm;
    const unsigned char *own;
    unsigned char *out;
    uint64_t bytes;
    bool as_sum;
};

/* Adds from the last rank to the first, which is not the tree, so that a test detects code that assumes the tree. */
void add(const Gathering &g)
{
    const float *all = (const float *)g.comm->shared->data;
    float *out = (float *)g.out;
    for (uint64_t i = 0, n = g.bytes / sizeof(float); i < n; i++) {
        float sum = all[(g.comm->n_ranks - 1) * n + i];
        for (uint32_t r = g.comm->n_ranks - 1; r-- > 0;)
            sum += all[r * n + i];
        out[i] = sum;
    }
}

void gather(Gathering g)
{
    nccl_comm *c = g.comm;
    c->is_running = true;
    if (!c->is_aborted) {
        memcpy(c->shared->data + c->rank * g.bytes, g.own, g.bytes);
        c->shared->bytes[c->rank] = g.bytes;
        if (meet(c)) {
            for (uint32_t r = 0; r < c->n_ranks; r++)
                if (c->shared->bytes[r] != g.bytes)
                    defect("ranks gather different counts");
            if (g.as_sum)
                add(g);
            else
                memcpy(g.out, c->shared->data, c->n_ranks * g.bytes);
            meet(c);
        }
    }
    c->is_running = false;
}

int queue(const char *call, const void *own, void *out, uint64_t n_out, uint64_t n, int type, nccl_comm *c,
          cudaStream_t stream, bool as_sum)
{
    const uint64_t bytes = n * sizeof(float);
    int result = asked_for(call);
    if (result)
        return result;
    if (type != NCCL_F32 || !c || bytes * c->n_ranks > sizeof c->shared->data || !simt_runtime::find(own, bytes) ||
        !simt_runtime::find(out, n_out * sizeof(float)))
        return INVALID_ARGUMENT;
    Gathering g = {c, (const unsigned char *)own, (unsigned char *)out, bytes, as_sum};
    return simt::launch_on(stream, dim3(1), dim3(1), 0, call, gather, g) == cudaSuccess ? NCCL_SUCCESS : 1;
}

/* A rank's calls between ncclGroupStart and ncclGroupEnd: at most one message to each rank and one from each. All ranks
 * have a group at the same time here. */
struct Exchange {
    nccl_comm *comm;
    cudaStream_t stream;
    const unsigned char *own[K_MAX_RANKS];
    unsigned char *theirs[K_MAX_RANKS];
    uint64_t n_own[K_MAX_RANKS], n_theirs[K_MAX_RANKS];
};
thread_local Exchange said;
thread_local bool is_open;

void exchange(Exchange e)
{
    nccl_comm *c = e.comm;
    unsigned char *at = c->shared->data + c->rank * most_sent;
    c->is_running = true;
    for (uint32_t r = 0; r < c->n_ranks; at += e.n_own[r++]) {
        c->shared->sent[c->rank][r] = e.n_own[r];
        memcpy(at, e.own[r], e.n_own[r]);
    }
    if (!c->is_aborted && meet(c)) {
        for (uint32_t r = 0; r < c->n_ranks; r++) {
            at = c->shared->data + r * most_sent;
            for (uint32_t before = 0; before < c->rank; before++)
                at += c->shared->sent[r][before];
            if (c->shared->sent[r][c->rank] != e.n_theirs[r])
                defect("what a rank sends another does not await");
            memcpy(e.theirs[r], at, e.n_theirs[r]);
        }
        meet(c);
    }
    c->is_running = false;
}

/* Adds a message from or to a peer at position `at`. */
template <class P>
int say(const char *call, P memory, P (&at)[K_MAX_RANKS], uint64_t (&bytes)[K_MAX_RANKS], size_t n, int type, int peer,
        nccl_comm *c, cudaStream_t stream)
{
    const int result = asked_for(call);
    if (result)
        return result;
    if (!is_open || type != NCCL_F32 || !c || peer < 0 || (uint32_t)peer >= c->n_ranks || at[peer] ||
        (said.comm && (said.comm != c || said.stream != stream)) || !simt_runtime::find(memory, n * sizeof(float)))
        return INVALID_ARGUMENT;
    said.comm = c;
    said.stream = stream;
    at[peer] = memory;
    bytes[peer] = n * sizeof(float);
    return NCCL_SUCCESS;
}

} // namespace

EXPORT int ncclGroupStart()
{
    if (is_open)
        defect("a group within a group");
    said = {};
    const int result = asked_for("ncclGroupStart");
    is_open = result == NCCL_SUCCESS;
    return result;
}

EXPORT int ncclGroupEnd()
{
    if (!is_open)
        defect("the end of no group");
    is_open = false;
    const int result = asked_for("ncclGroupEnd");
    uint64_t sum = 0;
    for (uint64_t n : said.n_own)
        sum += n;
    if (result || !said.comm)
        return result;
    if (sum > most_sent)
        return INVALID_ARGUMENT;
    return simt::launch_on(said.stream, dim3(1), dim3(1), 0, "ncclSend and ncclRecv", exchange, said) == cudaSuccess
               ? NCCL_SUCCESS
               : 1;
}

EXPORT int ncclSend(const void *own, size_t n, int type, int to, nccl_comm *c, cudaStream_t stream)
{
    return say("ncclSend", (const unsigned char *)own, said.own, said.n_own, n, type, to, c, stream);
}

EXPORT int ncclRecv(void *theirs, size_t n, int type, int from, nccl_comm *c, cudaStream_t stream)
{
    return say("ncclRecv", (unsigned char *)theirs, said.theirs, said.n_theirs, n, type, from, c, stream);
}

EXPORT int ncclGetVersion(int *version)
{
    *version = number("SIMT_NCCL_VERSION", 22703);
    return asked_for("ncclGetVersion");
}

EXPORT const char *ncclGetErrorString(int result)
{
    return result == SYSTEM_ERROR ? "unhandled system error" : "invalid argument";
}

EXPORT int ncclGetUniqueId(nccl_id *out)
{
    int fd = memfd_create("NCCL stub", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, sizeof(Shared)) != 0)
        return SYSTEM_ERROR;
    snprintf(out->internal, sizeof out->internal, "/proc/%d/fd/%d", (int)getpid(), fd);
    return asked_for("ncclGetUniqueId");
}

EXPORT int ncclCommInitRank(nccl_comm **out, int n_ranks, nccl_id id, int rank)
{
    if (getenv("SIMT_NCCL_DIES"))
        raise(SIGKILL);
    while (getenv("SIMT_NCCL_HANGS"))
        usleep(20000);
    int result = asked_for("ncclCommInitRank");
    int fd = result ? -1 : open(id.internal, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return result ? result : SYSTEM_ERROR;
    void *p = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p == MAP_FAILED)
        return SYSTEM_ERROR;
    *out = new nccl_comm{(Shared *)p, (uint32_t)n_ranks, (uint32_t)rank, 0, {false}, {false}};
    meet(*out);
    n_live++;
    return NCCL_SUCCESS;
}

EXPORT int ncclAllGather(const void *own, void *all, size_t n, int type, nccl_comm *c, cudaStream_t stream)
{
    return queue("ncclAllGather", own, all, n * (c ? c->n_ranks : 0), n, type, c, stream, false);
}

EXPORT int ncclAllReduce(const void *own, void *sums, size_t n, int type, int operation, nccl_comm *c,
                         cudaStream_t stream)
{
    return operation == NCCL_SUM ? queue("ncclAllReduce", own, sums, n, n, type, c, stream, true) : INVALID_ARGUMENT;
}

EXPORT int ncclCommGetAsyncError(nccl_comm *, int *error)
{
    *error = number("SIMT_NCCL_ASYNC", NCCL_SUCCESS);
    return NCCL_SUCCESS;
}

/* Queued work may still access the communicator, so it stays. */
EXPORT int ncclCommAbort(nccl_comm *c)
{
    c->is_aborted = true;
    while (c->is_running)
        usleep(20);
    n_live--;
    return NCCL_SUCCESS;
}

EXPORT int ncclCommDestroy(nccl_comm *c)
{
    if (c->is_running || c->is_aborted)
        defect("a communicator is destroyed that runs, or is gone");
    munmap(c->shared, sizeof *c->shared);
    delete c;
    n_live--;
    return NCCL_SUCCESS;
}
