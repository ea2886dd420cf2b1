/* Allocations, copies and tickets.
 *
 * Uploads: data from other code is copied into a pinned buffer of 4 pieces and from there to the device. Pieces are
 * filled in turn. After the last copy out of a piece, an event is recorded. Before the piece is reused, 3 pieces later,
 * the host waits for that event. So no data is overwritten while a copy may read it, with one event per 4 MiB. Tickets:
 * each is an event; a few events are used in turn. If an event already stands for a later ticket, the wait is for that
 * one, which is late but never early.
 */
#include "kernels/cuda/host/memory.h"

#include "base/size.h"

#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES (4u << 20)
#define N_PIECES (CUDA_STAGING_BYTES / PIECE_BYTES)
/* A smaller rest of a piece stays unused instead of taking the head of a longer upload. */
#define SMALLEST_SPLIT (64u << 10)
#define N_FENCES 8u /* more than the steps in flight */
#define ALIGNMENT 256u

struct piece {
    cudaEvent_t copied;
    bool was_left; /* `copied` is recorded after the copies out of it */
};

struct host_area { /* from alloc_host() */
    unsigned char *data;
    uint64_t bytes;
};

struct cuda_memory {
    unsigned char *staging;
    struct piece pieces[N_PIECES];
    uint32_t piece, piece_used; /* the piece being filled, and its used bytes */
    cudaEvent_t fences[N_FENCES];
    uint64_t last_ticket, done_ticket;
    struct host_area *areas;
    uint32_t n_areas, areas_capacity;
};

/* ---- opening ----------------------------------------------------------------------------------- */

static cudaError_t create_all(struct cuda_memory *m)
{
    cudaError_t error = cudaHostAlloc((void **)&m->staging, CUDA_STAGING_BYTES, cudaHostAllocDefault);
    for (uint32_t i = 0; i < N_PIECES && error == cudaSuccess; i++)
        error = cudaEventCreateWithFlags(&m->pieces[i].copied, cudaEventDisableTiming);
    for (uint32_t i = 0; i < N_FENCES && error == cudaSuccess; i++)
        error = cudaEventCreateWithFlags(&m->fences[i], cudaEventDisableTiming);
    return error;
}

int cuda_memory_open(struct cuda_backend *c, struct quire_error *err)
{
    c->memory = calloc(1, sizeof *c->memory);
    if (!c->memory)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    cudaError_t error = create_all(c->memory);
    if (error != cudaSuccess)
        return quire_fail(err, error == cudaErrorMemoryAllocation ? QUIRE_NO_MEMORY : QUIRE_UNSUPPORTED,
                          "GPU %d: cannot allocate %u MiB of pinned host memory: %s", c->device,
                          CUDA_STAGING_BYTES >> 20, cudaGetErrorString(error));
    return QUIRE_OK;
}

void cuda_memory_close(struct cuda_backend *c)
{
    struct cuda_memory *m = c->memory;
    if (!m)
        return;
    for (uint32_t i = 0; i < N_PIECES; i++)
        if (m->pieces[i].copied)
            cudaEventDestroy(m->pieces[i].copied);
    for (uint32_t i = 0; i < N_FENCES; i++)
        if (m->fences[i])
            cudaEventDestroy(m->fences[i]);
    cudaFreeHost(m->staging);
    free(m->areas);
    free(m);
    c->memory = NULL;
}

/* ---- allocations ------------------------------------------------------------------------------- */

/* A shortage of memory is not fatal. Any other error makes the backend dead. */
static int refuse(struct k_backend *b, cudaError_t error, const char *kind, uint64_t bytes, struct quire_error *err)
{
    size_t available = 0, total = 0;
    if (error != cudaErrorMemoryAllocation)
        return cuda_check(b, error, "allocating memory", err);
    cudaGetLastError(); /* clears the error, so the next launch does not report it */
    cudaMemGetInfo(&available, &total);
    return quire_fail(err, QUIRE_NO_MEMORY,
                      "backend cuda: cannot allocate %s of %s memory; %s of the GPU's %s are free",
                      quire_size(bytes).text, kind, quire_size(available).text, quire_size(total).text);
}

