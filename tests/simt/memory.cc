/* Device memory: one large reservation, divided into granules of 256 bytes, each of which knows its allocation. So the
 * bounds of every allocation are exact, with unallocated bytes on both sides. Freed memory is reused only after the end
 * of the reservation is reached, so a late access finds it freed. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "tests/simt/runtime.h"
#include "tests/simt/state.h"

namespace simt
{

static constexpr size_t granule = 256;
static constexpr size_t arena_bytes = 16ull << 30; /* address space; memory is used when it is touched */
static constexpr uint32_t max_allocations = 1u << 24;
static constexpr uint32_t freed_bit = 1u << 31;

static std::mutex heap_mutex; /* for allocating and freeing; kernels only read */
static char *arena;
static size_t arena_top = granule;
static uint32_t *owner;         /* per granule: an index into allocations, with freed_bit when freed; 0:
                                 * unallocated */
static Allocation *allocations; /* [0] is unused */
static uint32_t n_allocations = 1;
static Cell *cells; /* one per byte */
static std::map<size_t, size_t> freed; /* offset, bytes; both include the granule after the allocation */

template <class T> static T *reserve(size_t n)
{
    void *p = mmap(nullptr, n * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return nullptr;
    /* The first touch of 4 KiB takes 4 to 9 us on a virtual machine, and each byte of a GPU has a cell of 20 bytes. */
    madvise(p, n * sizeof(T), MADV_HUGEPAGE);
    return (T *)p;
}

static bool set_up()
{
    if (arena)
        return true;
    owner = reserve<uint32_t>(arena_bytes / granule);
    allocations = reserve<Allocation>(max_allocations);
    cells = instrumented ? reserve<Cell>(arena_bytes) : nullptr;
    char *p = reserve<char>(arena_bytes);
    if (!owner || !allocations || (instrumented && !cells) || !p)
        return false;
    arena = p;
    return true;
}

/* Returns an offset followed by `bytes` free bytes, or 0. */
static size_t find_space(size_t bytes)
{
    if (arena_bytes - arena_top >= bytes) {
        size_t offset = arena_top;
        arena_top += bytes;
        return offset;
    }
    for (auto it = freed.begin(); it != freed.end(); ++it) {
        auto [offset, room] = *it;
        if (room < bytes)
            continue;
        freed.erase(it);
        if (room > bytes)
            freed[offset + bytes] = room - bytes;
        return offset;
    }
    return 0;
}

void *dev_alloc(size_t bytes)
{
    std::lock_guard<std::mutex> lock(heap_mutex);
    size_t granules = (bytes + granule - 1) / granule + 1; /* the last granule belongs to no allocation */
    if (bytes > arena_bytes / 2 || n_allocations == max_allocations || !set_up())
        return nullptr;
    size_t offset = find_space(granules * granule);
    if (!offset)
        return nullptr;
    for (size_t i = 0; i < granules; i++)
        owner[offset / granule + i] = i + 1 < granules ? n_allocations : 0;
    /* NaN in every format of 16 and 32 bits, with different bits for each GPU, so they are never equal by chance. */
    std::fill_n((uint16_t *)(arena + offset), granules * granule / 2,
                (uint16_t)(0xffff - simt_runtime::current_device()));
    allocations[n_allocations++] = {arena + offset, bytes, nullptr};
    return arena + offset;
}

Allocation *dev_reserve(size_t page_bytes, size_t first, size_t bytes)
{
    char *p = (char *)dev_alloc(page_bytes + 2 * 4096);
    const Allocation *found;
    if (!p)
        return nullptr;
    find_device(p, &found);
    Allocation *a = const_cast<Allocation *>(found);
    a->begin = (char *)(((uintptr_t)p + 4095) & ~(uintptr_t)4095) + first;
    a->bytes = bytes;
    return a;
}

void dev_expect_little(const void *begin, size_t bytes)
{
    if (cells)
        madvise(device_cells(begin), bytes * sizeof(Cell), MADV_NOHUGEPAGE);
}

/* Its addresses are not reused. */
void dev_forget(Allocation *a)
{
    std::lock_guard<std::mutex> lock(heap_mutex);
    size_t i = (size_t)(a->begin - arena) / granule;
    for (uint32_t id = owner[i]; (owner[i] & ~freed_bit) == id; i++)
        owner[i] |= freed_bit;
}

void dev_free(void *p)
{
    if (!p)
        return;
    std::lock_guard<std::mutex> lock(heap_mutex);
    size_t offset = (size_t)((char *)p - arena);
    uint32_t id = offset < arena_bytes ? owner[offset / granule] : 0;
    if (!id || (id & freed_bit) || allocations[id].begin != p) {
        fault("BAD_FREE", true, __builtin_return_address(0), "%p is not the begin of an allocation", p);
        return;
    }
    size_t room = ((allocations[id].bytes + granule - 1) / granule + 1) * granule;
    for (size_t i = 0; i + 1 < room / granule; i++)
        owner[offset / granule + i] |= freed_bit;
    /* Returns whole pages to the system, and their cells. */
    uintptr_t begin = ((uintptr_t)p + 4095) & ~(uintptr_t)4095, end = ((uintptr_t)p + room) & ~(uintptr_t)4095;
    if (begin < end) {
        madvise((void *)begin, end - begin, MADV_DONTNEED);
        if (cells)
            madvise(device_cells((void *)begin), (end - begin) * sizeof(Cell), MADV_DONTNEED);
    }
    /* Merges adjacent freed ranges. */
    auto next = freed.lower_bound(offset);
    if (next != freed.end() && next->first == offset + room) {
        room += next->second;
        next = freed.erase(next);
    }
    if (next != freed.begin() && std::prev(next)->first + std::prev(next)->second == offset)
        std::prev(next)->second += room;
    else
        freed[offset] = room;
}

Where find_device(const void *p, const Allocation **allocation)
{
    size_t offset = (size_t)((const char *)p - arena);
    *allocation = nullptr;
    if (!arena || offset >= arena_bytes)
        return ELSEWHERE;
    size_t i = offset / granule;
    uint32_t id = owner[i];
    Where where = !id ? BETWEEN : id & freed_bit ? FREED : LIVE;
    while (!id && i-- > 0)
        id = owner[i];
    if (id)
        *allocation = &allocations[id & ~freed_bit];
    return where;
}

Cell *device_cells(const void *p)
{
    return &cells[(const char *)p - arena];
}

} // namespace simt
