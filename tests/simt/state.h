/* What the emulator's own files share: fibers, warps and blocks. Kernels see none of this. */
#ifndef QUIRE_TESTS_SIMT_STATE_H
#define QUIRE_TESTS_SIMT_STATE_H

#include <stddef.h>
#include <stdint.h>

#include <atomic>
#include <vector>

#include "tests/simt/simt.h"

namespace simt
{

constexpr size_t stack_bytes = 64 * 1024;
constexpr unsigned max_threads = 1024;
constexpr size_t max_shared_bytes = 232448; /* 227 KiB: what a block of sm_90 may ask for */

struct Warp;
struct Block;

struct Copy {
    void *dst;
    const void *src;
    unsigned bytes, group;
};

/* One CUDA thread. */
struct alignas(128) Fiber : Thread {
    void *stack_pointer; /* while it does not run; nullptr: it has not begun */
    char *stack;
    Block *block;
    Warp *warp;
    unsigned index;      /* in the block */
    std::vector<Copy> copies;
    unsigned copy_group;
    bool took_ticket; /* did an atomic on global memory */
    int unfenced,
        last_write; /* epochs of its first write of global memory that no fence is behind, and of its last; -1: none */
    const char *waits_in, *waits_file; /* for the report of a deadlock */
    int waits_line;
};

/* Lanes that have come to a collective and wait for the rest of its mask. */
struct Meeting {
    unsigned mask, arrived;
    Op op;
    int line;
    const char *file;
    void *argument[32];
};

struct Warp {
    unsigned ready, alive; /* masks of lanes */
    unsigned epoch; /* __syncwarps so far */
    unsigned open; /* mask of the meetings that wait for lanes */
    Meeting meetings[8];
};

/* Who wrote and who read a byte last. A byte and no more: threads that write adjacent bytes do not race. Run and epochs
 * say when, and only grow, so that nothing is ever reset. */
struct Cell {
    uint32_t write_run, read_run;
    uint16_t write_epoch, read_epoch;
    uint16_t write_warp_epoch, read_warp_epoch;
    uint16_t writer, reader; /* thread, and the flags of access.cc */
};

/* The block that an OS thread runs: all of its threads are fibers of that OS thread. */
struct Block : BlockIndices {
    const Launch *launch;
    uint32_t run, first_run; /* this block's number among all blocks ever run; that of the launch's block 0 */
    unsigned n_threads, n_warps, n_exited;
    unsigned ready; /* mask of warps with a ready lane */
    unsigned n_at_barrier;
    int barrier_sum, barrier_result, barrier_line;
    const char *barrier_file;
    uint16_t epoch; /* __syncthreads so far */
    uint16_t ticket_epoch; /* the first one in which a thread did an atomic on global memory */
    bool has_ticket, acquired; /* a thread did; a fence came behind it */
    unsigned random;
    void *scheduler; /* the stack pointer of the OS thread's own stack */
    char *stacks; /* max_threads of them */
    unsigned n_stacks; /* in use or in free_stacks */
    unsigned n_free_stacks;
    char *free_stacks[max_threads];
    char *tls;
    const struct Image *image;
    std::vector<Cell> shared_cells; /* of the thread-local segment */
    Warp warps[max_threads / 32];
    Fiber fibers[max_threads];
};

inline Fiber *this_fiber()
{
    return static_cast<Fiber *>(simt_thread);
}

/* ---- fiber.cc ---- */
void run_block(const Launch &launch, unsigned index, uint32_t first_run);
/* The calling fiber waits for one that makes it ready again. */
void wait_here(Fiber *f, const char *what, int line, const char *file);
[[noreturn]] void abandon_block(Block *b);

/* ---- mma.cc ---- */
void mma_f16(const Meeting &m); /* for all lanes of the warp */
void mma_s8(const Meeting &m);

/* ---- fault.cc ---- */
/* Records a fault; a fatal one ends the block. code: the address that is to blame, or nullptr. */
__attribute__((format(printf, 4, 5))) void fault(const char *kind, bool fatal, const void *code, const char *format,
                                                 ...);

/* ---- access.cc ---- */
enum Access { READ, WRITE, ATOMIC, COPY_ISSUED, COPY_LANDED };
extern bool instrumented; /* some kernel was built with the hooks */
/* What each block of the launch has released so far (access.cc); 0: nothing. */
extern std::atomic<uint64_t> *releases;
void access(const void *p, size_t bytes, Access kind, const void *code);

/* ---- memory.cc ---- */
struct PeerMemory;
struct Allocation {
    char *begin;
    size_t bytes;
    PeerMemory *peer; /* where other processes reach it (peer/peer.h); else nullptr */
};
/* Whether p lies where device memory is handed out; *allocation is then the one that p is in or was in (freed), or
 * the last one before it (bytes of no allocation), or null. */
enum Where { ELSEWHERE, LIVE, FREED, BETWEEN };
Where find_device(const void *p, const Allocation **allocation);
/* An allocation of `bytes`, `first` bytes into so many whole pages of addresses, for who maps something there; nullptr: there
 * are none. dev_forget() ends it. */
Allocation *dev_reserve(size_t page_bytes, size_t first, size_t bytes);
/* Of these whole pages a little is touched here and there, as peers do: no large pages of cells, to clear which took
 * kernels_cuda_group_test 40 s of the system's time. */
void dev_expect_little(const void *begin, size_t bytes);
void dev_forget(Allocation *a);
/* The cells of device memory from p on; only where instrumented. */
Cell *device_cells(const void *p);

/* ---- image.cc ---- */
enum TlsKind : uint8_t { TLS_GAP, TLS_STATIC_SHARED, TLS_HOST, TLS_DYNAMIC_SHARED };
struct Image {
    uintptr_t base, low, high; /* where it was loaded; its segments */
    std::vector<uint8_t> tls; /* a TlsKind for each byte of the thread-local segment */
    struct Span {
        size_t offset, bytes;
    };
    std::vector<Span> static_shared;
};
const Image &image();
char *image_tls(); /* the calling OS thread's */

} // namespace simt

#endif
