/* How the ranks of a group meet: rank 0 waits at its address until all have called, sends each the addresses of the
 * others, and then each rank calls those before it. One thread; private to this folder. */
#ifndef QUIRE_PARALLEL_HOSTS_MEETING_H
#define QUIRE_PARALLEL_HOSTS_MEETING_H

#include "parallel/hosts/call.h"
#include "parallel/hosts/peers.h"

/* Addresses of rank 0, tried in turn. */
#define MEETING_ADDRESSES 8u

struct meeting_place {
    struct sockaddr_storage addresses[MEETING_ADDRESSES];
    uint32_t n;
};

/* For rank 0: collects the connections of all ranks at its listener. until_ms: by quire_now_ms(). links: [size]; filled
 * ones belong to the caller, also after an error. */
int meeting_host(const struct rank_listener_own *own, struct rank_listener *listener, uint64_t until_ms,
                 struct peer_link *links, struct quire_error *err);

/* The others'. */
int meeting_join(const struct rank_listener_own *own, const struct meeting_place *position, uint64_t until_ms,
                 struct peer_link *links, struct quire_error *err);

#endif
