/* Messages over MPI, if a launcher's MPI is available, through a library that is opened at run time (mpi_module.h). One
 * thread. */
#ifndef QUIRE_PARALLEL_HOSTS_MPI_CARRIER_H
#define QUIRE_PARALLEL_HOSTS_MPI_CARRIER_H

#include "parallel/hosts/carriers/carrier.h"

extern const struct carrier mpi_carrier;

/* Opens and starts the module of an MPI, once per process. *state: the carrier's, with *rank and *size of MPI. library:
 * [256], its name and version. QUIRE_UNSUPPORTED: it is not available or does not start; err has the reason. */
int mpi_carrier_open(bool is_mpich, uint32_t *rank, uint32_t *size, char *library, void **state,
                     struct quire_error *err);
/* Memory in addition to the inbox: one outgoing message per peer, and one incoming. */
size_t mpi_carrier_bytes(void);
/* Sends n bytes of rank 0 to all. */
int mpi_carrier_share(void *state, void *bytes, size_t n, struct quire_error *err);
/* Sets the destination of messages; call it before the functions of the table. */
void mpi_carrier_set_inbox(void *state, struct inbox *inbox);

#endif
