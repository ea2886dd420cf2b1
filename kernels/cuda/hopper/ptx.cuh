/* PTX that only Hopper has (sm_90a): products of warpgroups, copies of tiles, and the barriers at which they arrive.
 * Only for the device: the emulator does not have these instructions.
 *
 * wgmma<n>::add: a warpgroup adds 64 rows x n tokens of a 16-deep product to c, or replaces c with it if !sums. Both
 * sides are in shared memory, described by 64 bits (hopper_tile()). For each group j of 8 tokens, thread t of warp w
 * has, with g = t / 4:
 *   c[4j..4j+3]: rows 16 w + g, 16 w + g (+ 8, the latter two), tokens 8 j + t % 4 * 2 and the next.
 * c is complete when wgmma_wait<0>() returns. A barrier's name is its address in shared memory; the parity of phases
 * starts at 0. */
#ifndef QUIRE_KERNELS_CUDA_HOPPER_PTX_CUH
#define QUIRE_KERNELS_CUDA_HOPPER_PTX_CUH

#include <cuda.h>

#include "kernels/cuda/device.cuh"

template <uint32_t n> struct wgmma;

#define PTX_SUMS4(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define PTX_SUMS16(i) PTX_SUMS4(i), PTX_SUMS4(i + 4), PTX_SUMS4(i + 8), PTX_SUMS4(i + 12)

template <> struct wgmma<64> {
    static __device__ __forceinline__ void add(float (&c)[32], uint64_t a, uint64_t b, bool sums)
    {
        asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                     "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
                     "}, %32, %33, p, 1, 1, 0, 0;}"
                     : PTX_SUMS16(0), PTX_SUMS16(16)
                     : "l"(a), "l"(b), "r"((int)sums));
    }
};

template <> struct wgmma<128> {
    static __device__ __forceinline__ void add(float (&c)[64], uint64_t a, uint64_t b, bool sums)
    {
        asm volatile("{.reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                     "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                     "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
                     "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
                     "}, %64, %65, p, 1, 1, 0, 0;}"
                     : PTX_SUMS16(0), PTX_SUMS16(16), PTX_SUMS16(32), PTX_SUMS16(48)
                     : "l"(a), "l"(b), "r"((int)sums));
    }
};

template <> struct wgmma<192> {
    static __device__ __forceinline__ void add(float (&c)[96], uint64_t a, uint64_t b, bool sums)
    {
        asm volatile("{.reg .pred p; setp.ne.b32 p, %98, 0; wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                     "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
                     "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
                     "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
                     "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"
                     "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
                     "}, %96, %97, p, 1, 1, 0, 0;}"
                     : PTX_SUMS16(0), PTX_SUMS16(16), PTX_SUMS16(32), PTX_SUMS16(48), PTX_SUMS16(64), PTX_SUMS16(80)
                     : "l"(a), "l"(b), "r"((int)sums));
    }
};

/* The products that follow see the stage's earlier writes to shared memory and to c. */
PTX_FN void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

PTX_FN void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Returns when at most n of the warpgroup's groups are unfinished. */
template <int n> PTX_FN void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory");
}

/* Prevents the compiler from reading c before this point. */
template <uint32_t n> PTX_FN void wgmma_settle(float (&c)[n])
{
#pragma unroll
    for (uint32_t i = 0; i < n; i++)
        asm volatile("" : "+f"(c[i])::"memory");
}

/* Describes a tile of rows of 128 bytes. The 16-byte pieces of a row are permuted as copies with the 128-byte
 * swizzle leave them: 8 rows take 1,024 bytes and are contiguous. Add 2 for each further 16 columns, and a stage's
 * bytes / 16 for each further stage. */
PTX_FN uint64_t hopper_tile(uint32_t shared_address)
{
    const uint64_t layout = UINT64_C(1) << 16 | UINT64_C(64) << 32 | UINT64_C(1) << 62;
    return (uint64_t)((shared_address & 0x3ffff) >> 4) | layout;
}

PTX_FN void mbarrier_init(uint32_t barrier, uint32_t n_arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(n_arrivals) : "memory");
}

/* Makes the barriers visible to copies and to the other block of the cluster. */
PTX_FN void mbarrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Arrives; the phase ends only after this number of bytes has also arrived. */
PTX_FN void mbarrier_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

PTX_FN void mbarrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrives at the same barrier of block `block` of the cluster. */
PTX_FN void mbarrier_arrive_at(uint32_t barrier, uint32_t block)
{
    asm volatile(
        "{.reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [r];}" ::"r"(barrier),
        "r"(block)
        : "memory");
}

/* Returns when the phase of this parity has ended. */
PTX_FN void mbarrier_wait(uint32_t barrier, uint32_t parity)
{
    uint32_t is_over;
    do
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p;}"
                     : "=r"(is_over)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    while (!is_over);
}

/* Starts the copy of a box of the tensor to shared memory; its bytes arrive at the barrier. Elements outside the
 * tensor become zeros. */
PTX_FN void copy_box(uint32_t to, const CUtensorMap *tensor, uint32_t barrier, int x, int y)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
            to),
        "l"(tensor), "r"(barrier), "r"(x), "r"(y)
        : "memory");
}

PTX_FN void copy_box_4d(uint32_t to, const CUtensorMap *tensor, uint32_t barrier, int x, int y, int z, int w)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
                 "%6}], [%2];" ::"r"(to),
                 "l"(tensor), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
                 : "memory");
}

/* Copies to the same place in both blocks of the cluster, and arrives at the barrier of each. */
PTX_FN void copy_box_to_both(uint32_t to, const CUtensorMap *tensor, uint32_t barrier, int x, int y)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                 "[%1, {%3, %4}], [%2], %5;" ::"r"(to),
                 "l"(tensor), "r"(barrier), "r"(x), "r"(y), "h"((uint16_t)3)
                 : "memory");
}

PTX_FN uint32_t cluster_rank()
{
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

PTX_FN void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* Returns true in one thread of the warp. All threads of the warp must call it together. */
PTX_FN bool is_elected()
{
    uint32_t is;
    asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.b32 %0, 1, 0, p;}" : "=r"(is));
    return is != 0;
}

/* Sets the number of registers of each thread of the warpgroup. */
template <int n> PTX_FN void take_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n));
}

template <int n> PTX_FN void give_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n));
}

#endif