/* Returns bytes rounded up; zero and too many bytes get substitutes. */
static size_t rounded(uint64_t bytes)
{
    uint64_t up = bytes + (bytes == 0 ? ALIGNMENT : (ALIGNMENT - bytes % ALIGNMENT) % ALIGNMENT);
    return up < bytes || up > SIZE_MAX ? SIZE_MAX / ALIGNMENT * ALIGNMENT : (size_t)up;
}

int cuda_alloc(struct k_backend *b, uint64_t bytes, void **dev, struct quire_error *err)
{
    *dev = NULL;
    int status = cuda_eager(b, "alloc", err);
    if (status != QUIRE_OK)
        return status;
    cudaError_t error = cudaMalloc(dev, rounded(bytes));
    if (error == cudaSuccess)
        return QUIRE_OK;
    *dev = NULL;
    return refuse(b, error, "GPU", bytes, err);
}

int cuda_alloc_host(struct k_backend *b, uint64_t bytes, void **host, struct quire_error *err)
{
    struct cuda_memory *m = cuda_of(b)->memory;
    *host = NULL;
    int status = cuda_eager(b, "alloc_host", err);
    if (status != QUIRE_OK)
        return status;
    if (m->n_areas == m->areas_capacity) {
        uint32_t capacity = m->areas_capacity ? 2 * m->areas_capacity : 16;
        struct host_area *areas = realloc(m->areas, capacity * sizeof *areas);
        if (!areas)
            return quire_fail(err, QUIRE_NO_MEMORY, "backend cuda: out of memory");
        m->areas = areas;
        m->areas_capacity = capacity;
    }
    cudaError_t error = cudaHostAlloc(host, rounded(bytes), cudaHostAllocPortable | cudaHostAllocMapped);
    if (error != cudaSuccess) {
        *host = NULL;
        return refuse(b, error, "pinned host", bytes, err);
    }
    m->areas[m->n_areas++] = (struct host_area){*host, rounded(bytes)};
    return QUIRE_OK;
}

/* Waits for queued work that may use the memory. Frees a dead backend's memory as far as CUDA allows. */
void cuda_free(struct k_backend *b, void *p)
{
    struct cuda_backend *c = cuda_of(b);
    struct cuda_memory *m = c->memory;
    if (!p)
        return;
    cuda_alive(b, NULL);
    cuda_drop_recording(b);
    cuda_check(b, cudaStreamSynchronize(c->stream), "freeing memory", NULL);
    for (uint32_t i = 0; i < m->n_areas; i++) {
        if (m->areas[i].data == p) {
            m->areas[i] = m->areas[--m->n_areas];
            cuda_check(b, cudaFreeHost(p), "freeing memory", NULL);
            return;
        }
    }
    cuda_check(b, cudaFree(p), "freeing memory", NULL);
}

static bool is_pinned(const struct cuda_memory *m, const void *p, uint64_t bytes)
{
    uintptr_t at = (uintptr_t)p;
    for (uint32_t i = 0; i < m->n_areas; i++) {
        uintptr_t begin = (uintptr_t)m->areas[i].data;
        if (at >= begin && at - begin < m->areas[i].bytes && bytes <= m->areas[i].bytes - (at - begin))
            return true;
    }
    return false;
}

/* ---- to the device ----------------------------------------------------------------------------- */

int cuda_stage(struct k_backend *b, uint64_t wanted, void **out, uint64_t *bytes, struct quire_error *err)
{
    struct cuda_backend *c = cuda_of(b);
    struct cuda_memory *m = c->memory;
    uint64_t left = PIECE_BYTES - m->piece_used;
    int status = cuda_eager(b, "an upload", err);
    if (status == QUIRE_OK && left < wanted && left < SMALLEST_SPLIT) {
        status = cuda_check(b, cudaEventRecord(m->pieces[m->piece].copied, c->stream), "an upload", err);
        m->pieces[m->piece].was_left = true;
        m->piece = (m->piece + 1) % N_PIECES;
        m->piece_used = 0;
        left = PIECE_BYTES;
        if (status == QUIRE_OK && m->pieces[m->piece].was_left)
            status = cuda_check(b, cudaEventSynchronize(m->pieces[m->piece].copied), "waiting for an upload", err);
    }
    if (status != QUIRE_OK)
        return status;
    *out = m->staging + (uint64_t)m->piece * PIECE_BYTES + m->piece_used;
    *bytes = wanted < left ? wanted : left;
    m->piece_used += (uint32_t)((*bytes + 63) / 64 * 64);
    return QUIRE_OK;
}

