/* Who lives of a group across hosts: a connection to each peer, over which both say every 100 ms that they do, and a thread that
 * listens. So a peer that is stopped, whose host is gone or to whom the network is cut is noticed whatever this process does
 * meanwhile, also nothing; and what ends the group reaches all. Collectives' data takes other ways (carrier.h).
 *
 * One thread opens and closes; everything else is for any thread. */
#ifndef QUIRE_PARALLEL_HOSTS_PEERS_H
#define QUIRE_PARALLEL_HOSTS_PEERS_H

#include "base/status.h"
#include "parallel/collective.h"
#include "parallel/hosts/door.h"

#include <stdbool.h>

/* Of a peer that nothing was heard of for so long the group takes its leave: before the 5 s within which all is to be known. */
#define PEERS_SILENT_MS 3500u

#define PEER_NAME_BYTES 96

struct peers;

struct peer_link {
    int control,
        data; /* connections that have proven themselves; -1: this rank's own place, or data goes another way */
    char name[PEER_NAME_BYTES]; /* "rank 1 (HOST, process 77)" */
};

/* Takes links[0 .. size - 1].control and the door, also where it fails. door: rank 0's, of door_keep(), where whoever comes as a rank that
 * is there is told at once that it is; NULL: there is none. over: of struct hosts_options. */
int peers_open(uint32_t rank, uint32_t size, const struct peer_link *links, struct door *door, void (*over)(void),
               struct peers **out, struct quire_error *err);
/* Tells the others that this rank leaves, and waits a moment until they have it. */
void peers_close(struct peers *p);

/* Is the group over, and why? */
int peers_check(struct peers *p, struct quire_error *err);
/* Ends the group, unless it has ended, and tells all peers why: QUIRE_INVALID or QUIRE_UNAVAILABLE. */
void peers_end(struct peers *p, enum quire_status status, const char *why);

const char *peers_name(const struct peers *p, uint32_t r);
bool peers_has_left(struct peers *p, uint32_t r);
/* What it has worked, as it last said: as struct quire_process_look has it, and all the time that it was found waiting for a disk. Of the
 * thread that computes, or while it loads, which several may do, of the process. */
uint64_t peers_work_ns(struct peers *p, uint32_t r);
/* That is, of this rank, of this thread; and whether it loads. */
void peers_compute(struct peers *p, int32_t thread);
void peers_load(struct peers *p, bool loads);
/* For whom this rank waits, which its peers are told; PEERS_NOBODY. */
#define PEERS_NOBODY UINT32_MAX
void peers_wait_for(struct peers *p, uint32_t r);
/* Rank r has not come. Whose fault is it, as far as is known: r's, or that of whom r itself waits for, or of who is silent? */
uint32_t peers_blame(struct peers *p, uint32_t r);
/* Readable once the group is over or somebody left, until it is read: for who sleeps. */
int peers_wake_fd(const struct peers *p);

#endif
