/* NVIDIA's NCCL, opened when a group needs it: it carries bytes between GPUs that do not reach each other's memory, on one host or on several, and adds nothing
 * but with --invariance off.
 * What it declares is declared here again, since the build takes nothing of NVIDIA's but CUDA (nccl_header_test.c compares). */
#ifndef QUIRE_KERNELS_CUDA_NCCL_H
#define QUIRE_KERNELS_CUDA_NCCL_H

#include "kernels/kernels.h"

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

/* A rank's communicator. The thread that made it calls; nccl_look() and nccl_abort() any other beside it. */
struct nccl;

/* Opens the library, which stays. QUIRE_UNSUPPORTED: it is not there, or none that this file knows. */
int nccl_open(struct nccl **out, struct quire_error *err);
/* As "2.27.3". */
const char *nccl_version(const struct nccl *n);
/* Of one rank, for all to start with. */
int nccl_make_id(struct nccl *n, struct nccl_id *out, struct quire_error *err);
/* All ranks together, once. Ends with the group, should a rank never come, and after thirty of the group's time-outs. */
int nccl_start(struct nccl *n, int device, const struct k_group *group, const struct nccl_id *id,
               struct quire_error *err);

/* all: [ranks][n_floats] in device memory, in stream order. QUIRE_UNAVAILABLE: NCCL says why not, or it was aborted. */
int nccl_all_gather(struct nccl *n, const float *own_dev, float *all_dev, size_t n_floats, cudaStream_t stream,
                    struct quire_error *err);
/* own: [ranks][n_floats], of which rank r gets the r-th; parts: [ranks][n_floats], what each had for this one. */
int nccl_exchange(struct nccl *n, const float *own_dev, float *parts_dev, size_t n_floats, cudaStream_t stream,
                  struct quire_error *err);
/* sums: [n_floats], added in whatever order NCCL takes; else alike. */
int nccl_all_reduce(struct nccl *n, const float *own_dev, float *sums_dev, size_t n_floats, cudaStream_t stream,
                    struct quire_error *err);
/* QUIRE_UNAVAILABLE: what runs has failed, by NCCL's word. */
int nccl_look(struct nccl *n, struct quire_error *err);
/* Ends what runs and what will be asked for, without effect, whatever became of the peers. */
void nccl_abort(struct nccl *n);
/* After nccl_abort() where something may still run. NULL is nothing. */
void nccl_close(struct nccl *n);

#endif
