/* The shared memory of a group's ranks: its layout, creation and mapping. Private to this folder.
 *
 * Collectives run in rounds, which every rank counts alike. In a round, a rank may write its slot of the round (there
 * are two, used alternately), writes its call to `calls`, and publishes the round by storing `round` with release. A
 * rank that has seen this may read the slot until it publishes the next round itself. A rank therefore writes a slot
 * again only after all ranks have published the round between. There is no lock that a stopped process could hold.
 *
 * Data of peers is checked, never trusted: lengths are this process's own, `round` and `calls` are compared with the
 * expected values, and the head is copied after it is checked. The file is sealed, so nobody can truncate it under a
 * reader.
 */
#ifndef QUIRE_PARALLEL_SHM_H
#define QUIRE_PARALLEL_SHM_H

#include "base/status.h"
#include "parallel/collective.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define SHM_MAGIC UINT64_C(0x315241505251) /* "QRPAR1" */
#define SHM_VERSION 4
#define SHM_SLOT_BYTES (128u << 10)
#define SHM_WHY_BYTES 320
#define SHM_LINE 64

/* The memory has space for the group and for this many groups of some of its ranks, all with the same layout. Unused
 * ones cost only their heads and address space. */
#define SHM_GROUPS (1 + COLLECTIVE_MAX_PARTS)

enum shm_operation { SHM_NONE, SHM_ALL_REDUCE, SHM_ALL_GATHER, SHM_GATHER, SHM_BROADCAST, SHM_BARRIER };

struct shm_call {
    uint32_t number; /* calls of the group so far, modulo 2^32 */
    uint16_t operation, root;
    uint64_t n_bytes;
    uint64_t published_ns; /* when the rank arrived, by the clock of the host */
};

enum shm_state { SHM_NOT_JOINED, SHM_JOINED, SHM_LEFT };

struct shm_rank {
    alignas(SHM_LINE) _Atomic uint32_t round; /* published so far, modulo 2^32 */
    struct shm_call calls[2]; /* of the round, and of the previous one */

    /* The rank sleeps on its own bell. It sets `asleep` before it checks what it waits for, and a publisher checks
     * `asleep` after publishing, all sequentially consistent: one of the two sees the other. */
    alignas(SHM_LINE) _Atomic uint32_t bell;
    _Atomic uint32_t asleep;

    alignas(SHM_LINE) _Atomic uint32_t state;
    _Atomic int32_t process, thread; /* the thread that made the last call */
    _Atomic uint32_t waits_for; /* of the whole group, rank + 1; 0: none */
    uint32_t why_status; /* with why: written once, before the head's `aborted_by` */
    char why[SHM_WHY_BYTES];
};

struct shm_head {
    uint64_t magic;
    uint32_t version, n_ranks; /* of the whole group */
    uint64_t slot_bytes, rank_bytes, total_bytes; /* the last one is for one of the SHM_GROUPS */
    alignas(SHM_LINE) _Atomic uint32_t aborted_by; /* rank + 1; 0: nobody */
};

struct shm {
    struct shm_head *head;
    struct shm_rank *ranks[COLLECTIVE_MAX_RANKS];
    unsigned char *slots[COLLECTIVE_MAX_RANKS][2];
    size_t slot_bytes, total_bytes;
    uint32_t n_ranks;
};

int shm_create(uint32_t n_ranks, int *fd, struct quire_error *err);
size_t shm_bytes(uint32_t rank, uint32_t n_groups); /* collective_shared_bytes() */
/* Maps and checks the group's memory or, with `group` 1 .. COLLECTIVE_MAX_PARTS, a part's, whose number of ranks the
 * caller gives (0: all). shm_unmap() undoes it. */
int shm_map(int fd, uint32_t group, uint32_t n_ranks, struct shm *out, struct quire_error *err);
void shm_unmap(struct shm *s);

#endif
