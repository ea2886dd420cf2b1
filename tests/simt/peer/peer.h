/* Device memory that several processes reach: CUDA's handles between processes, and races between their kernels.
 *
 * An allocation that is exported becomes a memory file, which others map among their own device memory. Behind its bytes lie
 * its records: for each word who wrote it last, who read it last in each process, and what was released by it. A stamp says
 * process, launch, block, epoch (__syncthreads so far) and thread.
 *
 * A store that releases leaves the storing thread's stamp with the word: it stands for all that the launches before did, and
 * of its own block what any thread did before the last __syncthreads, and what itself did. A load that acquires takes the stamp
 * over; it counts at once for the loading thread, for its block behind the next __syncthreads, for all in later launches.
 * Two accesses of different processes to a word, one of them a write, of which the later does not know of the earlier
 * are RACE_PEERS: whichever came first in time, since the records outlive both. Knowledge is not handed on: what a process
 * learned of a second one it does not pass to a third. */
#ifndef QUIRE_TESTS_SIMT_PEER_H
#define QUIRE_TESTS_SIMT_PEER_H

#include "tests/simt/state.h"

namespace simt
{

struct PeerMemory; /* of an allocation: its records */

/* What a handle says of an exported allocation; no pointer in it. */
struct PeerHandle {
    uint32_t magic, process;
    int32_t fd; /* of that process */
    char host[8]; /* host_name() of that process */
    uint32_t first; /* where the allocation begins in the file */
    uint64_t bytes, file_bytes; /* the allocation's; the file's before the records */
};

/* QUIRE_SIMT_HOST: processes whose names differ are on different hosts. */
const char *host_name();

bool peer_export(void *allocation, PeerHandle *out); /* false: it is none, or out of memory */
void *peer_import(const PeerHandle &handle); /* nullptr: nothing to be mapped */
void peer_release(void *imported);

/* A launch of so many blocks begins: what the ones before learned all know. */
void peer_launch_begins(unsigned n_blocks);
/* An access of the running thread to an allocation that has records. */
void peer_access(PeerMemory *memory, const void *p, size_t bytes, bool is_write, const void *code);

} // namespace simt

#endif
