/* Collectives over the shared memory of one host (shm.h): a transport. */
#ifndef QUIRE_PARALLEL_SHM_TRANSPORT_H
#define QUIRE_PARALLEL_SHM_TRANSPORT_H

#include "parallel/transport.h"

extern const struct transport shm_transport;

/* waited_ns: [COLLECTIVE_MAX_RANKS], where the time for each peer is added up; *size: the group's ranks. */
int shm_transport_open(int fd, uint32_t rank, uint32_t timeout_ms, uint64_t *waited_ns, uint32_t *size, void **state,
                       struct quire_error *err);

#endif
