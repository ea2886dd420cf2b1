/* One rank in the shared memory of its group: publishes rounds, waits for those of others, detects ranks that died or
 * hang, and reports what ended the group. Private to this folder. One thread, except for shm_member_check() and
 * shm_member_end(). */
#ifndef QUIRE_PARALLEL_SHM_MEMBER_H
#define QUIRE_PARALLEL_SHM_MEMBER_H

#include "parallel/shm.h"

#include <stdbool.h>

struct shm_member {
    struct shm shm;
    uint32_t rank; /* number in this group; names[] has the number for messages */
    uint32_t names[COLLECTIVE_MAX_RANKS];
    struct shm_member *whole; /* of a part: the whole group, which ends with it and the reverse; otherwise NULL */
    int fd; /* of the memory; owned */
    uint32_t round; /* published by this rank; the next slot is slots[rank][(round + 1) & 1] */
    struct shm_call call; /* the call of the current rounds */
    struct shm_call calls[2]; /* of a round and of the previous one; the same for all ranks */
    uint32_t checked; /* the last round for which every peer's call was compared */
    uint32_t timeout_ms;
    bool is_patient; /* a computing rank is not late */
    uint64_t keep_ns; /* how long a wait polls without yielding the CPU */
    uint64_t *waited_ns; /* [COLLECTIVE_MAX_RANKS], by names; the caller's */
    int pidfds[COLLECTIVE_MAX_RANKS]; /* -1: not opened yet, or not available */
    atomic_flag why_is_said;
};

/* Maps the memory behind fd and claims the rank's slot. */
int shm_member_open(struct shm_member *m, int fd, uint32_t rank, uint32_t timeout_ms, uint64_t *waited_ns,
                    struct quire_error *err);
/* Claims its slot in group number `part`, of some of whole's ranks. */
int shm_member_open_part(struct shm_member *m, struct shm_member *whole, uint32_t part, const uint32_t *ranks,
                         uint32_t n_ranks, struct quire_error *err);
void shm_member_close(struct shm_member *m);

/* Returns OK, or the status and message of the rank that ended the group. Any thread. */
int shm_member_check(const struct shm_member *m, struct quire_error *err);

void shm_member_publish(struct shm_member *m);

#define SHM_EVERYBODY UINT32_MAX
/* Waits until rank `of`, or every rank, has published this rank's round with the same call. patient: without a
 * time-out. */
int shm_member_wait(struct shm_member *m, uint32_t of, bool patient, struct quire_error *err);

/* Ends the group with a status and a reason, unless it has ended, and wakes all ranks. Any thread. */
void shm_member_end(struct shm_member *m, enum quire_status status, const char *why);

#endif
