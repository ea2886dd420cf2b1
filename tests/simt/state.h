/* The emulator's internal structs: fibers, warps and blocks, and how they stop. Kernels do not see them. */
#ifndef QUIRE_TESTS_SIMT_STATE_H
#define QUIRE_TESTS_SIMT_STATE_H

#include <stddef.h>
#include <stdint.h>

#include <vector>

#include "tests/simt/memory.h"
#include "tests/simt/simt.h"

namespace simt
{

constexpr size_t stack_bytes = 64 * 1024;
constexpr unsigned max_threads = 1024;
constexpr size_t max_shared_bytes = 232448; /* 227 KiB: the maximum of a block on sm_90 */

struct Warp;
struct Block;
struct Image;

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
    /* Epochs of its first write of global memory that no fence follows, and of its last write; -1: no such write. */
    int unfenced, last_write;
    const char *waits_in, *waits_file; /* for the report of a deadlock */
    int waits_line;
};

/* Lanes that have arrived at a collective and wait for the rest of its mask. */
struct Meeting {
    unsigned mask, arrived;
    Op op;
    int line;
    const char *file;
    void *argument[32];
};

struct Warp {
    unsigned ready, alive; /* masks of lanes */
    unsigned epoch; /* number of __syncwarps */
    unsigned open; /* mask of the meetings that wait for lanes */
    Meeting meetings[8];
};

/* The block that an OS thread runs. All of its threads are fibers of that OS thread. */
struct Block : BlockIndices {
    const Launch *launch;
    uint32_t run, first_run; /* this block's number among all blocks ever run; that of the launch's block 0 */
    unsigned n_threads, n_warps, n_exited;
    unsigned ready; /* mask of warps with a ready lane */
    unsigned n_at_barrier;
    int barrier_sum, barrier_result, barrier_line;
    const char *barrier_file;
    uint16_t epoch; /* number of __syncthreads */
    uint16_t ticket_epoch; /* the first epoch in which a thread did an atomic on global memory */
    bool has_ticket, acquired; /* a thread did an atomic; a fence followed */
    unsigned random;
    void *scheduler; /* the stack pointer of the OS thread's own stack */
    char *stacks; /* max_threads stacks */
    unsigned n_stacks; /* in use or in free_stacks */
    unsigned n_free_stacks;
    char *free_stacks[max_threads];
    char *tls;
    const Image *image;
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
/* Suspends the calling fiber until another one makes it ready. */
void wait_here(Fiber *f, const char *what, int line, const char *file);
[[noreturn]] void abandon_block(Block *b);

/* ---- mma.cc ---- */
void mma_f16(const Meeting &m); /* for all lanes of the warp */
void mma_s8(const Meeting &m);

/* ---- fault.cc ---- */
/* Records a fault. A fatal one ends the block. code: the address of the faulty code, or nullptr. */
__attribute__((format(printf, 4, 5))) void fault(const char *kind, bool fatal, const void *code, const char *format,
                                                 ...);

} // namespace simt

#endif
