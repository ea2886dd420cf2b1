/* The emulator's stubs of kernels/cuda/ptx.cuh, which documents each function. */
#ifndef QUIRE_SIMT_PTX_H
#define QUIRE_SIMT_PTX_H

#include "tests/simt/device/copy.h"
#include "tests/simt/device/system.h"
#include "tests/simt/device/meeting.h"

inline void ldmatrix_x4(uint32_t (&r)[4], const void *row, SIMT_SITE)
{
    simt::LdmatrixArgument a = {row, r};
    simt::collective(simt::LDMATRIX, ~0u, &a, line, file);
}

inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void *row, SIMT_SITE)
{
    simt::LdmatrixArgument a = {row, r};
    simt::collective(simt::LDMATRIX_TRANS, ~0u, &a, line, file);
}

inline void mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, SIMT_SITE)
{
    uint32_t b[2] = {b0, b1};
    simt::MmaArgument m = {c, a, b};
    simt::collective(simt::MMA_F16, ~0u, &m, line, file);
}

inline void mma_s8(int32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, SIMT_SITE)
{
    uint32_t b[2] = {b0, b1};
    simt::MmaS8Argument m = {c, a, b};
    simt::collective(simt::MMA_S8, ~0u, &m, line, file);
}

inline void cp_async16(void *shared, const void *global, bool valid, SIMT_SITE)
{
    simt::copy_async(shared, global, valid ? 16 : 0, line, file);
}

inline void cp_async_commit()
{
    simt::copy_commit();
}

template <int n> inline void cp_async_wait()
{
    simt::copy_wait(n);
}

inline void ptx_store_release_sys(uint32_t *p, uint32_t v)
{
    simt::peer_store(p, v, true);
}

inline uint32_t ptx_load_acquire_sys(const uint32_t *p)
{
    return simt::peer_load(p, true);
}

inline void ptx_store_relaxed_sys(uint32_t *p, uint32_t v)
{
    simt::peer_store(p, v, false);
}

inline uint32_t ptx_load_relaxed_sys(const uint32_t *p)
{
    return simt::peer_load(p, false);
}

inline uint64_t ptx_nanoseconds()
{
    return simt::nanoseconds();
}

#endif
