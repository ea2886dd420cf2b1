/* NVIDIA's NCCL, opened when a group needs it. It transfers data between GPUs that cannot access each other's memory,
 * on one host or several. It adds only with --invariance off. Private to this folder. The few declarations of its
 * header are repeated here, because the build uses no NVIDIA package except CUDA (nccl_header_test.c compares them). */
#ifndef QUIRE_KERNELS_CUDA_NCCL_H
#define QUIRE_KERNELS_CUDA_NCCL_H

#include "kernels/group.h"

#include <cuda_runtime_api.h>

#define NCCL_LIBRARY "libnccl.so.2"
#define NCCL_ID_BYTES 128

enum nccl_result { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7 };
enum nccl_type { NCCL_F32 = 7 };
enum nccl_operation { NCCL_SUM = 0 };
struct nccl_id {
    char internal[NCCL_ID_BYTES];
};
struct nccl_comm; /* NCCL's */

struct nccl_calls {
    int (*get_version)(int *version);
    int (*get_unique_id)(struct nccl_id *out);
    int (*comm_init_rank)(struct nccl_comm **out, int n_ranks, struct nccl_id id, int rank);
    int (*all_gather)(const void *own, void *all, size_t n_of_each, int type, struct nccl_comm *comm,
                      cudaStream_t stream);
    int (*all_reduce)(const void *own, void *sums, size_t n, int type, int operation, struct nccl_comm *comm,
                      cudaStream_t stream);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*send)(const void *own, size_t n, int type, int to, struct nccl_comm *comm, cudaStream_t stream);
    int (*recv)(void *theirs, size_t n, int type, int from, struct nccl_comm *comm, cudaStream_t stream);
    int (*comm_get_async_error)(struct nccl_comm *comm, int *error);
    int (*comm_abort)(struct nccl_comm *comm);
    int (*comm_destroy)(struct nccl_comm *comm);
    const char *(*get_error_string)(int result);
};

/* A rank's communicator. All calls come from the thread that made it, except nccl_look() and nccl_abort(), which any
 * thread may call. */
struct nccl;

/* Opens the library, which is never unloaded. Returns QUIRE_UNSUPPORTED if it is missing or its version is unknown. */
int nccl_open(struct nccl **out, struct quire_error *err);
/* Returns the version, for example "2.27.3". */
const char *nccl_version(const struct nccl *n);
/* Makes an id on one rank, with which all ranks start. */
int nccl_make_id(struct nccl *n, struct nccl_id *out, struct quire_error *err);
/* Starts the communicator, on all ranks together, once. Fails if the group ends, and after thirty of the group's
 * time-outs if a rank never arrives. */
int nccl_start(struct nccl *n, int device, const struct k_group *group, const struct nccl_id *id,
               struct quire_error *err);

/* all: [ranks][n_floats] in device memory, in stream order. Returns QUIRE_UNAVAILABLE if NCCL fails or was aborted. */
int nccl_all_gather(struct nccl *n, const float *own_dev, float *all_dev, size_t n_floats, cudaStream_t stream,
                    struct quire_error *err);
/* own: [ranks][n_floats], of which rank r receives the r-th; parts: [ranks][n_floats], the data of each rank for this
 * one. */
int nccl_exchange(struct nccl *n, const float *own_dev, float *parts_dev, size_t n_floats, cudaStream_t stream,
                  struct quire_error *err);
/* sums: [n_floats], added in an order that NCCL chooses; otherwise as nccl_all_gather. */
int nccl_all_reduce(struct nccl *n, const float *own_dev, float *sums_dev, size_t n_floats, cudaStream_t stream,
                    struct quire_error *err);
/* Returns QUIRE_UNAVAILABLE if NCCL reports that a running call has failed. */
int nccl_look(struct nccl *n, struct quire_error *err);
/* Ends running and later calls without effect, in any state of the peers. */
void nccl_abort(struct nccl *n);
/* If a call may still run, call nccl_abort() first. NULL is allowed. */
void nccl_close(struct nccl *n);

#endif
