/* Included before every C++ file of llama.cpp that is compiled here (run.sh). GCC's _tile_loadconfig() up to version 12
 * claims that ldtilecfg reads 8 of its 64 bytes, so the others may never be written: llama.cpp's AMX kernels then end
 * with SIGSEGV. */
#ifdef __AMX_TILE__
#include <immintrin.h>
#define _tile_loadconfig(config) __asm__ volatile("ldtilecfg %0" ::"m"(*(const char(*)[64])(config)))
#endif
