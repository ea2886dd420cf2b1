/* Liveness of the ranks in a group across hosts: a connection to each peer, on which both send a heartbeat every 100
 * ms, and a thread that listens. A peer that is stopped, or whose host or network is down, is detected whatever this
 * process does meanwhile, and the end of the group reaches all. Data of collectives uses other connections (carrier.h).
 *
 * One thread opens and closes; any thread may call the other functions.
 */
#ifndef QUIRE_PARALLEL_HOSTS_PEERS_H
#define QUIRE_PARALLEL_HOSTS_PEERS_H

#include "base/status.h"
#include "parallel/collective.h"
#include "parallel/hosts/rank_listener.h"

#include <stdbool.h>

/* A peer that is silent for this long ends the group: within the 5 s in which errors must be reported. */
#define PEERS_SILENT_MS 3500u

#define PEER_NAME_BYTES 96

struct peers;

struct peer_link {
    int control,
        data; /* connections with proven membership; -1: this rank's own entry, or another transport for data */
    char name[PEER_NAME_BYTES]; /* "rank 1 (HOST, process 77)" */
};

/* Takes links[0 .. size - 1].control and the listener, also after an error. listener: rank 0's listener from rank_listener_keep(), which
 * rejects callers with the number of a present rank; NULL: no listener. over: of struct hosts_options. */
int peers_open(uint32_t rank, uint32_t size, const struct peer_link *links, struct rank_listener *listener,
               void (*over)(void), struct peers **out, struct quire_error *err);
/* Announces to the others that this rank leaves, and waits a moment until they have it. */
void peers_close(struct peers *p);

/* Returns OK, or the reason of the group's end. */
int peers_check(struct peers *p, struct quire_error *err);
/* Ends the group, unless it has ended, and sends all peers the reason: QUIRE_INVALID or QUIRE_UNAVAILABLE. */
void peers_end(struct peers *p, enum quire_status status, const char *why);

const char *peers_name(const struct peers *p, uint32_t r);
bool peers_has_left(struct peers *p, uint32_t r);
/* The peer's work as last reported: as in struct quire_process_look, plus the time it was found waiting for a disk. Of
 * the computing thread or, while it loads, which several threads may do, of the process. */
uint64_t peers_work_ns(struct peers *p, uint32_t r);
/* Sets this rank's computing thread, and whether it loads. */
void peers_compute(struct peers *p, int32_t thread);
void peers_load(struct peers *p, bool loads);
/* The rank that this rank waits for, as reported to its peers; PEERS_NOBODY: none. */
#define PEERS_NOBODY UINT32_MAX
void peers_wait_for(struct peers *p, uint32_t r);
/* Rank r has not come. Returns the rank to blame, as far as known: r, the rank that r itself waits for, or one that is
 * silent. */
uint32_t peers_blame(struct peers *p, uint32_t r);
/* Readable from the end of the group or the departure of a rank until it is read. For a sleeping thread. */
int peers_wake_fd(const struct peers *p);

#endif
