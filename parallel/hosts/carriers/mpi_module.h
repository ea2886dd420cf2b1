/* The interface of libquire_openmpi.so and libquire_mpich.so: an MPI behind a table, so that the program is not linked
 * with any. Each is mpi_module.c, compiled with the headers of that MPI. Point to point only: sums are Quire's own
 * (docs/internals/numerics.md section 5). One thread at a time calls. */
#ifndef QUIRE_PARALLEL_HOSTS_MPI_MODULE_H
#define QUIRE_PARALLEL_HOSTS_MPI_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MPI_MODULE_TEXT 256

struct mpi_module {
    /* Once per process. False: text has the reason; otherwise the name of the library. */
    bool (*open)(uint32_t *rank, uint32_t *size, char text[MPI_MODULE_TEXT]);
    /* The same n bytes, of rank 0, to all. All ranks call it. */
    bool (*share)(void *bytes, size_t n);
    /* Starts to send n bytes to a peer; they must not change until send_is_done(). One send per peer at a time. */
    bool (*send)(uint32_t peer, const void *bytes, size_t n);
    bool (*send_is_done)(uint32_t peer);
    /* The next message of a peer, of at most max bytes. False: an error; *n 0: no message. */
    bool (*receive)(uint32_t peer, void *to, size_t max, size_t *n);
    /* Ends MPI: all ranks call it. Not called if the group ends early, because it would wait for all. */
    void (*close)(void);
};

/* Exported names of a module. The version, a string, must equal the program's. */
#define MPI_MODULE_VERSION "quire_mpi_version"
#define MPI_MODULE_TABLE "quire_mpi_table"

#endif
