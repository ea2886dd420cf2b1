/* Quantized rows laid out anew for a CPU: GGUF's blocks, for the form int8.
 *
 * As files have them, a row's numbers lie side by side: who multiplies them by one token must then add up along the
 * register, or turn 16 rows round first, and reads 16 streams. So when a weight is created its rows are regrouped, once: a
 * panel is 16 rows, and of a block of each of them the first four bytes lie beside each other, then the second four, and
 * so on. A load brings four bytes of each row, a lane is a row, and all of a thread's share is one stream. Nothing else is
 * changed, so a panel is as large as its 16 rows but for what fills up the last panel, and the f16 numbers of a chunk, to
 * whole lines.
 *
 * A panel is chunks of 256 columns, the last one may have fewer. A chunk is its blocks' f16 numbers, block by block, 16
 * rows side by side, filled up to 64 bytes; then its blocks' words of 32 bits, block by block, 16 rows side by side. The
 * words are the block's as they are (cpu_panel_place() says where), but for Q8_0's, whose q are stored as q + 128, and
 * Q5_0's and Q5_1's fifth bits: bit 4 s + b of 32 is bit 8 b + s here, that of byte b of the word s columns of four further
 * on.
 *
 * A core of a Zen 4 regroups 28 MB of Q6_K in 12 ms, page faults aside (by samples, once, busy machine). Rows in the file
 * are not read again, but for embed().
 */
#ifndef QUIRE_KERNELS_CPU_PANELS_H
#define QUIRE_KERNELS_CPU_PANELS_H

#include "kernels/quant.h"

#define CPU_PANEL_ROWS 16u
#define CPU_PANEL_CHUNK 256u /* columns */
#define CPU_QUANT_MAX_COLUMNS 65536u /* whose products, of bytes, sum up in 32 bits */

/* f16 numbers of a block: its scale, and its least. */
static inline uint32_t cpu_panel_halves(const struct k_blocks *b)
{
    return b->has_least ? 2 : 1;
}
static inline uint32_t cpu_panel_words(const struct k_blocks *b)
{
    return (b->bytes - 2 * cpu_panel_halves(b)) / 4;
}

/* Where word i of a block lies among its words. Q5_K's and Q6_K's low and high bits of a column are far from each other in
 * the file; here they lie in the order in which they are read: of two streams at a time, the machine's prefetchers saw
 * none, and both took up to twice as long. */
static inline uint32_t cpu_panel_place(enum k_packing packing, uint32_t i)
{
    if (packing == K_PACKING_Q5_K && i >= 3) /* 8 high ones, 4 times 8 low ones */
        return i < 11 ? 3 + (i - 3) * 2 + 1 : i < 19 ? 3 + (i - 11) * 2 : i;
    if (packing != K_PACKING_Q6_K)
        return i;
    if (i >= 48) /* scales */
        return i - 48;
    const uint32_t half = i < 32 ? i / 16 : (i - 32) / 8;
    return 4 + half * 24 + (i >= 32 ? i % 8 * 2 + 1 : i % 16 < 8 ? i % 8 * 2 : 8 + i % 16);
}

/* Where the words of a chunk of so many blocks begin, and the chunk's bytes. */
static inline uint32_t cpu_panel_words_at(const struct k_blocks *b, uint32_t n_blocks)
{
    return (n_blocks * cpu_panel_halves(b) * 2 * CPU_PANEL_ROWS + 63) / 64 * 64;
}
static inline uint32_t cpu_panel_chunk_bytes(const struct k_blocks *b, uint32_t n_blocks)
{
    return cpu_panel_words_at(b, n_blocks) + n_blocks * cpu_panel_words(b) * 4 * CPU_PANEL_ROWS;
}

/* Of one panel; 0 where rows of this format stay as they are. */
static inline uint64_t cpu_panel_bytes(struct k_format format, uint32_t n_cols)
{
    const struct k_blocks *b = k_blocks_of(format.packing);
    if (!b || n_cols > CPU_QUANT_MAX_COLUMNS || n_cols % b->columns != 0)
        return 0;
    const uint32_t n_chunks = n_cols / CPU_PANEL_CHUNK, rest = n_cols % CPU_PANEL_CHUNK / b->columns;
    return (uint64_t)n_chunks * cpu_panel_chunk_bytes(b, CPU_PANEL_CHUNK / b->columns) +
           (rest ? cpu_panel_chunk_bytes(b, rest) : 0);
}

/* Of a part of a weight. */
static inline uint64_t cpu_panels_bytes(struct k_format format, uint32_t n_rows, uint32_t n_cols)
{
    return ((uint64_t)n_rows + CPU_PANEL_ROWS - 1) / CPU_PANEL_ROWS * cpu_panel_bytes(format, n_cols);
}

struct k_backend;
struct k_weight;
/* Regroups those parts of w that it pays for, by all threads of b. QUIRE_NO_MEMORY leaves w as it was. */
int cpu_make_panels(struct k_backend *b, struct k_weight *w, struct quire_error *err);

#endif
