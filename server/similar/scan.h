/* Finds the vectors that cannot be similar enough, from 8-bit codes of some of their dimensions.
 *
 * A vector is first rotated (codes.h: an orthogonal matrix, so dot products stay), which spreads its content over
 * all dimensions. Then it is cut into stages of 64. With x = (a, b), the stages so far and the rest, q·x <= q_a·x_a
 * + |q_b||x_b| (Cauchy and Schwarz). x_a is known as scale·codes, off by at most scale/2 in each of k dimensions,
 * and q_a likewise, off by a vector whose length e is known. So
 *     q·x <= scale (query_scale·sum + (|q_a| + e) √k/2) + |x_b||q_b| + e |x_a|
 * A row below the cut by this bound is excluded for good. Unrelated vectors (product 0) of 384 dimensions have
 * |x_b||q_b| = 5/6 after one stage. They are all excluded for thresholds above 0.85, at a cost of 72 bytes of memory
 * each, out of 1,536. Before that, one bit of each dimension is checked (sketch.h). Only tiles with remaining rows
 * come here, one at a time.
 *
 * 16 vectors make a tile: 16 groups of 4 dimensions, in each 16 rows of 4 codes. That is the operand of vpdpbusd and
 * of vpmaddubsw, and sums stay in their row's lane. Codes are from 1 to 255 with 128 as zero, the query's from -63
 * to 63: two products then fit in vpmaddubsw's 16 bits. Sums are integers, so each instruction set finds the same. */
#ifndef QUIRE_SIMILAR_SCAN_H
#define QUIRE_SIMILAR_SCAN_H

#include <stddef.h>
#include <stdint.h>

#define SCAN_DIMS 64u /* of a stage */
#define SCAN_ROWS 16u /* of a tile */
#define SCAN_TILE_BYTES (SCAN_DIMS * SCAN_ROWS)
#define SCAN_QUERY_MAX 63

struct scan_step { /* one stage of a query */
    const int8_t *query; /* SCAN_DIMS of them, 4-byte aligned */
    int32_t bias; /* 128 · the query's codes, of the stages up to this one */
    float query_scale, per_scale, per_rest, constant; /* the bound above: scale (query_scale·sum + per_scale) + ... */
};
/* tiles: codes of this stage. scale, rest: SCAN_ROWS of each for each tile, 64-byte aligned as the codes are. sums:
 * the sums of the earlier stages, to which this stage adds. masks: one for each tile, bit r: row r may reach the
 * cut. */
typedef void scan_tiles(const uint8_t *tiles, const float *scale, const float *rest, size_t n_tiles,
                        const struct scan_step *step, float cut, int32_t *sums, uint16_t *masks);
scan_tiles scan_tiles_plain;
scan_tiles scan_tiles_avx2; /* these two are there on x86-64 only */
scan_tiles scan_tiles_avx512vnni;

struct scan_isa {
    const char *name;
    scan_tiles *tiles;
};
/* The best that this machine has. */
const struct scan_isa *scan_isa(void);
/* All that this machine has; returns how many. For tests. */
#define SCAN_MAX_ISAS 3u
size_t scan_isas(const struct scan_isa **out);
#endif
