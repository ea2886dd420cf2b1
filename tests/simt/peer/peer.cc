/* See peer.h. A record is locked while it is read. A process that dies meanwhile leaves the lock taken; others wait at
 * most MOST_YIELDS. */
#include "tests/simt/peer/peer.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

namespace simt
{

namespace
{

constexpr uint32_t magic = 0x52454550; /* "PEER" */
constexpr size_t page = 4096;
constexpr unsigned max_processes = 8, MOST_YIELDS = 100000;

struct Stamp {
    uint32_t process, launch; /* process 0: no access */
    uint16_t block, epoch, thread;
    bool is_several; /* several threads of the launch */
};

struct Record {
    uint32_t lock;
    Stamp write, released;
    Stamp reads[max_processes];
};

/* The stamp that a block acquired from a process, and the time. */
struct Knowledge {
    Stamp of;
    uint32_t launch;
    uint16_t epoch, thread;
};
constexpr unsigned n_kept = 2; /* the last, and the one before, which may still apply to other threads */
struct BlockKnowledge {
    Knowledge kept[max_processes][n_kept];
};

uint32_t processes[max_processes]; /* in order of first use */
std::vector<BlockKnowledge> known; /* per block of a launch */
uint32_t known_launch[max_processes]; /* all of the process' launches before this one */
uint32_t launch_number;

class Locked
{
  public:
    explicit Locked(Record *r) : r_(r)
    {
        for (unsigned i = 0; __atomic_exchange_n(&r->lock, 1, __ATOMIC_ACQUIRE) && i < MOST_YIELDS; i++)
            sched_yield();
    }
    ~Locked()
    {
        __atomic_store_n(&r_->lock, 0, __ATOMIC_RELEASE);
    }

  private:
    Record *r_;
};

unsigned slot_of(uint32_t process)
{
    for (unsigned i = 0; i < max_processes; i++) {
        uint32_t nobody = 0;
        if (__atomic_load_n(&processes[i], __ATOMIC_ACQUIRE) == process ||
            __atomic_compare_exchange_n(&processes[i], &nobody, process, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ||
            nobody == process)
            return i;
    }
    fault("PEERS", true, nullptr, "more than %u processes share memory", max_processes);
    return 0;
}

uint32_t self()
{
    static const uint32_t process = (uint32_t)getpid();
    return process;
}

unsigned block_of(const Fiber *f)
{
    return f->block->run - f->block->first_run;
}

Stamp stamp_of(const Fiber *f)
{
    return {self(), launch_number, (uint16_t)block_of(f), f->block->epoch, (uint16_t)f->index, false};
}

/* Returns whether the knowledge k applies to the thread now. */
bool counts(const Knowledge &k, const Fiber *f)
{
    return k.of.process && (k.launch != launch_number || k.epoch < f->block->epoch || k.thread == f->index);
}

bool covers(const Stamp &released, const Stamp &s)
{
    if (s.launch != released.launch)
        return s.launch < released.launch;
    return !s.is_several && s.block == released.block &&
           (s.epoch < released.epoch || (s.epoch == released.epoch && s.thread == released.thread));
}

/* Returns whether another process' access is ordered before the running thread. */
bool is_known(const Stamp &s, const Fiber *f)
{
    if (s.process == 0 || s.process == self())
        return true;
    unsigned slot = slot_of(s.process);
    if (s.launch < known_launch[slot])
        return true;
    for (const Knowledge &k : known[block_of(f)].kept[slot])
        if (counts(k, f) && covers(k.of, s))
            return true;
    return false;
}

void note_read(Record *r, const Stamp &mine)
{
    Stamp &last = r->reads[slot_of(mine.process)];
    bool same_launch = last.process == mine.process && last.launch == mine.launch;
    bool is_other = last.block != mine.block || last.thread != mine.thread;
    bool is_several = same_launch && (last.is_several || (is_other && last.epoch == mine.epoch));
    last = mine;
    last.is_several = is_several;
}

void take_over(const Stamp &released, const Fiber *f)
{
    if (released.process == 0 || released.process == self())
        return;
    Knowledge *kept = known[block_of(f)].kept[slot_of(released.process)];
    kept[1] = kept[0];
    kept[0] = {released, launch_number, f->block->epoch, (uint16_t)f->index};
}

} // namespace

struct PeerMemory {
    char *first; /* start of the file, page-aligned, in this process */
    Record *records; /* one per word */
    size_t file_bytes;
    int fd;

