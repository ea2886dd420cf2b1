#include "kernels/cpu/repacked.h"

#include "kernels/host/host.h"
#include "kernels/math/convert.h"

#include <string.h>
#include <sys/mman.h>

static uint32_t word_at(const uint8_t *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

/* Moves bit 4 s + b to 8 b + s: the transposition of an 8 by 4 matrix of bits. */
static uint32_t turn_bits(uint32_t bits)
{
    uint32_t out = 0;
    for (uint32_t i = 0; i < 32; i++)
        out |= (bits >> i & 1) << (i % 4 * 8 + i / 4);
    return out;
}

struct shape {
    const struct k_blocks *blocks;
    enum k_packing packing;
    uint32_t n_halves, n_words;
    uint32_t halves_at, words_at; /* offsets in a block of the file */
};

static struct shape shape_of(enum k_packing packing)
{
    const struct k_blocks *b = k_blocks_of(packing);
    const uint32_t n_halves = cpu_repacked_halves(b), n_words = cpu_repacked_words(b);
    const bool halves_last = packing == K_PACKING_Q2_K || packing == K_PACKING_Q3_K || packing == K_PACKING_Q6_K;
    return (struct shape){
        b, packing, n_halves, n_words, halves_last ? 4 * n_words : 0, halves_last ? 0 : b->bytes - 4 * n_words};
}

/* Stores a row's block: its f16 numbers and its words, each next to those of the other rows. */
static void put_block(const struct shape *s, const uint8_t *block, uint32_t row, uint8_t *halves, uint8_t *words)
{
    const uint8_t *from = block + s->words_at;
    const bool has_fifths = s->packing == K_PACKING_Q5_0 || s->packing == K_PACKING_Q5_1;
    const uint32_t flip = s->packing == K_PACKING_Q8_0 ? 0x80808080 : 0;
    for (uint32_t i = 0; i < s->n_halves; i++) {
        uint8_t *to = halves + (i * CPU_REPACKED_ROWS + row) * 2;
        if (s->packing == K_PACKING_MXFP4) {
            const uint16_t scale = (uint16_t)(k_f32_bits(k_half_from_e8m0(*block)) >> 16); /* exact in bf16 */
            memcpy(to, &scale, 2);
            continue;
        }
        memcpy(to, block + s->halves_at + 2 * i, 2);
    }
    for (uint32_t i = 0; i < s->n_words; i++) {
        uint32_t word = word_at(from + 4 * i) ^ flip;
        if (has_fifths && i == 0)
            word = turn_bits(word);
        memcpy(words + (cpu_repacked_place(s->packing, i) * CPU_REPACKED_ROWS + row) * 4, &word, 4);
    }
}

static void repack_row_block(const struct host_part *part, const struct shape *s, uint32_t first, uint8_t *out)
{
    const uint32_t per_chunk = CPU_REPACKED_CHUNK / s->blocks->columns,
                   n_blocks = part->view.n_cols / s->blocks->columns;
    const uint32_t n_rows = part->view.n_rows - first < CPU_REPACKED_ROWS ? part->view.n_rows - first
                                                                          : CPU_REPACKED_ROWS;
    for (uint32_t c = 0; c < n_blocks; c += per_chunk) {
        const uint32_t n = n_blocks - c < per_chunk ? n_blocks - c : per_chunk;
        const uint32_t bytes = cpu_repacked_chunk_bytes(s->blocks, n), words_at = cpu_repacked_words_at(s->blocks, n);
        if (n_rows < CPU_REPACKED_ROWS) /* missing rows are zeros */
            memset(out, 0, bytes);
        for (uint32_t row = 0; row < n_rows; row++) {
            const uint8_t *block = host_row(part, first + row) + (uint64_t)c * s->blocks->bytes;
            for (uint32_t b = 0; b < n; b++, block += s->blocks->bytes)
                put_block(s, block, row, out + b * s->n_halves * 2 * CPU_REPACKED_ROWS,
                          out + words_at + b * s->n_words * 4 * CPU_REPACKED_ROWS);
        }
        out += bytes;
    }
}

struct task {
    const struct host_part *part;
    struct shape shape;
    uint8_t *out;
};

static void make_some(void *context, struct k_piece piece)
{
    const struct task *t = context;
    const struct k_weight_view *w = &t->part->view;
    const uint64_t bytes = cpu_repacked_block_bytes(w->format, w->n_cols);
    uint64_t begin, end;
    k_pool_share(((uint64_t)w->n_rows + CPU_REPACKED_ROWS - 1) / CPU_REPACKED_ROWS, piece, &begin, &end);
    for (uint64_t p = begin; p < end; p++)
        repack_row_block(t->part, &t->shape, (uint32_t)(p * CPU_REPACKED_ROWS), t->out + p * bytes);
}

static uint64_t bytes_of(const struct host_part *part)
{
    return part->view.is_table ? 0 : cpu_repacked_bytes(part->view.format, part->view.n_rows, part->view.n_cols);
}

/* Repacked rows are read sequentially, so fewer, larger pages are faster. Without large pages nothing changes. */
static void ask_large_pages(void *repacked, uint64_t bytes)
{
    const uintptr_t page = (uintptr_t)1 << 21, begin = ((uintptr_t)repacked + page - 1) / page * page;
    const uintptr_t end = ((uintptr_t)repacked + bytes) / page * page;
    if (begin < end)
        (void)madvise((void *)begin, end - begin, MADV_HUGEPAGE);
}

int cpu_repack(struct k_backend *b, struct k_weight *w, struct quire_error *err)
{
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < w->n_parts; p++)
        bytes += bytes_of(&w->parts[p]);
    if (bytes == 0)
        return QUIRE_OK;
    int status = b->ops->alloc(b, bytes, &w->repacked, err);
    if (status != QUIRE_OK)
        return status;
    ask_large_pages(w->repacked, bytes);
    uint8_t *at = w->repacked;
    for (uint32_t p = 0; p < w->n_parts; p++) {
        struct host_part *part = &w->parts[p];
        const uint64_t part_bytes = bytes_of(part);
        if (part_bytes == 0)
            continue;
        struct task task = {part, shape_of(part->view.format.packing), at};
        host_run(b, (uint64_t)part->view.n_rows * w->n_cols, make_some, &task);
        part->repacked = at;
        at += part_bytes;
    }
    return QUIRE_OK;
}
