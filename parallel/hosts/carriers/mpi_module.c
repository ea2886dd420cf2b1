/* A module: compiled once for each MPI. Only mpi_carrier.c opens it. */
#include "parallel/hosts/carriers/mpi_module.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>

#define MAX_PEERS 8
#define TAG 7

static MPI_Request requests[MAX_PEERS];

static bool module_open(uint32_t *rank, uint32_t *size, char text[MPI_MODULE_TEXT])
{
    int provided = 0, own = 0, all = 0, n = 0;
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS) {
        snprintf(text, MPI_MODULE_TEXT, "MPI_Init_thread failed");
        return false;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &own);
    MPI_Comm_size(MPI_COMM_WORLD, &all);
    MPI_Get_library_version(library, &n);
    library[strcspn(library, ",\n")] = 0;
    for (char *c = library; *c; c++)
        *c = *c == '\t' ? ' ' : *c;
    snprintf(text, MPI_MODULE_TEXT, "%.200s", library);
    for (int r = 0; r < MAX_PEERS; r++)
        requests[r] = MPI_REQUEST_NULL;
    *rank = (uint32_t)own;
    *size = (uint32_t)all;
    if (provided < MPI_THREAD_SERIALIZED)
        snprintf(text, MPI_MODULE_TEXT, "%.100s does not allow calls from several threads", library);
    return provided >= MPI_THREAD_SERIALIZED;
}

static bool module_share(void *bytes, size_t n)
{
    return MPI_Bcast(bytes, (int)n, MPI_BYTE, 0, MPI_COMM_WORLD) == MPI_SUCCESS;
}

static bool module_send(uint32_t peer, const void *bytes, size_t n)
{
    return MPI_Isend(bytes, (int)n, MPI_BYTE, (int)peer, TAG, MPI_COMM_WORLD, &requests[peer]) == MPI_SUCCESS;
}

static bool module_send_is_done(uint32_t peer)
{
    int done = 0;
    return MPI_Test(&requests[peer], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done;
}

static bool module_receive(uint32_t peer, void *to, size_t max, size_t *n)
{
    int is_there = 0, bytes = 0;
    MPI_Status status;
    *n = 0;
    if (MPI_Iprobe((int)peer, TAG, MPI_COMM_WORLD, &is_there, &status) != MPI_SUCCESS)
        return false;
    if (!is_there)
        return true;
    if (MPI_Get_count(&status, MPI_BYTE, &bytes) != MPI_SUCCESS || bytes <= 0 || (size_t)bytes > max)
        return false;
    *n = (size_t)bytes;
    return MPI_Recv(to, bytes, MPI_BYTE, (int)peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE) == MPI_SUCCESS;
}

static void module_close(void)
{
    MPI_Finalize();
}

__attribute__((visibility("default"))) extern const char quire_mpi_version[];
__attribute__((visibility("default"))) extern const struct mpi_module quire_mpi_table;

const char quire_mpi_version[] = QUIRE_VERSION;
const struct mpi_module quire_mpi_table = {
    .open = module_open,
    .share = module_share,
    .send = module_send,
    .send_is_done = module_send_is_done,
    .receive = module_receive,
    .close = module_close,
};
