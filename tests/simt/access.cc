/* Checks whether an access is allowed and ordered with respect to the others. Every load and store of an instrumented
 * kernel calls this file.
 *
 * Races are found by epochs, not by interleavings: __syncthreads begins a new epoch of the block, and __syncwarp one of
 * the warp. Two accesses to the same byte by different threads, one of them a write, race if no such operation is
 * between them. So the result does not depend on the order in which fibers ran. Shuffles, votes, ldmatrix and mma begin
 * no epoch: they order registers, not memory.
 */
#include <string.h>

#include "tests/simt/image.h"
#include "tests/simt/peer/peer.h"
#include "tests/simt/state.h"

extern __thread unsigned char k_shared[];

namespace simt
{

bool instrumented;
std::atomic<uint64_t> *releases;

/* Bits in Cell::writer and Cell::reader in addition to the thread's number. */
static constexpr uint16_t thread_bits = 0x3ff;
static constexpr uint16_t copy_pending = 0x8000, was_atomic = 0x4000; /* writer */
static constexpr uint16_t several_threads = 0x8000, several_warps = 0x4000, several_blocks = 0x2000; /* readers */

static const char *verb(Access kind)
{
    return kind == READ ? "read" : kind == ATOMIC ? "atomic" : "write";
}

namespace
{

/* One access of one thread. */
struct Event {
    Fiber *f;
    Access kind;
    const void *code;
    const char *space;

    /* Returns whether the thread is a different one, without a __syncwarp of its warp since. */
    bool unordered(uint16_t thread, uint16_t warp_epoch) const
    {
        thread &= thread_bits;
        return thread != f->index && (thread / 32 != f->index / 32 || warp_epoch == (uint16_t)f->warp->epoch);
    }
};

} // namespace

/* Checks a last write by this block. */
static void check_write_of_block(const Cell &c, const Event &e, size_t offset)
{
    unsigned writer = c.writer & thread_bits;
    if (c.writer & copy_pending)
        fault("CP_ASYNC_IN_FLIGHT", false, e.code, "%s of %s+%#zx before the copy of thread %u was waited for",
              verb(e.kind), e.space, offset, writer);
    else if (c.write_epoch == e.f->block->epoch && !(e.kind == ATOMIC && (c.writer & was_atomic)) &&
             e.unordered(c.writer, c.write_warp_epoch))
        fault("RACE", false, e.code, "%s of %s+%#zx after an unordered write by thread %u", verb(e.kind), e.space,
              offset, writer);
}

/* Checks last reads by this block before this write. */
static void check_reads_of_block(const Cell &c, const Event &e, size_t offset)
{
    if (c.read_epoch != e.f->block->epoch)
        return;
    bool same_warp_epoch = c.read_warp_epoch == (uint16_t)e.f->warp->epoch;
    if ((c.reader & several_warps) || e.unordered(c.reader, c.read_warp_epoch) ||
        ((c.reader & several_threads) && same_warp_epoch))
        fault("RACE", false, e.code, "write of %s+%#zx after an unordered read by thread %u", e.space, offset,
              c.reader & thread_bits);
}

static void note_read(Cell *c, const Event &e)
{
    const Block *b = e.f->block;
    uint16_t me = (uint16_t)e.f->index, warp_epoch = (uint16_t)e.f->warp->epoch, flags = 0;
    if (c->read_run >= b->first_run) /* in this launch: run numbers only grow */
        flags = c->read_run == b->run ? c->reader & several_blocks : several_blocks;
    if (c->read_run == b->run && c->read_epoch == b->epoch) {
        uint16_t last = c->reader & thread_bits;
        flags |= c->reader & (several_threads | several_warps);
        if (last / 32 != me / 32)
            flags |= several_warps;
        else if (last != me && c->read_warp_epoch == warp_epoch)
            flags |= several_threads;
        else if (c->read_warp_epoch != warp_epoch)
            flags &= (uint16_t)~several_threads;
    }
    c->read_run = b->run;
    c->read_epoch = b->epoch;
    c->read_warp_epoch = warp_epoch;
    c->reader = me | flags;
}

static void note_write(Cell *c, const Event &e)
{
    c->write_run = e.f->block->run;
    c->write_epoch = e.f->block->epoch;
    c->write_warp_epoch = (uint16_t)e.f->warp->epoch;
    c->writer = (uint16_t)(e.f->index | (e.kind == ATOMIC ? was_atomic : 0) |
                           (e.kind == COPY_ISSUED ? copy_pending : 0));
}

static void note(Cell *c, const Event &e)
{
    if (e.kind == READ)
        note_read(c, e);
    else
        note_write(c, e);
}

/* Bytes of one access mostly have the same history. The result for the previous byte, and its new state, then also hold
 * for this one, and a fault is reported once per place in the code. This saves three quarters of the cost of tracking
 * accesses. */
struct LastByte {
    Cell before, after;
    bool is_there = false;

