/* The rank of this process, the number of ranks, and the address of rank 0: from options, or from the launcher's
 * environment variables. Only reads the environment; any thread. */
#ifndef QUIRE_PARALLEL_HOSTS_RANK_POSITION_H
#define QUIRE_PARALLEL_HOSTS_RANK_POSITION_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define RANK_POSITION_PORT 29501u /* vLLM's */
#define RANK_POSITION_ADDRESS_BYTES 256

enum rank_transport { TRANSPORT_AUTO, TRANSPORT_SHM, TRANSPORT_TCP, TRANSPORT_MPI };

struct rank_position_flags {
    enum rank_transport transport;
    uint32_t nnodes, node_rank; /* nnodes 0: not set */
    const char *master_addr; /* NULL: not set */
    uint32_t master_port; /* 0: not given */
};

struct position {
    const char
        *launcher; /* NULL: no launcher, and rank 0 starts the ranks; otherwise "torchrun", "Open MPI", ... (static) */
    uint32_t rank, size;
    uint32_t n_local; /* ranks on this host, if known; otherwise 1 */
    bool is_mpi; /* mpirun's: MPI itself can exchange rank 0's address */
    bool is_mpich; /* an MPI of MPICH's family */
    char address[RANK_POSITION_ADDRESS_BYTES]; /* rank 0's; empty: unknown */
    uint16_t port;
};

/* "auto", "shm", "tcp" or "mpi". */
int rank_transport_parse(const char *name, enum rank_transport *out, struct quire_error *err);

/* For an engine of n_ranks; an engine with 1 rank is always alone. QUIRE_INVALID: a variable or option is invalid, or
 * implies another number of ranks; the message names it. */
int rank_position_find(const struct rank_position_flags *flags, uint32_t n_ranks, struct position *out,
                       struct quire_error *err);

#endif
