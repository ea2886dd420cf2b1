/* The kernels' machine code, onto the current GPU: about 60 calls when a backend opens. By default, and where the user says
 * CUDA_MODULE_LOADING=LAZY, the driver loads a kernel when it is first launched, for which it may allocate: nothing that a
 * recorded step may do, and no time for a first request to pay. Asking what a kernel needs loads it, whatever the environment
 * says. */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"

extern "C" cudaError_t launch_load_all(void)
{
    cudaError_t error = cudaSuccess;
    for (const struct k_loadable *at = k_loadable::first; at && error == cudaSuccess; at = at->next) {
        struct cudaFuncAttributes attributes;
        error = cudaFuncGetAttributes(&attributes, at->kernel);
    }
    return error;
}
