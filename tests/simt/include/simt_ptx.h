// The host twins of kernels/cuda/ptx.cuh.
#pragma once
#define PTX_FN inline
PTX_FN void ldmatrix_x4(uint32_t (&r)[4], const void* p, SIMT_LOC) { simt::LdsmArg a{p, r}; simt::collective(simt::LDSM, ~0u, &a, line, file); }
PTX_FN void ldmatrix_x4_trans(uint32_t (&r)[4], const void* p, SIMT_LOC) { simt::LdsmArg a{p, r}; simt::collective(simt::LDSMT, ~0u, &a, line, file); }
PTX_FN void mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, SIMT_LOC) { uint32_t b[2] = {b0, b1}; simt::MmaArg x{c, a, b}; simt::collective(simt::MMA_F16, ~0u, &x, line, file); }
inline __attribute__((always_inline)) void cp_async16(void* dst, const void* src, bool valid) {
  void* pc; asm("lea 1f(%%rip), %0\n1:" : "=r"(pc)); simt::cp_async(dst, src, valid ? 16 : 0, pc);
}
PTX_FN void cp_async_commit() { simt::cp_commit(); }
template <int n> PTX_FN void cp_async_wait() { simt::cp_wait(n, false); }
