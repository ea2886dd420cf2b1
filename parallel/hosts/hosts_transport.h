/* Collectives between ranks of several hosts, over messages: a transport. The sums are those of shared memory, by the same tree. */
#ifndef QUIRE_PARALLEL_HOSTS_TRANSPORT_H
#define QUIRE_PARALLEL_HOSTS_TRANSPORT_H

#include "parallel/hosts/carrier.h"
#include "parallel/hosts/peers.h"
#include "parallel/transport.h"

extern const struct transport hosts_transport;

/* Of a rank that knows its peers: the transport's state, without ways to them. */
struct member *hosts_transport_new(uint32_t rank, uint32_t size, uint32_t timeout_ms, uint64_t *waited_ns,
                                   struct quire_error *err);
/* Where the carrier puts what comes. */
struct inbox *hosts_transport_inbox(struct member *m);
/* The ways, which then are the state's. */
void hosts_transport_set(struct member *m, struct peers *peers, const struct carrier *carrier, void *carrier_state);
/* What hosts_transport_set() was not told of stays the caller's. */
void hosts_transport_free(struct member *m);

#endif
