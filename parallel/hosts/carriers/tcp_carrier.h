/* Messages over a TCP connection to each peer. One thread. */
#ifndef QUIRE_PARALLEL_HOSTS_TCP_CARRIER_H
#define QUIRE_PARALLEL_HOSTS_TCP_CARRIER_H

#include "parallel/hosts/carriers/carrier.h"
#include "parallel/hosts/peers.h"

extern const struct carrier tcp_carrier;

/* Takes links[0 .. size - 1].data, also after an error. inbox: the caller's, must stay valid until close(). */
int tcp_carrier_open(uint32_t size, const struct peer_link *links, struct inbox *inbox, void **state,
                     struct quire_error *err);

#endif
