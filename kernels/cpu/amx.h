/* AMX's tile operations. Only this file uses their intrinsics. Tile numbers are constants. A test compiles this
 * module's AMX code with a stub of these operations in plain C, which it includes first (tests/kernels/amx_stub.h).
 *
 * amx_dpbf16(c, a, b): c[m][n] += e + o with e (o) the chain of fma over the even (odd) k of
 * a[m][k] * b[k][n]; b stores (even, odd) pairs of k next to each other. Denormals are zeros, in and out.
 * amx_dpbssd(c, a, b): the same for signed bytes, with four of k next to each other in b; exact.
 */
#ifndef QUIRE_KERNELS_CPU_AMX_H
#define QUIRE_KERNELS_CPU_AMX_H

#include <stdint.h>

struct amx_config { /* in the layout of ldtilecfg */
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

#if !defined(QUIRE_AMX_STUB)

#include <immintrin.h>

/* gcc 12's intrinsic declares that it reads 8 of these 64 bytes, so the compiler may not have written the others. */
#define amx_configure(config) __asm__ volatile("ldtilecfg %0" : : "m"(*(config)))
#define amx_release() _tile_release()
#define amx_zero(tile) _tile_zero(tile)
/* gcc 12's intrinsic does not declare that it reads memory. */
#define amx_load(tile, base, stride) \
    do { \
        __asm__ volatile("" : : : "memory"); \
        _tile_loadd(tile, base, stride); \
    } while (0)
#define amx_store(tile, base, stride) _tile_stored(tile, base, stride)
#define amx_dpbf16(c, a, b) _tile_dpbf16ps(c, a, b)
#define amx_dpbssd(c, a, b) _tile_dpbssd(c, a, b)

#endif

#endif
