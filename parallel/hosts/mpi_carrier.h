/* Messages over MPI, where a launcher's was found: of a library that is opened at run time (mpi_module.h). */
#ifndef QUIRE_PARALLEL_HOSTS_MPI_CARRIER_H
#define QUIRE_PARALLEL_HOSTS_MPI_CARRIER_H

#include "parallel/hosts/carrier.h"

extern const struct carrier mpi_carrier;

/* Opens the module of an MPI and begins it: once in a process. *state: the carrier's, of as many ranks as the MPI has, which are
 * *rank and *size. library: [256], its name and version. QUIRE_UNSUPPORTED: it is not there, or does not begin; err has why. */
int mpi_carrier_open(bool is_mpich, uint32_t *rank, uint32_t *size, char *library, void **state,
                     struct quire_error *err);
/* What it takes beside the inbox: a message to each, and the one that comes. */
size_t mpi_carrier_bytes(void);
/* n bytes of rank 0, to all. */
int mpi_carrier_share(void *state, void *bytes, size_t n, struct quire_error *err);
/* Where messages go; before the first call of the table. */
void mpi_carrier_set_inbox(void *state, struct inbox *inbox);

#endif
