/* The threads of a block: fibers of one OS thread, which switch to one another only at barriers and warp operations.
 *
 * A switch costs 6 to 15 ns, so a warp's shuffle costs about 0.7 us. There is no separate scheduler: a fiber that must
 * wait picks the next one itself. A thread gets a stack when it begins, and leaves it to the next thread when it ends.
 * So the threads of a kernel without barriers are calls in a loop, on one stack that stays in the cache.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <map>
#include <memory>
#include <string>

#include "tests/simt/image.h"
#include "tests/simt/state.h"

__thread simt::Thread *simt_thread;
/* k_shared of every kernel (kernels/cuda/device.cuh). */
extern __thread unsigned char k_shared[];
alignas(1024) __thread unsigned char k_shared[simt::max_shared_bytes];

/* Saves the registers that a call must preserve and the stack pointer, and continues where another fiber did so. */
extern "C" void simt_switch(void **save_stack_pointer, void *stack_pointer);
asm(R"(
.text
.p2align 5
.type simt_switch,@function
simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size simt_switch,.-simt_switch
)");

namespace simt
{

static int setting(const char *name, const char *const *words, int n_words)
{
    const char *value = getenv(name);
    for (int i = 0; value && i < n_words; i++)
        if (!strcmp(value, words[i]))
            return i;
    return value ? atoi(value) : 0;
}

static const char *const order_names[] = {"forward", "reverse", "random"};
int order = setting("QUIRE_SIMT_ORDER", order_names, 3);
int os_threads = setting("QUIRE_SIMT_THREADS", nullptr, 0);

constexpr size_t stacks_bytes = max_threads * (stack_bytes + 320); /* new_stack() */

struct DeleteBlock {
    void operator()(Block *b) const
    {
        munmap(b->stacks, stacks_bytes);
        delete b;
    }
};

static thread_local std::unique_ptr<Block, DeleteBlock> block_of_os_thread;

static unsigned first_lanes(unsigned n)
{
    return n >= 32 ? ~0u : (1u << n) - 1;
}

/* Returns one set bit of a mask, with equal probability for each. */
static unsigned random_bit(Block *b, unsigned mask)
{
    b->random = b->random * 1664525u + 1013904223u;
    unsigned turn = b->random >> 27;
    unsigned turned = turn ? mask >> turn | mask << (32 - turn) : mask;
    return ((unsigned)__builtin_ctz(turned) + turn) & 31;
}

static unsigned end_bit(unsigned mask)
{
    return (unsigned)(order == ORDER_REVERSE ? 31 - __builtin_clz(mask) : __builtin_ctz(mask));
}

/* Returns the fiber to run after lane `lane` of warp w, or nullptr if no fiber is ready. */
static Fiber *pick(Block *b, unsigned w, unsigned lane)
{
    if (!b->ready)
        return nullptr;
    if (order == ORDER_RANDOM) {
        w = random_bit(b, b->ready);
        return &b->fibers[w * 32 + random_bit(b, b->warps[w].ready)];
    }
    unsigned lanes = b->warps[w].ready;
    if (!lanes) {
        w = end_bit(b->ready);
        lanes = b->warps[w].ready;
    } else if (order == ORDER_FORWARD && (lanes & ~((2u << lane) - 1))) {
        lanes &= ~((2u << lane) - 1); /* first the lanes after this one */
    }
    return &b->fibers[w * 32 + end_bit(lanes)];
}

static void not_ready(Fiber *f)
{
    f->warp->ready &= ~(1u << f->lane);
    if (!f->warp->ready)
        f->block->ready &= ~(1u << f->index / 32);
}

static void deadlock(Block *b)
{
    std::map<std::string, int> waiting;
    for (unsigned i = 0; i < b->n_threads; i++) {
        Fiber &f = b->fibers[i];
        if (f.warp->alive >> f.lane & 1)
            waiting[std::string(f.waits_in) + " at " + f.waits_file + ":" + std::to_string(f.waits_line)]++;
    }
    std::string text;
    for (auto &[place, n] : waiting)
        text += std::to_string(n) + " threads wait in " + place + "; ";
    fault("DEADLOCK", true, nullptr, "%s%u exited", text.c_str(), b->n_exited);
}

/* Allocates the stack after the others, with an offset of 320 bytes from a power of two: stacks with equal offsets
 * would share a few sets of the L1 cache (57 ns for a switch among 1,024 fibers, instead of 15). */
static char *new_stack(Block *b)
{
    if (b->n_free_stacks)
        return b->free_stacks[--b->n_free_stacks];
    return b->stacks + b->n_stacks++ * (stack_bytes + 320);
}

static void begin_on(Fiber *f, char *stack)
{
    f->stack = stack;
    f->copies.clear();
    f->copy_group = 0;
    f->took_ticket = false;
}

static void fiber_main();

static void switch_to(Fiber *next, void **save)
{
    if (!next->stack_pointer) {
        begin_on(next, new_stack(next->block));
        void **sp = (void **)(next->stack + stack_bytes);
        *--sp = nullptr;
        *--sp = (void *)fiber_main; /* simt_switch returns into it */
        next->stack_pointer = sp - 6;
    }
    simt_thread = next;
    simt_switch(save, next->stack_pointer);
}

void wait_here(Fiber *f, const char *what, int line, const char *file)
{
    f->waits_in = what;
    f->waits_file = file;
    f->waits_line = line;
    not_ready(f);
    Fiber *next = pick(f->block, f->index / 32, f->lane);
    if (__builtin_expect(!next, 0))
        deadlock(f->block);
    switch_to(next, &f->stack_pointer);
}

void abandon_block(Block *b)
{
    void *lost;
    simt_thread = nullptr;
    simt_switch(&lost, b->scheduler);
    __builtin_unreachable();
}

int barrier(int predicate, int line, const char *file)
{
    Fiber *f = this_fiber();
    Block *b = f->block;
    if (b->n_exited)
        fault("DIVERGENT_BARRIER", true, nullptr, "__syncthreads at %s:%d after %u threads exited", file, line,
              b->n_exited);
    if (!b->n_at_barrier) {
        b->barrier_line = line;
        b->barrier_file = file;
        b->barrier_sum = 0;
    } else if (b->barrier_line != line || (b->barrier_file != file && strcmp(b->barrier_file, file))) {
        fault("DIVERGENT_BARRIER", true, nullptr, "__syncthreads at %s:%d while %u threads wait at %s:%d", file, line,
              b->n_at_barrier, b->barrier_file, b->barrier_line);
    }
    b->barrier_sum += predicate != 0;
    if (++b->n_at_barrier < b->n_threads) {
        wait_here(f, "__syncthreads", line, file);
        return b->barrier_result; /* the next barrier writes it only after this thread has arrived there */
    }
    b->barrier_result = b->barrier_sum;
    b->n_at_barrier = 0;
    b->epoch++;
    for (unsigned w = 0; w < b->n_warps; w++)
        b->warps[w].ready = b->warps[w].alive;
    b->ready = first_lanes(b->n_warps);
    return b->barrier_result;
}

unsigned active_mask()
{
    return this_fiber()->warp->alive;
}

/* An atomic on global memory followed by a fence acquires: the block may read data that other blocks released by theirs
 * ("the last block merges"). "Followed by" means in the same thread, or after a barrier. This is a heuristic: the
 * identity and address of the atomic are not tracked. A fence also covers the thread's writes so far, and the other
 * threads' writes before the last barrier. */
void fence()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    Fiber *f = this_fiber();
    Block *b = f->block;
    b->acquired |= f->took_ticket || (b->has_ticket && b->ticket_epoch != b->epoch);
    for (unsigned i = 0; instrumented && i < b->n_threads; i++) {
        Fiber &other = b->fibers[i];
        if (&other == f || other.last_write < b->epoch)
            other.unfenced = -1;
        else if (other.unfenced >= 0)
            other.unfenced = b->epoch;
    }
}

