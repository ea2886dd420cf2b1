/* How the ranks of a group meet: rank 0 waits at its address until all have called, tells each where the others listen, and then
 * each calls those before it. One thread; of this room only. */
#ifndef QUIRE_PARALLEL_HOSTS_MEETING_H
#define QUIRE_PARALLEL_HOSTS_MEETING_H

#include "parallel/hosts/call.h"
#include "parallel/hosts/peers.h"

/* Where rank 0 is looked for: one of these, in turns. */
#define MEETING_ADDRESSES 8u

struct meeting_place {
    struct sockaddr_storage addresses[MEETING_ADDRESSES];
    uint32_t n;
};

/* Rank 0's: everybody's connections, once all have come to its door. until_ms: of quire_now_ms(). links: [size]; what was filled is
 * the caller's also where it fails. */
int meeting_host(const struct door_own *own, struct door *door, uint64_t until_ms, struct peer_link *links,
                 struct quire_error *err);

/* The others'. */
int meeting_join(const struct door_own *own, const struct meeting_place *place, uint64_t until_ms,
                 struct peer_link *links, struct quire_error *err);

#endif
