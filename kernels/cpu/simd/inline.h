/* How the functions of kernels/cpu's headers are declared: always part of their caller, so that a constant argument
 * removes branches. Files that include these headers are built once for each instruction set (kernels/CMakeLists.txt).
 */
#ifndef QUIRE_KERNELS_CPU_SIMD_INLINE_H
#define QUIRE_KERNELS_CPU_SIMD_INLINE_H

#define CPU_INLINE static inline __attribute__((always_inline))

#endif
