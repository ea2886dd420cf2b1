/* Quantized rows that are repacked for a CPU: GGUF's blocks, for the int8 form.
 *
 * In a file the numbers of a row are adjacent. A kernel that multiplies them by one token must add along the register,
 * or transpose 16 rows first, and reads 16 streams. So the rows of a weight are repacked once, when the weight is
 * created. Each 16 rows form a row block: the first four bytes of a quantization block
 * of each row are next to each other, then the second four, and so on. A load reads four bytes of each row, a lane is a
 * row, and a thread's whole share is one stream. Nothing else changes. So a row block is as large as its 16 rows,
 * except for the padding of the last block and of a chunk's f16 numbers to whole cache lines.
 *
 * A row block consists of chunks of 256 columns; the last may have fewer. A chunk stores its quantization blocks' f16
 * numbers, block by block, 16 rows next to each other, padded to 64 bytes; then their words of 32 bits, block by block,
 * 16 rows next to each other. The words are unchanged (cpu_repacked_place() gives their order), with two exceptions.
 * Q8_0's q are stored as q + 128. For the fifth bits of Q5_0 and Q5_1, bit 4 s + b of 32 is bit 8 b + s here: that of
 * byte b of the word s columns of four later.
 *
 * A Zen 4 core repacks 28 MB of Q6_K in 12 ms, without page faults (by samples, once, busy machine). Only embed() reads
 * the file's rows afterwards. Pure, except cpu_repack(), which the engine's thread calls.
 */
#ifndef QUIRE_KERNELS_CPU_REPACKED_H
#define QUIRE_KERNELS_CPU_REPACKED_H

#include "kernels/backend.h"
#include "kernels/quant.h"

#define CPU_REPACKED_ROWS 16u
#define CPU_REPACKED_CHUNK 256u /* columns */
#define CPU_QUANT_MAX_COLUMNS 65536u /* the products of this many columns of bytes sum within 32 bits */

/* Returns the number of 16-bit numbers of a block: its scale, and its least or the high bits of IQ4_XS's scales. All
 * other bytes are whole words, except MXFP4's one byte of scale, which becomes 16 bits. */
static inline uint32_t cpu_repacked_halves(const struct k_blocks *b)
{
    return b->bytes % 4 == 0 ? 2 : 1;
}
static inline uint32_t cpu_repacked_words(const struct k_blocks *b)
{
    return (b->bytes - 2 * cpu_repacked_halves(b) + 1) / 4;
}

/* Returns the position of word i of a block among its words. In the file, the low and the high bits of a Q5_K or Q6_K
 * column are far apart; here they are in reading order. With two streams at a time the hardware prefetchers did not
 * detect either, and both took up to twice as long. */
static inline uint32_t cpu_repacked_place(enum k_packing packing, uint32_t i)
{
    if (packing == K_PACKING_Q5_K && i >= 3) /* 8 words of high bits, 4 times 8 of low bits */
        return i < 11 ? 3 + (i - 3) * 2 + 1 : i < 19 ? 3 + (i - 11) * 2 : i;
    if (packing != K_PACKING_Q6_K)
        return i;
    if (i >= 48) /* scales */
        return i - 48;
    const uint32_t half = i < 32 ? i / 16 : (i - 32) / 8;
    return 4 + half * 24 + (i >= 32 ? i % 8 * 2 + 1 : i % 16 < 8 ? i % 8 * 2 : 8 + i % 16);
}

/* Returns where the words of a chunk with this many blocks begin, and the chunk's bytes. */
static inline uint32_t cpu_repacked_words_at(const struct k_blocks *b, uint32_t n_blocks)
{
    return (n_blocks * cpu_repacked_halves(b) * 2 * CPU_REPACKED_ROWS + 63) / 64 * 64;
}
static inline uint32_t cpu_repacked_chunk_bytes(const struct k_blocks *b, uint32_t n_blocks)
{
    return cpu_repacked_words_at(b, n_blocks) + n_blocks * cpu_repacked_words(b) * 4 * CPU_REPACKED_ROWS;
}

/* Returns the bytes of one row block; 0 if rows of this format are not repacked. */
static inline uint64_t cpu_repacked_block_bytes(struct k_format format, uint32_t n_cols)
{
    const struct k_blocks *b = k_blocks_of(format.packing);
    if (!b || n_cols > CPU_QUANT_MAX_COLUMNS || n_cols % b->columns != 0)
        return 0;
    const uint32_t n_chunks = n_cols / CPU_REPACKED_CHUNK, rest = n_cols % CPU_REPACKED_CHUNK / b->columns;
    return (uint64_t)n_chunks * cpu_repacked_chunk_bytes(b, CPU_REPACKED_CHUNK / b->columns) +
           (rest ? cpu_repacked_chunk_bytes(b, rest) : 0);
}

/* Returns the bytes of a part of a weight. */
static inline uint64_t cpu_repacked_bytes(struct k_format format, uint32_t n_rows, uint32_t n_cols)
{
    return ((uint64_t)n_rows + CPU_REPACKED_ROWS - 1) / CPU_REPACKED_ROWS * cpu_repacked_block_bytes(format, n_cols);
}

struct k_backend;
struct k_weight;
/* Repacks the suitable parts of w, with all threads of b. QUIRE_NO_MEMORY leaves w unchanged. */
int cpu_repack(struct k_backend *b, struct k_weight *w, struct quire_error *err);

#endif
