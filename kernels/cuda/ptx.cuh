/* The PTX instructions that kernels use, one function each: inline assembly for the device, and the emulator's stubs.
 *
 * Fragments are those of the PTX ISA for mma.m16n8k16 with 16-bit factors. With g = lane / 4, t = lane % 4:
 *   a[0..3]: A[g][2t..], A[g + 8][2t..], A[g][2t + 8..], A[g + 8][2t + 8..]  (row, pair of columns)
 *   b[0..1]: B[2t..][g], B[2t + 8..][g]                                    (pair of rows, column)
 *   c[0..3]: C[g][2t], C[g][2t + 1], C[g + 8][2t], C[g + 8][2t + 1]
 * For mma.m16n8k32 with bytes:
 *   a[0..3]: A[g][4t..], A[g + 8][4t..], A[g][4t + 16..], A[g + 8][4t + 16..] (row, four columns)
 *   b[0..1]: B[4t..][g], B[4t + 16..][g], c as above
 * ldmatrix_x4: lane 8 i + r supplies the address of row r of matrix i (8 rows of 16 bytes, 16-byte aligned, in shared
 * memory); r[i] is then matrix i's row g, elements 2t and 2t + 1 (trans: column g, rows 2t and 2t + 1).
 * Loads and stores of words that several GPUs and the host access, at system scope: release and acquire order a
 * thread's operations before and after them; relaxed ones order nothing. ptx_nanoseconds: a clock.
 * cp_async16: 16 bytes from global to shared memory, both 16-byte aligned; zeros if !valid. The copying thread sees the
 * bytes after cp_async_wait, other threads after a barrier.
 */
#ifndef QUIRE_KERNELS_CUDA_PTX_CUH
#define QUIRE_KERNELS_CUDA_PTX_CUH

#ifdef __CUDACC__
#define PTX_FN static __device__ __forceinline__

PTX_FN uint32_t ptx_shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

PTX_FN void ldmatrix_x4(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(ptx_shared_address(row))
                 : "memory");
}

PTX_FN void ldmatrix_x4_trans(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(ptx_shared_address(row))
                 : "memory");
}

/* c += A B, f16 factors, f32 sums. */
PTX_FN void mma_f16(float (&c)[4], const uint32_t (&a)[4], const uint32_t b0, const uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* c += A B, signed bytes, int32 sums: exact, and modulo 2^32. */
PTX_FN void mma_s8(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t b0, const uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

PTX_FN void cp_async16(void *shared, const void *global, bool valid)
{
    int n = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(ptx_shared_address(shared)), "l"(global), "r"(n)
                 : "memory");
}

PTX_FN void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Returns when at most n of this thread's groups are in flight. */
template <int n> PTX_FN void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
}

PTX_FN void ptx_store_release_sys(uint32_t *p, uint32_t v)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

PTX_FN uint32_t ptx_load_acquire_sys(const uint32_t *p)
{
    uint32_t v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

PTX_FN void ptx_store_relaxed_sys(uint32_t *p, uint32_t v)
{
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

PTX_FN uint32_t ptx_load_relaxed_sys(const uint32_t *p)
{
    uint32_t v;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

PTX_FN uint64_t ptx_nanoseconds()
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}
#else
#include <simt_ptx.h> /* the stubs: tests/simt/include */
#endif

#endif
