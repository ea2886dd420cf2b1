/* Which rank of how many this process is, and where rank 0 is found: from flags, or from the environment of whatever started it.
 * Reads the environment and nothing else; any thread. */
#ifndef QUIRE_PARALLEL_HOSTS_PLACE_H
#define QUIRE_PARALLEL_HOSTS_PLACE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define PLACE_PORT 29501u /* vLLM's */
#define PLACE_ADDRESS_BYTES 256

enum place_transport { PLACE_AUTO, PLACE_SHM, PLACE_TCP, PLACE_MPI };

struct place_flags {
    enum place_transport transport;
    uint32_t nnodes, node_rank; /* nnodes 0: not given */
    const char *master_addr; /* NULL: not given */
    uint32_t master_port; /* 0: not given */
};

struct place {
    const char
        *launcher; /* NULL: nobody else starts ranks, and rank 0 does; else "torchrun", "Open MPI", ... (static) */
    uint32_t rank, size;
    uint32_t n_local; /* ranks on this host, as far as it is known; else 1 */
    bool is_mpi; /* mpirun's: MPI itself can tell where rank 0 is */
    bool is_mpich; /* the MPI is MPICH's kind */
    char address[PLACE_ADDRESS_BYTES]; /* rank 0's; empty: nobody said it */
    uint16_t port;
};

/* "auto", "shm", "tcp" or "mpi". */
int place_transport_parse(const char *name, enum place_transport *out, struct quire_error *err);

/* Of an engine of n_ranks; one of 1 is always alone. QUIRE_INVALID: a variable or flag makes no sense, or means another number of
 * ranks; the message names it. */
int place_find(const struct place_flags *flags, uint32_t n_ranks, struct place *out, struct quire_error *err);

#endif
