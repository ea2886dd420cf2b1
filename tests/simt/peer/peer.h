/* Device memory that several processes access: CUDA's handles between processes, and races between their kernels.
 *
 * An exported allocation becomes a memory file, which other processes map into their device memory. Its records follow
 * its bytes: for each word the last writer, the last reader in each process, and the stamp that was released with it. A
 * stamp consists of process, launch, block, epoch (number of __syncthreads) and thread.
 *
 * A store that releases leaves the storing thread's stamp with the word. The stamp covers all earlier launches and, in
 * its own block, every thread's accesses before the last __syncthreads and the thread's own accesses. A load that
 * acquires takes over the stamp. It applies at once to the loading thread, after the next __syncthreads to its block,
 * and to all threads of later launches. Two accesses of different processes to a word, one of them a write, are
 * RACE_PEERS if the later one does not know of the earlier one, in either order of time, because the records outlive
 * both. Knowledge is not transitive: a process does not pass on to a third process what it acquired from a second one.
 */
#ifndef QUIRE_TESTS_SIMT_PEER_H
#define QUIRE_TESTS_SIMT_PEER_H

#include "tests/simt/state.h"

namespace simt
{

struct PeerMemory; /* the records of an allocation */

/* The content of a handle of an exported allocation. It has no pointers. */
struct PeerHandle {
    uint32_t magic, process;
    int32_t fd; /* in that process */
    char host[8]; /* host_name() of that process */
    uint32_t first; /* offset of the allocation in the file */
    uint64_t bytes, file_bytes; /* size of the allocation; size of the file up to the records */
};

/* QUIRE_SIMT_HOST: processes with different names are on different hosts. */
const char *host_name();

bool peer_export(void *allocation, PeerHandle *out); /* false: not an allocation, or out of memory */
void *peer_import(const PeerHandle &handle); /* nullptr: the handle cannot be mapped */
void peer_release(void *imported);

/* Call it when a launch of n_blocks begins: everything that earlier launches acquired applies to all threads. */
void peer_launch_begins(unsigned n_blocks);
/* Records an access of the running thread to an allocation that has records. */
void peer_access(PeerMemory *memory, const void *p, size_t bytes, bool is_write, const void *code);

} // namespace simt

#endif
