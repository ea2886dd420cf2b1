/* A transport: collectives between ranks of several hosts, over messages. The sums use the same tree as in shared
 * memory. */
#ifndef QUIRE_PARALLEL_HOSTS_TRANSPORT_H
#define QUIRE_PARALLEL_HOSTS_TRANSPORT_H

#include "parallel/hosts/carriers/carrier.h"
#include "parallel/hosts/peers.h"
#include "parallel/transport.h"

extern const struct transport hosts_transport;

/* Creates the transport's state for a rank of this size of group, without connections. */
struct member *hosts_transport_new(uint32_t rank, uint32_t size, uint32_t timeout_ms, uint64_t *waited_ns,
                                   struct quire_error *err);
/* The inbox for the carrier's messages. */
struct inbox *hosts_transport_inbox(struct member *m);
/* Sets the connections, which the state then owns. */
void hosts_transport_set(struct member *m, struct peers *peers, const struct carrier *carrier, void *carrier_state);
/* Frees the state, with everything passed to hosts_transport_set(); the rest stays the caller's. */
void hosts_transport_free(struct member *m);

#endif
