/* What the files of gpu_probe share. */
#ifndef QUIRE_TESTS_SIMT_FRAGMENTS_PROBE_H
#define QUIRE_TESTS_SIMT_FRAGMENTS_PROBE_H

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

/* Ends the program with status 2 unless `error` is success. */
static inline void probe_check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "gpu_probe: %s: %s\n", what, cudaGetErrorString(error));
    exit(2);
}

/* Prints "chains" and what it found. 0: every chain has the model's bits. 1: not so. Below 0: the GPU has no wgmma. */
int probe_chains(void);

#endif
