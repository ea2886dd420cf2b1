/* One rank in the shared memory of its group: it publishes rounds, waits for those of others, notices who died or hangs,
 * and says what ended the group. Of this room only. One thread, but for _check() and _end(). */
#ifndef QUIRE_PARALLEL_SHM_MEMBER_H
#define QUIRE_PARALLEL_SHM_MEMBER_H

#include "parallel/shm.h"

#include <stdbool.h>

struct shm_member {
    struct shm shm;
    uint32_t rank; /* its place in this group; names[] is what messages call it */
    uint32_t names[COLLECTIVE_MAX_RANKS];
    struct shm_member *whole; /* of a part: the group, which ends with it and with which it ends; else NULL */
    int fd; /* of the memory; the member's */
    uint32_t round; /* published by this rank; the next one's slot is slots[rank][(round + 1) & 1] */
    struct shm_call call; /* what the current rounds are for */
    struct shm_call calls[2]; /* of a round and of the one before, as all ranks must have them */
    uint32_t checked; /* the last round of which every peer's call was compared */
    uint32_t timeout_ms;
    bool is_lenient; /* who computes is not late */
    uint64_t keep_ns; /* of a wait: looks for what it waits for without giving the CPU away */
    uint64_t *waited_ns; /* [COLLECTIVE_MAX_RANKS], by names; the caller's */
    int pidfds[COLLECTIVE_MAX_RANKS]; /* -1: not yet, or there is none */
    atomic_flag why_is_said;
};

/* Maps the memory behind fd and takes the rank's place. */
int shm_member_open(struct shm_member *m, int fd, uint32_t rank, uint32_t timeout_ms, uint64_t *waited_ns,
                    struct quire_error *err);
/* Takes its place in group number `part` of some of whole's ranks. */
int shm_member_open_part(struct shm_member *m, struct shm_member *whole, uint32_t part, const uint32_t *ranks,
                         uint32_t n_ranks, struct quire_error *err);
void shm_member_close(struct shm_member *m);

/* Whether the group is over: then the status and message of who ended it. Any thread. */
int shm_member_check(const struct shm_member *m, struct quire_error *err);

void shm_member_publish(struct shm_member *m);

#define SHM_EVERYBODY UINT32_MAX
/* Until rank `of`, or everybody, has published this rank's round, and was about the same call. patient: without a time-out. */
int shm_member_wait(struct shm_member *m, uint32_t of, bool patient, struct quire_error *err);

/* Ends the group with a status and a reason, unless it has ended, and wakes everybody. Any thread. */
void shm_member_end(struct shm_member *m, enum quire_status status, const char *why);

#endif