/* Ends thread f. Returns the next one, or nullptr when the block is done. */
static Fiber *end_thread(Fiber *f)
{
    Block *b = f->block;
    if (b->n_at_barrier)
        fault("DIVERGENT_BARRIER", true, nullptr, "thread exits while %u threads wait in __syncthreads at %s:%d",
              b->n_at_barrier, b->barrier_file, b->barrier_line);
    if (!f->copies.empty())
        fault("CP_ASYNC_LEFT", false, nullptr, "thread exits with %zu copies never waited for", f->copies.size());
    b->n_exited++;
    f->warp->alive &= ~(1u << f->lane);
    not_ready(f);
    Fiber *next = pick(b, f->index / 32, f->lane);
    if (!next && b->n_exited < b->n_threads)
        deadlock(b);
    return next;
}

/* The main function of each stack: runs one thread, and then others that have not begun. */
static void fiber_main()
{
    Fiber *f = this_fiber();
    for (;;) {
        const Launch *launch = f->block->launch;
        launch->fn(launch->arg);
        Fiber *next = end_thread(f);
        if (!next)
            abandon_block(f->block);
        if (next->stack_pointer) {
            f->block->free_stacks[f->block->n_free_stacks++] = f->stack;
            switch_to(next, &f->stack_pointer);
        }
        begin_on(next, f->stack);
        next->stack_pointer = f->stack; /* it has begun; its position is saved when it waits */
        simt_thread = f = next;
    }
}

