/* The kernels' machine code, onto the current GPU: about 60 calls when a backend opens. By default, and where the user says
 * CUDA_MODULE_LOADING=LAZY, the driver loads a kernel when it is first launched, for which it may allocate: nothing that a
 * recorded step may do, and no time for a first request to pay. Asking what a kernel needs loads it, whatever the environment
 * says. */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"

extern "C" cudaError_t launch_load_all(const char **name)
{
    cudaError_t first = cudaSuccess;
    for (const struct k_loadable *at = k_loadable::first; at; at = at->next) {
        struct cudaFuncAttributes attributes;
        cudaError_t error = cudaFuncGetAttributes(&attributes, at->kernel);
        if (error != cudaSuccess && first == cudaSuccess) {
            first = error;
            *name = at->name;
        }
    }
    return first;
}
