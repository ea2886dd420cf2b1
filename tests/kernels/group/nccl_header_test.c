/* What kernels/cuda/host/nccl.h declares by itself is what NVIDIA's header says: the compiler checks it. */
#include "kernels/cuda/host/nccl.h"

#include <nccl.h>

#define SAME(ours, theirs) _Static_assert((long)(ours) == (long)(theirs), #theirs)
SAME(NCCL_SUCCESS, ncclSuccess);
SAME(NCCL_IN_PROGRESS, ncclInProgress);
SAME(NCCL_F32, ncclFloat32);
SAME(NCCL_SUM, ncclSum);
SAME(NCCL_ID_BYTES, NCCL_UNIQUE_ID_BYTES);
SAME(sizeof(struct nccl_id), sizeof(ncclUniqueId));
SAME(_Alignof(struct nccl_id), _Alignof(ncclUniqueId));
SAME(sizeof(ncclResult_t), sizeof(int));
SAME(sizeof(ncclDataType_t), sizeof(int));
SAME(sizeof(ncclRedOp_t), sizeof(int));

/* Number, order and kind of the calls' arguments: pointers to what is opaque, enums as int. */
#define IS(call, type) _Static_assert(__builtin_types_compatible_p(__typeof__(&(call)), type), #call)
IS(ncclGetVersion, ncclResult_t (*)(int *));
IS(ncclGetUniqueId, ncclResult_t (*)(ncclUniqueId *));
IS(ncclCommInitRank, ncclResult_t (*)(ncclComm_t *, int, ncclUniqueId, int));
IS(ncclAllGather, ncclResult_t (*)(const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t));
IS(ncclAllReduce,
   ncclResult_t (*)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t));
IS(ncclGroupStart, ncclResult_t (*)(void));
IS(ncclGroupEnd, ncclResult_t (*)(void));
IS(ncclSend, ncclResult_t (*)(const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t));
IS(ncclRecv, ncclResult_t (*)(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t));
IS(ncclCommGetAsyncError, ncclResult_t (*)(ncclComm_t, ncclResult_t *));
IS(ncclCommAbort, ncclResult_t (*)(ncclComm_t));
IS(ncclCommDestroy, ncclResult_t (*)(ncclComm_t));
IS(ncclGetErrorString, const char *(*)(ncclResult_t));

int main(void)
{
    return 0;
}
