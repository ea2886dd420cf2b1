/* The emulator's device memory, and the records of the accesses to it and to shared memory. Kernels do not see them. */
#ifndef QUIRE_TESTS_SIMT_MEMORY_H
#define QUIRE_TESTS_SIMT_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include <atomic>

namespace simt
{

/* The last writer and the last reader of a byte. Cells are per byte, so threads that write adjacent bytes do not race.
 * Run and epochs are the time of the access; they only grow, so nothing is ever reset. */
struct Cell {
    uint32_t write_run, read_run;
    uint16_t write_epoch, read_epoch;
    uint16_t write_warp_epoch, read_warp_epoch;
    uint16_t writer, reader; /* thread, and the flags of access.cc */
};

/* ---- access.cc ---- */
enum Access { READ, WRITE, ATOMIC, COPY_ISSUED, COPY_LANDED };
extern bool instrumented; /* a kernel was built with the hooks */
/* What each block of the launch has released so far (access.cc); 0: nothing. */
extern std::atomic<uint64_t> *releases;
void access(const void *p, size_t bytes, Access kind, const void *code);

/* ---- memory.cc ---- */
struct PeerMemory;
struct Allocation {
    char *begin;
    size_t bytes;
    PeerMemory *peer; /* if other processes can access it (peer/peer.h); otherwise nullptr */
};
/* Returns whether p lies in the device memory. *allocation is then the one that contains p or contained it (freed), or
 * the last one before it (unallocated bytes), or null. */
enum Where { ELSEWHERE, LIVE, FREED, BETWEEN };
Where find_device(const void *p, const Allocation **allocation);
/* Reserves an allocation of `bytes`, `first` bytes into this many whole pages of addresses, for mapping memory there.
 * Returns nullptr if there is no space. dev_forget() ends it. */
Allocation *dev_reserve(size_t page_bytes, size_t first, size_t bytes);
/* Declares that only a few bytes of these whole pages will be touched, as by peers. Their cells then use no large
 * pages; clearing those took kernels_cuda_group_test 40 s of system time. */
void dev_expect_little(const void *begin, size_t bytes);
void dev_forget(Allocation *a);
/* Returns the cells of device memory from p on; only if instrumented. */
Cell *device_cells(const void *p);

} // namespace simt

#endif