    bool is_like(const Cell &c) const
    {
        return is_there && !memcmp(&c, &before, sizeof c);
    }
};

static void check_shared(Cell *cells, size_t offset, size_t bytes, const Event &e)
{
    uint32_t run = e.f->block->run;
    LastByte last;
    for (size_t i = offset; i < offset + bytes; i++) {
        Cell &c = cells[i];
        if (last.is_like(c)) {
            c = last.after;
            continue;
        }
        last.before = c;
        if (e.kind != COPY_LANDED) {
            if (c.write_run == run)
                check_write_of_block(c, e, i);
            else if (e.kind == READ || e.kind == ATOMIC)
                fault("UNINIT_SHARED", false, e.code, "read of shared+%#zx, never written in this block", i);
            if (e.kind != READ && c.read_run == run)
                check_reads_of_block(c, e, i);
        }
        note(&c, e);
        last.after = c;
        last.is_there = true;
    }
}

/* An atomic on global memory releases the block's earlier writes if a fence is between: writes of epochs before the
 * first one without a fence, and the thread's own writes of this epoch. Stored as that epoch and, if its own writes are
 * released, the thread. */
static void release(const Fiber *f)
{
    const Block *b = f->block;
    int epoch = b->epoch;
    for (unsigned i = 0; i < b->n_threads; i++)
        if (b->fibers[i].unfenced >= 0 && b->fibers[i].unfenced < epoch)
            epoch = b->fibers[i].unfenced;
    bool has_own = epoch == b->epoch && f->unfenced < 0;
    releases[b->run - b->first_run] = (uint64_t)epoch << 32 | (has_own ? f->index + 1 : 0);
}

/* Returns whether the block that wrote the byte has released it. */
static bool is_released(const Cell &c, const Block *b)
{
    uint64_t released = releases[c.write_run - b->first_run];
    uint32_t epoch = (uint32_t)(released >> 32), own = (uint32_t)released;
    return c.write_epoch < epoch || (c.write_epoch == epoch && own == (c.writer & thread_bits) + 1u);
}

/* Blocks of one launch are not ordered, unless one releases and another acquires (fence() in fiber.cc). Atomics are
 * assumed to be correct. */
static void check_global(Cell *cells, size_t first, size_t bytes, const Event &e)
{
    Block *b = e.f->block;
    if (e.kind == ATOMIC) {
        if (!b->has_ticket)
            b->ticket_epoch = b->epoch;
        b->has_ticket = e.f->took_ticket = true;
        release(e.f);
        return;
    }
    if (e.kind != READ) {
        e.f->last_write = b->epoch;
        e.f->unfenced = e.f->unfenced < 0 ? b->epoch : e.f->unfenced;
    }
    LastByte last;
    for (size_t i = 0; i < bytes; i++) {
        Cell &c = cells[i];
        size_t offset = first + i;
        if (last.is_like(c)) {
            c = last.after;
            continue;
        }
        last.before = c;
        if (c.write_run == b->run)
            check_write_of_block(c, e, offset);
        else if (c.write_run >= b->first_run && (e.kind != READ || !b->acquired))
            fault("RACE_BLOCKS", false, e.code, "%s of global+%#zx, which block #%u of this launch wrote", verb(e.kind),
                  offset, c.write_run - b->first_run);
        else if (c.write_run >= b->first_run && !is_released(c, b))
            fault("RACE_BLOCKS", false, e.code,
                  "read of global+%#zx, which block #%u wrote with no fence before its atomic", offset,
                  c.write_run - b->first_run);
        if (e.kind != READ && c.read_run == b->run)
            check_reads_of_block(c, e, offset);
        if (e.kind != READ && c.read_run >= b->first_run && (c.read_run != b->run || (c.reader & several_blocks)))
            fault("RACE_BLOCKS", false, e.code, "write of global+%#zx, which another block of this launch read",
                  offset);
        note(&c, e);
        last.after = c;
        last.is_there = true;
    }
}

static void access_device(const char *p, size_t bytes, Where where, const Allocation *allocation, const Event &e)
{
    if (where != LIVE || p < allocation->begin || p + bytes > allocation->begin + allocation->bytes) {
        const char *kind = where == FREED ? "USE_AFTER_FREE" : "OOB_GLOBAL";
        if (!allocation)
            fault(kind, true, e.code, "%s of %zu bytes at %p before the first allocation", verb(e.kind), bytes, p);
        fault(kind, true, e.code, "%s of %zu bytes at offset %td of an allocation of %zu bytes", verb(e.kind), bytes,
              p - allocation->begin, allocation->bytes);
    }
    check_global(device_cells(p), (size_t)(p - allocation->begin), bytes, e);
    if (allocation->peer)
        peer_access(allocation->peer, p, bytes, e.kind != READ, e.code);
}

static void access_tls(size_t offset, const char *p, size_t bytes, const Event &e)
{
    Block *b = e.f->block;
    const std::vector<uint8_t> &kinds = b->image->tls;
    switch (kinds[offset]) {
    case TLS_HOST: /* the emulator's own variables */ return;
    case TLS_DYNAMIC_SHARED: {
        size_t in_shared = (size_t)(p - (const char *)k_shared);
        if (in_shared + bytes > b->launch->smem)
            fault("OOB_SHARED", true, e.code, "%s of %zu bytes at dynamic shared offset %zu of %zu", verb(e.kind),
                  bytes, in_shared, b->launch->smem);
        break;
    }
    case TLS_STATIC_SHARED:
        if (offset + bytes <= kinds.size() && kinds[offset + bytes - 1] == TLS_STATIC_SHARED)
            break;
        [[fallthrough]];
    default: fault("OOB_SHARED", true, e.code, "%s of %zu bytes between static shared objects", verb(e.kind), bytes);
    }
    check_shared(b->shared_cells.data(), offset, bytes, e);
}

void access(const void *address, size_t bytes, Access kind, const void *code)
{
    Fiber *f = this_fiber();
    if (!f || !bytes)
        return; /* host code of an instrumented file */
    Block *b = f->block;
    uintptr_t p = (uintptr_t)address;
    if (p - (uintptr_t)f->stack < stack_bytes)
        return;
    if (kind == READ && p - (uintptr_t)b < sizeof *b)
        return; /* threadIdx and similar variables */

    Event e = {f, kind, code, "shared"};
    size_t in_tls = p - (uintptr_t)b->tls;
    const Image &image = *b->image;
    if (in_tls < image.tls.size())
        return access_tls(in_tls, (const char *)address, bytes, e);
    e.space = "global";
    const Allocation *allocation;
    Where where = find_device(address, &allocation);
    if (where != ELSEWHERE)
        return access_device((const char *)address, bytes, where, allocation, e);
    bool constant = p - (uintptr_t)b->launch->arg < b->launch->argsz || p - image.low < image.high - image.low;
    if (constant && kind == READ)
        return;
    fault("WILD", true, code, "%s of %zu bytes at %p: not memory of the device", verb(kind), bytes, address);
}

} // namespace simt