static Block *new_block()
{
    Block *b = new Block();
    b->random = 12345;
    b->stacks = (char *)mmap(nullptr, stacks_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                             -1, 0);
    if (b->stacks == MAP_FAILED)
        abort();
    b->tls = image_tls();
    b->image = &image();
    if (instrumented)
        b->shared_cells.resize(b->image->tls.size());
    for (unsigned i = 0; i < max_threads; i++) {
        Fiber &f = b->fibers[i];
        f.lane = i % 32;
        f.indices = b;
        f.block = b;
        f.warp = &b->warps[i / 32];
        f.index = i;
    }
    return b;
}

static void set_dimensions(Block *b, const dim3 &dim)
{
    b->block_dim = dim;
    b->n_threads = dim.x * dim.y * dim.z;
    b->n_warps = (b->n_threads + 31) / 32;
    for (unsigned i = 0; i < b->n_threads; i++)
        b->fibers[i].thread_idx = {i % dim.x, i / dim.x % dim.y, i / dim.x / dim.y};
}

/* Fills a block's shared memory with NaN. The static objects of every kernel are cleared, because nothing identifies
 * this kernel's objects. That can be much memory; without instrumentation, speed matters more. */
static void poison_shared(Block *b)
{
    memset(k_shared, 0xff, b->launch->smem);
    if (instrumented)
        for (auto &span : b->image->static_shared)
            memset(b->tls + span.offset, 0xff, span.bytes);
}

void run_block(const Launch &launch, unsigned index, uint32_t first_run)
{
    if (!block_of_os_thread)
        block_of_os_thread.reset(new_block());
    Block *b = block_of_os_thread.get();
    b->launch = &launch;
    b->first_run = first_run;
    b->run = first_run + index;
    b->grid_dim = launch.grid;
    b->block_idx = {index % launch.grid.x, index / launch.grid.x % launch.grid.y,
                    index / launch.grid.x / launch.grid.y};
    if (!b->n_threads || memcmp(&b->block_dim, &launch.block, sizeof launch.block))
        set_dimensions(b, launch.block);
    b->n_exited = b->n_at_barrier = b->n_stacks = b->n_free_stacks = 0;
    b->epoch = 0;
    b->has_ticket = b->acquired = false;
    b->ready = first_lanes(b->n_warps);
    poison_shared(b);
    for (unsigned w = 0; w < b->n_warps; w++) {
        Warp &warp = b->warps[w];
        warp.ready = warp.alive = first_lanes(b->n_threads - w * 32);
        warp.epoch = warp.open = 0;
    }
    for (unsigned i = 0; i < b->n_threads; i++) {
        b->fibers[i].stack_pointer = nullptr;
        b->fibers[i].unfenced = b->fibers[i].last_write = -1;
    }
    unsigned w = end_bit(b->ready);
    switch_to(order == ORDER_RANDOM ? pick(b, 0, 0) : &b->fibers[w * 32 + end_bit(b->warps[w].ready)], &b->scheduler);
}

} // namespace simt
