/* Runs the instructions of kernels/cuda/ptx.cuh in one warp. The results are words, as each lane has them. */
#include "kernels/cuda/device.cuh"

#include "tests/simt/fragments/fragments.h"

K_DYNAMIC_SHARED;

static __global__ void __launch_bounds__(32) fragments(struct fragments *f)
{
    int lane = (int)threadIdx.x;
    for (int i = 0; i < 4; i++)
        ((uint32_t *)k_shared)[lane * 4 + i] = f->rows[lane][2 * i] | (uint32_t)f->rows[lane][2 * i + 1] << 16;
    __syncwarp();
    uint32_t r[4];
    ldmatrix_x4(r, k_shared + 16 * lane);
    for (int i = 0; i < 4; i++)
        f->ldmatrix[lane][i] = r[i];
    ldmatrix_x4_trans(r, k_shared + 16 * lane);
    for (int i = 0; i < 4; i++)
        f->ldmatrix_trans[lane][i] = r[i];
    float c[4];
    for (int i = 0; i < 4; i++) {
        r[i] = f->a[lane][i];
        c[i] = f->c[lane][i];
    }
    mma_f16(c, r, f->b[lane][0], f->b[lane][1]);
    for (int i = 0; i < 4; i++)
        f->mma[lane][i] = c[i];
}

cudaError_t run_fragments(struct fragments *host)
{
    struct fragments *device;
    cudaError_t error = cudaMalloc((void **)&device, sizeof *device);
    if (error == cudaSuccess)
        error = cudaMemcpy(device, host, sizeof *device, cudaMemcpyHostToDevice);
    if (error == cudaSuccess)
        error = K_LAUNCH(fragments, 1, 32, 512, nullptr, device);
    if (error == cudaSuccess)
        error = cudaMemcpy(host, device, sizeof *device, cudaMemcpyDeviceToHost);
    cudaFree(device);
    return error;
}

static __global__ void __launch_bounds__(32) zeros(struct zeros *z)
{
    int lane = (int)threadIdx.x;
    uint32_t a[4], none[4] = {};
    float large[4], zero[4], kept[4];
    for (int i = 0; i < 4; i++) {
        a[i] = z->a[lane][i];
        large[i] = zero[i] = kept[i] = z->c[lane][i];
    }
    uint32_t b0 = z->b[lane][0], b1 = z->b[lane][1];
    mma_f16(large, a, b0, b1);
    mma_f16(zero, a, b0 & 0xffffu, b1 & 0xffffu);
    mma_f16(kept, none, b0, b1);
    for (int i = 0; i < 4; i++) {
        z->large[lane][i] = large[i];
        z->zero[lane][i] = zero[i];
        z->kept[lane][i] = kept[i];
    }
}

cudaError_t run_zeros(struct zeros *host)
{
    struct zeros *device;
    cudaError_t error = cudaMalloc((void **)&device, sizeof *device);
    if (error == cudaSuccess)
        error = cudaMemcpy(device, host, sizeof *device, cudaMemcpyHostToDevice);
    if (error == cudaSuccess)
        error = K_LAUNCH(zeros, 1, 32, 0, nullptr, device);
    if (error == cudaSuccess)
        error = cudaMemcpy(host, device, sizeof *device, cudaMemcpyDeviceToHost);
    cudaFree(device);
    return error;
}