    Record *record(const void *p)
    {
        return records + ((const char *)p - first) / 4;
    }
};

/* ---- handles ---- */

static PeerMemory *map_records(int fd, size_t file_bytes, char *first)
{
    size_t bytes = file_bytes / 4 * sizeof(Record);
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, (off_t)file_bytes);
    return p == MAP_FAILED ? nullptr : new PeerMemory{first, (Record *)p, file_bytes, fd};
}

const char *host_name()
{
    const char *name = getenv("QUIRE_SIMT_HOST");
    return name ? name : "";
}

bool peer_export(void *p, PeerHandle *out)
{
    const Allocation *found;
    if (find_device(p, &found) != LIVE || found->begin != p)
        return false;
    Allocation *a = const_cast<Allocation *>(found);
    char *begin = (char *)((uintptr_t)a->begin & ~(uintptr_t)(page - 1));
    size_t bytes = ((size_t)(a->begin - begin) + a->bytes + page - 1) / page * page;
    if (!a->peer) {
        dev_expect_little(begin, bytes);
        int fd = memfd_create("simt device memory", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, (off_t)(bytes + bytes / 4 * sizeof(Record))) != 0 ||
            pwrite(fd, begin, bytes, 0) != (ssize_t)bytes ||
            mmap(begin, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
            return false;
        a->peer = map_records(fd, bytes, begin);
    }
    if (!a->peer)
        return false;
    *out = {magic, self(), a->peer->fd, {}, (uint32_t)(a->begin - begin), a->bytes, bytes};
    snprintf(out->host, sizeof out->host, "%s", host_name());
    return true;
}

void *peer_import(const PeerHandle &h)
{
    char name[64];
    if (h.magic != magic || h.process == self())
        return nullptr;
    if (strncmp(h.host, host_name(), sizeof h.host - 1) != 0) /* CUDA's behaviour is unknown in this case */
        fault("PEERS", true, nullptr, "memory of host %.8s is to be reached from %s", h.host, host_name());
    snprintf(name, sizeof name, "/proc/%u/fd/%d", h.process, h.fd);
    int fd = open(name, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return nullptr;
    Allocation *a = dev_reserve(h.file_bytes, h.first, h.bytes);
    char *begin = a ? a->begin - h.first : nullptr;
    if (!a || mmap(begin, h.file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        close(fd);
        return nullptr;
    }
    dev_expect_little(begin, h.file_bytes);
    a->peer = map_records(fd, h.file_bytes, begin);
    return a->peer ? a->begin : nullptr;
}

void peer_release(void *p)
{
    const Allocation *found;
    if (find_device(p, &found) != LIVE || !found->peer)
        return;
    Allocation *a = const_cast<Allocation *>(found);
    mmap(a->peer->first, a->peer->file_bytes, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    munmap(a->peer->records, a->peer->file_bytes / 4 * sizeof(Record));
    close(a->peer->fd);
    delete a->peer;
    a->peer = nullptr;
    dev_forget(a);
}

/* ---- accesses ---- */

void peer_launch_begins(unsigned n_blocks)
{
    launch_number++;
    for (const BlockKnowledge &b : known)
        for (unsigned i = 0; i < max_processes; i++)
            for (const Knowledge &k : b.kept[i])
                known_launch[i] = std::max(known_launch[i], k.of.launch);
    if (known.size() < n_blocks)
        known.resize(n_blocks, BlockKnowledge{});
}

/* Returns the first access of another process in the record that is not ordered before the thread. */
static Stamp find_unknown(const Record *r, bool is_write, const Fiber *f)
{
    if (!is_known(r->write, f))
        return r->write;
    for (unsigned i = 0; is_write && i < max_processes; i++)
        if (!is_known(r->reads[i], f))
            return r->reads[i];
    return {};
}

void peer_access(PeerMemory *memory, const void *p, size_t bytes, bool is_write, const void *code)
{
    Fiber *f = this_fiber();
    const Stamp mine = stamp_of(f);
    for (const char *at = (const char *)((uintptr_t)p & ~(uintptr_t)3); at < (const char *)p + bytes; at += 4) {
        Record *r = memory->record(at);
        Stamp other = {};
        {
            Locked lock(r);
            other = find_unknown(r, is_write, f);
            if (is_write)
                r->write = mine;
            else
                note_read(r, mine);
        }
        if (other.process)
            fault(
                "RACE_PEERS", false, code,
                "%s of peers' memory+%#zx, which block #%u thread %u of process %u reached with no release and acquire between",
                is_write ? "write" : "read", (size_t)(at - memory->first), other.block, other.thread, other.process);
    }
}

/* Returns the records of a word, or nullptr if no other process can access it. */
static Record *record_of(const uint32_t *p, const void *code)
{
    const Allocation *a;
    Where where = find_device(p, &a);
    if ((uintptr_t)p % sizeof *p)
        fault("MISALIGNED", true, code, "a word at %p", (const void *)p);
    if (where != LIVE || (const char *)p < a->begin || (const char *)(p + 1) > a->begin + a->bytes)
        fault(where == FREED ? "USE_AFTER_FREE" : "OOB_GLOBAL", true, code, "a word at %p", (const void *)p);
    return instrumented && a->peer ? a->peer->record(p) : nullptr;
}

void peer_store(uint32_t *p, uint32_t v, bool releases)
{
    Record *r = record_of(p, __builtin_return_address(0));
    if (!r) {
        __atomic_store_n(p, v, __ATOMIC_RELEASE);
        return;
    }
    Locked lock(r);
    if (releases)
        r->released = stamp_of(this_fiber());
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}

uint32_t peer_load(const uint32_t *p, bool acquires)
{
    Record *r = record_of(p, __builtin_return_address(0));
    if (acquires)
        sched_yield(); /* the awaited process may need this CPU */
    if (!r)
        return __atomic_load_n(p, __ATOMIC_ACQUIRE);
    Locked lock(r);
    uint32_t v = __atomic_load_n(p, __ATOMIC_ACQUIRE);
    if (acquires)
        take_over(r->released, this_fiber());
    return v;
}

} // namespace simt