int cuda_upload(struct k_backend *b, void *dst_dev, const void *src, uint64_t bytes, struct quire_error *err)
{
    int status = cuda_eager(b, "an upload", err);
    for (uint64_t done = 0, n; done < bytes && status == QUIRE_OK; done += n) {
        void *staged;
        status = cuda_stage(b, bytes - done, &staged, &n, err);
        if (status != QUIRE_OK)
            return status;
        memcpy(staged, (const unsigned char *)src + done, (size_t)n);
        status = cuda_check(
            b,
            cudaMemcpyAsync((unsigned char *)dst_dev + done, staged, (size_t)n, cudaMemcpyDefault, cuda_of(b)->stream),
            "an upload", err);
    }
    return status;
}

int cuda_copy_in(struct k_backend *b, void *dst_dev, const void *src, uint64_t bytes, struct quire_error *err)
{
    int status = cuda_eager(b, "copy_in", err);
    if (status != QUIRE_OK || bytes == 0)
        return status;
    if (!is_pinned(cuda_of(b)->memory, src, bytes))
        return cuda_upload(b, dst_dev, src, bytes, err);
    return cuda_check(b, cudaMemcpyAsync(dst_dev, src, (size_t)bytes, cudaMemcpyDefault, cuda_of(b)->stream), "copy_in",
                      err);
}

/* ---- from the device --------------------------------------------------------------------------- */

int cuda_copy_out(struct k_backend *b, void *dst, const void *src_dev, uint64_t bytes, struct quire_error *err)
{
    cudaStream_t stream = cuda_of(b)->stream;
    int status = cuda_eager(b, "copy_out", err);
    if (status != QUIRE_OK || bytes == 0)
        return status;
    status = cuda_check(b, cudaMemcpyAsync(dst, src_dev, (size_t)bytes, cudaMemcpyDefault, stream), "copy_out", err);
    if (status == QUIRE_OK && !is_pinned(cuda_of(b)->memory, dst, bytes))
        status = cuda_check(b, cudaStreamSynchronize(stream), "copy_out", err);
    return status;
}

/* ---- tickets ----------------------------------------------------------------------------------- */

int cuda_fence(struct k_backend *b, uint64_t *ticket, struct quire_error *err)
{
    struct cuda_memory *m = cuda_of(b)->memory;
    int status = cuda_eager(b, "fence", err);
    if (status == QUIRE_OK)
        status = cuda_check(b, cudaEventRecord(m->fences[(m->last_ticket + 1) % N_FENCES], cuda_of(b)->stream), "fence",
                            err);
    if (status == QUIRE_OK)
        *ticket = ++m->last_ticket;
    return status;
}

int cuda_wait(struct k_backend *b, uint64_t ticket, struct quire_error *err)
{
    struct cuda_memory *m = cuda_of(b)->memory;
    int status = cuda_eager(b, "wait", err);
    if (status != QUIRE_OK)
        return status;
    if (ticket == 0 || ticket > m->last_ticket)
        return quire_fail(err, QUIRE_INVALID, "backend cuda: wait: no fence has returned this ticket");
    if (ticket <= m->done_ticket)
        return QUIRE_OK;
    uint64_t reached = m->last_ticket - (m->last_ticket - ticket) % N_FENCES; /* the event's current ticket */
    status = cuda_check(b, cudaEventSynchronize(m->fences[ticket % N_FENCES]), "waiting for the GPU", err);
    if (status != QUIRE_OK)
        return status;
    m->done_ticket = reached;
    return QUIRE_OK;
}
