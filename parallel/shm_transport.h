/* A transport: collectives over the shared memory of one host (shm.h). */
#ifndef QUIRE_PARALLEL_SHM_TRANSPORT_H
#define QUIRE_PARALLEL_SHM_TRANSPORT_H

#include "parallel/transport.h"

extern const struct transport shm_transport;

/* waited_ns: [COLLECTIVE_MAX_RANKS], receives the waiting time per peer; *size: the number of ranks. */
int shm_transport_open(int fd, uint32_t rank, uint32_t timeout_ms, uint64_t *waited_ns, uint32_t *size, void **state,
                       struct quire_error *err);

#endif
