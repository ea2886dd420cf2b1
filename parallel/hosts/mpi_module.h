/* What libquire_openmpi.so and libquire_mpich.so give: an MPI behind a table, so that the program is linked with none. Each is
 * mpi_module.c, compiled by that MPI's headers. Point to point only: what is added up is ours to add (docs/numerics.md section 5).
 * One thread at a time calls. */
#ifndef QUIRE_PARALLEL_HOSTS_MPI_MODULE_H
#define QUIRE_PARALLEL_HOSTS_MPI_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MPI_MODULE_TEXT 256

struct mpi_module {
    /* Once per process. False: text says why; else which library it is. */
    bool (*open)(uint32_t *rank, uint32_t *size, char text[MPI_MODULE_TEXT]);
    /* The same n bytes, of rank 0, to all. All call it. */
    bool (*share)(void *bytes, size_t n);
    /* Begins to send n bytes to a peer; they stay as they are until send_is_done(). One send to a peer at a time. */
    bool (*send)(uint32_t peer, const void *bytes, size_t n);
    bool (*send_is_done)(uint32_t peer);
    /* The next message of a peer, of at most max bytes. False: it cannot be had; *n 0: none is there. */
    bool (*receive)(uint32_t peer, void *to, size_t max, size_t *n);
    /* Ends MPI: all ranks do. Not called where a group ends otherwise, since it would wait for all. */
    void (*close)(void);
};

/* The names of what a module exports: its version, a string, is that of the program. */
#define MPI_MODULE_VERSION "quire_mpi_version"
#define MPI_MODULE_TABLE "quire_mpi_table"

#endif
