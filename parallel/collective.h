/* Collectives: what the ranks of a group do together. A rank is a process; 1 to 8 of them, 0 .. N-1.
 *
 * Each rank has one struct collective, which it owns, and calls it from one thread; collective_abort() and _check() may come from any.
 * All ranks make the same calls with the same sizes in the same order. Where they do not, or where one died, left, hangs or
 * gave up, each gets a status and a message that names the rank, and so does every later call: such a group is over.
 *
 *   QUIRE_UNAVAILABLE  a rank has died, left, not come for the time-out, or gave up
 *   QUIRE_INVALID      ranks called different things; the message has both
 *   QUIRE_INTERNAL     the memory between them says what cannot be
 */
#ifndef QUIRE_PARALLEL_COLLECTIVE_H
#define QUIRE_PARALLEL_COLLECTIVE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#define COLLECTIVE_MAX_RANKS 8
#define COLLECTIVE_MAX_PARTS 16
#define COLLECTIVE_TIMEOUT_MS 4000 /* clients are told within 5 s */

struct collective;

/* ---- ranks of one host, over shared memory ---- */

/* The memory of a group: an anonymous file that every rank joins by this descriptor (inherited, or sent over a socket). It
 * has no name, so nothing is left of it when the last rank is gone. Close-on-exec; the caller closes it. */
int collective_create_shared(uint32_t n_ranks, int *fd, struct quire_error *err);

/* Of that memory, what one rank writes that has its place in so many groups: the whole one and parts. Rank 0 writes the heads, too. */
size_t collective_shared_bytes(uint32_t rank, uint32_t n_groups);

/* Takes its place in the group; the others need not be there yet. timeout_ms: how long a call waits for a rank; 0 is
 * COLLECTIVE_TIMEOUT_MS. fd stays the caller's and may be closed at once. QUIRE_INVALID: no memory of a group, another
 * version's, or a rank that is taken. */
int collective_join_shared(int fd, uint32_t rank, uint32_t timeout_ms, struct collective **out,
                           struct quire_error *err);

/* Others that still wait for this rank get an error. NULL is ignored. */
void collective_leave(struct collective *c);

/* ---- groups within a group ---- */

/* Some of the ranks, among themselves: calls of one group and of another do not wait for each other. ranks: [n_ranks] of c's
 * by rising number, this one's among them; in the part they are 0 .. n_ranks - 1, and messages call them by c's numbers.
 * part: below COLLECTIVE_MAX_PARTS, each opened once. What ends a part ends c, and the other way. The calls of both are
 * this thread's; collective_leave() it before c. */
int collective_open_part(struct collective *c, uint32_t part, const uint32_t *ranks, uint32_t n_ranks,
                         struct collective **out, struct quire_error *err);

/* From then on a rank whose calling thread uses a CPU, or waits for a disk, is not late, however long it does: where others compute
 * something else before they come, or wait for one who does. One that hangs asleep or is stopped still is, whatever other threads of
 * its process do; one that hangs in a loop is not found. */
void collective_be_lenient(struct collective *c);

/* ---- calls ---- */

uint32_t collective_rank(const struct collective *c);
uint32_t collective_size(const struct collective *c);

/* For what lies ahead, as loading, where ranks may be far apart: before they begin. One that is stopped (SIGSTOP) is still late
 * after COLLECTIVE_TIMEOUT_MS, and one whose whole process does nothing (at_work.h) after a minute. */
void collective_set_timeout(struct collective *c, uint32_t timeout_ms);

/* x = ((x0 + x1) + (x2 + x3)) + ((x4 + x5) + (x6 + x7)) element by element over the ranks (fewer ranks: the left part), in
 * place: docs/numerics.md section 5. Plain f32 additions, denormals kept; every rank gets the same bits, which depend on
 * neither n nor how the vector is cut. x is undefined after an error. Of 1, 2, 4 or 8 ranks; others: QUIRE_INVALID. */
int collective_all_reduce_tree(struct collective *c, float *x, size_t n, struct quire_error *err);

/* all: [size][n_bytes], by rank. mine may be its own place in there. */
int collective_all_gather(struct collective *c, const void *mine, size_t n_bytes, void *all, struct quire_error *err);

/* The same to the root alone; all is the root's, and may be NULL elsewhere. Who is not root may return before it has it. */
int collective_gather(struct collective *c, const void *mine, size_t n_bytes, uint32_t root, void *all,
                      struct quire_error *err);

/* x of root, to all. The root may return before the others have it. */
int collective_broadcast(struct collective *c, void *x, size_t n_bytes, uint32_t root, struct quire_error *err);

/* The same call to the root; the others wait for it as long as it lives: an idle engine has nothing to say. */
int collective_broadcast_when_ready(struct collective *c, void *x, size_t n_bytes, uint32_t root,
                                    struct quire_error *err);

int collective_barrier(struct collective *c, struct quire_error *err);

/* Is the group over, and why? What calls would return. Any thread. */
int collective_check(const struct collective *c, struct quire_error *err);

/* Ends the group: wakes every rank, and their calls return QUIRE_UNAVAILABLE with the rank and why. Any thread. */
void collective_abort(struct collective *c, const char *why);

/* ---- what it cost ---- */

struct collective_stats {
    uint64_t calls; /* its parts' among them */
    uint64_t bytes; /* of this rank's vectors */
    uint64_t waited_ns[COLLECTIVE_MAX_RANKS]; /* for each peer, when those before it had come: a slow rank stands out */
};
void collective_get_stats(const struct collective *c, struct collective_stats *out);

#endif
