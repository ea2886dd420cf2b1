/* Writes tests/simt/fragments.txt to standard output: the results of a GPU's instructions. Built by nvcc
 * (tests/simt/README.md). fragments_test.cc compares the emulator's results with it. */
#include <cuda_runtime.h>

#include "tests/simt/fragments/fragments.h"

int main(void)
{
    struct fragments f;
    fill_fragments(&f);
    cudaError_t error = run_fragments(&f);
    if (error != cudaSuccess) {
        fprintf(stderr, "fragments_record: %s\n", cudaGetErrorString(error));
        return 1;
    }
    struct cudaDeviceProp device;
    if (cudaGetDeviceProperties(&device, 0) == cudaSuccess)
        printf("# %s, sm_%d%d: lane, ldmatrix, ldmatrix.trans, mma\n", device.name, device.major, device.minor);
    write_fragments(&f, stdout);
    struct zeros z;
    fill_zeros(&z);
    error = run_zeros(&z);
    if (error != cudaSuccess) {
        fprintf(stderr, "fragments_record: %s\n", cudaGetErrorString(error));
        return 1;
    }
    if (count_moved(&z) > 0) {
        printf("# a zero times a large number moves %d of 128 sums\n",
               count_moved(&z)); /* the last line, which gpu_check.sh shows */
        return 1;
    }
    return 0;
}
