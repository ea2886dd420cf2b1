/* Collectives: operations that the ranks of a group perform together. A rank is a process; a group has 1 to 8 of them,
 * 0 .. N-1.
 *
 * Each rank owns one struct collective and calls it from one thread; any thread may call collective_abort() and
 * collective_check(). All ranks make the same calls with the same sizes in the same order. If the calls differ, or a
 * rank died, left, hangs or gave up, each rank gets a status and a message that names the rank, also from every later
 * call: the group has ended.
 *
 *   QUIRE_UNAVAILABLE  a rank has died, left, not come within the time-out, or gave up
 *   QUIRE_INVALID      ranks made different calls; the message names both
 *   QUIRE_INTERNAL     the memory between them is corrupt
 */
#ifndef QUIRE_PARALLEL_COLLECTIVE_H
#define QUIRE_PARALLEL_COLLECTIVE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#define COLLECTIVE_MAX_RANKS 8
#define COLLECTIVE_MAX_PARTS 16
#define COLLECTIVE_TIMEOUT_MS 4000 /* clients get the error within 5 s */

struct collective;

/* ---- ranks of one host, over shared memory ---- */

/* Creates the memory of a group: an anonymous file that every rank joins by this descriptor (inherited, or sent over a
 * socket). It has no name, so nothing remains after the last rank. Close-on-exec; the caller closes it. */
int collective_create_shared(uint32_t n_ranks, int *fd, struct quire_error *err);

/* Bytes of that memory that one rank of this many groups (the whole group and parts) writes. Rank 0 also writes the
 * heads. */
size_t collective_shared_bytes(uint32_t rank, uint32_t n_groups);

/* Joins the group; the other ranks may join later. timeout_ms: how long a call waits for a rank; 0 means
 * COLLECTIVE_TIMEOUT_MS. fd stays the caller's and may be closed at once. QUIRE_INVALID: not the memory of a group,
 * another version, or a rank that is in use. */
int collective_join_shared(int fd, uint32_t rank, uint32_t timeout_ms, struct collective **out,
                           struct quire_error *err);

/* Ranks that still wait for this one get an error. NULL is ignored. */
void collective_leave(struct collective *c);

/* ---- groups within a group ---- */

/* Opens a part: a group of some of the ranks. Calls of different groups do not wait for each other. ranks: [n_ranks] of
 * c's ranks in ascending order, including this one. In the part they are 0 .. n_ranks - 1; messages use c's numbers.
 * part: below COLLECTIVE_MAX_PARTS, each opened once. The end of a part ends c, and the reverse. Calls of both come
 * from this thread. Call collective_leave() for the part before c. */
int collective_open_part(struct collective *c, uint32_t part, const uint32_t *ranks, uint32_t n_ranks,
                         struct collective **out, struct quire_error *err);

/* Makes waits patient from now on: a rank whose calling thread uses a CPU, or waits for a disk, is not late, however
 * long it takes. For groups in which ranks compute something else before they come, or wait for one that does. A rank
 * that sleeps without end or is stopped is still late, whatever other threads of its process do. An endless loop is not
 * detected. */
void collective_be_patient(struct collective *c);

/* ---- calls ---- */

uint32_t collective_rank(const struct collective *c);
uint32_t collective_size(const struct collective *c);

/* Sets the time-out for a phase such as loading, in which ranks may be far apart; call it before the phase. A stopped
 * rank (SIGSTOP) is still late after COLLECTIVE_TIMEOUT_MS, and one whose whole process makes no progress (progress.h)
 * after a minute. */
void collective_set_timeout(struct collective *c, uint32_t timeout_ms);

/* x = ((x0 + x1) + (x2 + x3)) + ((x4 + x5) + (x6 + x7)) element by element over the ranks (fewer ranks: the left part),
 * in place: docs/internals/numerics.md section 5. Plain f32 additions, denormals kept. Every rank gets the same bits,
 * which depend on neither n nor the way the vector is split. x is undefined after an error. For 1, 2, 4 or 8 ranks,
 * otherwise QUIRE_INVALID. */
int collective_all_reduce_tree(struct collective *c, float *x, size_t n, struct quire_error *err);

/* all: [size][n_bytes], by rank. mine may be this rank's own part of it. */
int collective_all_gather(struct collective *c, const void *mine, size_t n_bytes, void *all, struct quire_error *err);

/* The same to the root only; all is used by the root and may be NULL elsewhere. Other ranks may return before the root
 * has the data. */
int collective_gather(struct collective *c, const void *mine, size_t n_bytes, uint32_t root, void *all,
                      struct quire_error *err);

/* Sends root's x to all ranks. The root may return before the others have it. */
int collective_broadcast(struct collective *c, void *x, size_t n_bytes, uint32_t root, struct quire_error *err);

/* The same call for the root; the others wait without a time-out while the root lives, because an idle engine sends
 * nothing. */
int collective_broadcast_when_ready(struct collective *c, void *x, size_t n_bytes, uint32_t root,
                                    struct quire_error *err);

int collective_barrier(struct collective *c, struct quire_error *err);

/* Returns OK, or the status and reason of the group's end: the result of later calls. Any thread. */
int collective_check(const struct collective *c, struct quire_error *err);

/* Ends the group: wakes every rank; their calls return QUIRE_UNAVAILABLE with the rank and the reason. Any thread. */
void collective_abort(struct collective *c, const char *why);

/* ---- statistics ---- */

struct collective_stats {
    uint64_t calls; /* including those of its parts */
    uint64_t bytes; /* of this rank's vectors */
    uint64_t waited_ns[COLLECTIVE_MAX_RANKS]; /* for each peer, after those before it had come: shows a slow rank */
};
void collective_get_stats(const struct collective *c, struct collective_stats *out);

#endif
