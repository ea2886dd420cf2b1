/* Finds the vectors that cannot be similar enough, from one bit of each dimension. It comes before the codes of
 * scan.h and makes them unnecessary for nearly all vectors.
 *
 * A rotated vector x (codes.h) of D dimensions is stored as its signs b, the length s that fits them best (the mean
 * of |x|), and the distance |e| of x from s·b. With x = s·b + e
 *     q·x <= s·(q·b) + |q||e|
 * A row below the cut by this bound is excluded for good. Rotated vectors are close to normally distributed: |e| is
 * about 0.6. Nearly all unrelated vectors are therefore excluded at thresholds from 0.7 on, at a cost of 56 bytes of
 * memory out of 1,536 at 384 dimensions. A stage of codes costs 72 bytes and decides only above 0.85.
 *
 * Four dimensions make a nibble. A table of 16 entries for each nibble of the query holds their part of q·b, rounded
 * up to whole steps. The sum is an upper bound in integers, so each instruction set finds the same. 32 vectors make
 * a tile: for each eight dimensions 32 bytes, the first four dimensions low; row r is byte 2r, or 2(r - 16) + 1. */
#ifndef QUIRE_SIMILAR_SKETCH_H
#define QUIRE_SIMILAR_SKETCH_H

#include "server/similar/scan.h"

#define SKETCH_ROWS 32u /* of a tile */
#define SKETCH_STAGE_BYTES (SCAN_DIMS / 8) /* bytes of a row, for each 64 dimensions */
#define SKETCH_TABLE_BYTES (SCAN_DIMS / 4 * 16) /* bytes of the query's tables, for each 64 dimensions */

struct sketch_query {
    const uint8_t *tables; /* n_stages · SKETCH_TABLE_BYTES, 16-byte aligned */
    uint32_t n_stages;
    float step, base; /* q·b <= base + step · sum */
    float length, constant; /* the bound above: scale (base + step·sum) + length·rest + constant */
};

/* A turned vector into row `row`. tiles: rows · n_stages · SKETCH_STAGE_BYTES. */
void sketch_put(const float *turned, uint32_t n_stages, uint32_t row, uint8_t *tiles, float *scale, float *rest);
/* tables: room for them; out borrows it. */
void sketch_of_query(const float *turned, uint32_t n_stages, uint8_t *tables, struct sketch_query *out);

/* masks: one for each tile, bit r: row r may reach the cut. scale, rest: one per row, 32-byte aligned as the tiles
 * are. */
typedef void sketch_tiles(const uint8_t *tiles, const float *scale, const float *rest, size_t n_tiles,
                          const struct sketch_query *query, float cut, uint32_t *masks);
sketch_tiles sketch_tiles_plain;
sketch_tiles sketch_tiles_avx2; /* there on x86-64 only */
/* The best that this machine has. */
sketch_tiles *sketch_best(void);
#endif
