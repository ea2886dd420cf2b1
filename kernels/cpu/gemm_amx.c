/* The tile form on AMX (docs/internals/numerics.md §6): TDPBF16PS is the sum of one tile. The rows of W are the A
 * operand in place; the activations are packed as B. Two tiles of rows are multiplied by one or two groups of tokens.
 *
 * With few tokens W must arrive at memory speed: a tile's rows are then N/32 apart, so that each of 32 streams is long.
 * A probe of 40 lines on Sapphire Rapids, rows of 1,792 bytes, two threads: 16 to 18 GB/s with adjacent rows, 27 to 28
 * with spread rows, and 31 to 33 for a plain reader. With many tokens W is mostly read from a cache, and adjacent rows
 * give an output that vectors can store.
 *
 * Machines without AMX test this code on tiles in plain C (tests/kernels/amx_stub.h). The bits that hardware produces
 * near the least normal number are not documented. cpu_amx_is_exact() measures them, and AMX is offered only if they
 * match the specification.
 */
#include "kernels/cpu/amx.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/tile_split.h"
#include "kernels/math/convert.h"

#define TILE_ROWS 16u
#define BLOCK_ROWS 32u
#define BLOCK_SUMS (4 * TILE_ROWS * TILE_TOKENS)
#define FEW_TOKENS 32u
/* Number of rows among which a tile's rows are spread. Each of a block's sums is a line of y and, if rows are far
 * apart, a page. Spread over all rows, 32 tokens took one thread of a Sapphire Rapids 42.9 ms (151936 x 896); over 512
 * rows 27.9, over 256 24.6 and over 64 29.8. Two threads: 16.4, 14.8, 13.1 and 16.0. */
#define SPREAD_ROWS 256u
#define X_BYTES (1280u << 10) /* activations that fit a second-level cache of 2 MiB */

/* Tiles 0..3: sums of (rows 0, group 0), (rows 1, group 0), (rows 0, group 1), (rows 1, group 1);
 * 4 and 5: weights; 6 and 7: activations. */
static void configure(uint32_t width)
{
    struct amx_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.rows[i] = TILE_ROWS;
        config.row_bytes[i] = (uint16_t)(i == 4 || i == 5 ? 64 : width * 4);
    }
    amx_configure(&config);
}

struct amx_block { /* one or two tiles of rows by one or two groups of tokens */
    const struct cpu_gemm *task;
    const struct host_part *part;
    uint32_t row[2]; /* first row of the part in each tile */
    uint32_t n_rows[2]; /* rows that exist */
    uint32_t row_step; /* from one of a tile's rows to its next */
    uint32_t width; /* tokens of a group in the workspace */
    uint64_t group;
};

struct weights { /* a tile of each block row, per term */
    uint16_t tile[2][2][TILE_ROWS][TILE_DEPTH];
} __attribute__((aligned(64)));

static void stage(const struct amx_block *b, uint32_t r, uint32_t column, uint32_t end, struct weights *staged)
{
    for (uint32_t i = 0; i < b->n_rows[r]; i++) {
        uint64_t row = b->row[r] + (uint64_t)i * b->row_step;
        tile_stage_row(host_row(b->part, row), b->part->view.format.kind, column, end, staged->tile[r][0][i],
                       staged->tile[r][1][i]);
    }
}

/* Computes the sums of a segment. Tile i's are at i * TILE_ROWS * width, [row][token]. */
CPU_INLINE void multiply(const struct amx_block *b, const uint32_t segment, const uint32_t n_row_tiles,
                         const uint32_t n_groups, float *sums)
{
    const uint32_t begin = b->task->column[segment], end = b->task->column[segment + 1], x_terms = b->task->n_terms;
    const uint32_t w_terms = tile_weight_terms(b->part->view.format.kind);
    const uint64_t x_tile = (uint64_t)TILE_PAIRS * b->width, x_stride = (uint64_t)b->width * 4;
    const uint64_t x_at = b->task->tile[segment] * x_terms * x_tile;
    const uint32_t *x0 = tile_group(b->task, b->group) + x_at;
    const uint32_t *x1 = n_groups > 1 ? tile_group(b->task, b->group + 1) + x_at : x0;
    struct weights staged;
    bool whole[2] = {true, true};
    for (uint32_t r = 0; r < n_row_tiles; r++)
        whole[r] = w_terms == 1 && b->n_rows[r] == TILE_ROWS;
    if (!whole[0] || !whole[1] || (end - begin) % TILE_DEPTH != 0)
        memset(&staged, 0, sizeof staged);
    amx_zero(0);
    amx_zero(1);
    amx_zero(2);
    amx_zero(3);
    for (uint32_t column = begin; column < end; column += TILE_DEPTH) {
        const void *w[2][2] = {{NULL}};
        uint64_t stride[2] = {0};
        for (uint32_t r = 0; r < n_row_tiles; r++) {
            if (whole[r] && end - column >= TILE_DEPTH) {
                w[r][0] = (const uint16_t *)(const void *)(host_row(b->part, b->row[r])) + column;
                stride[r] = b->row_step * b->part->view.row_stride_bytes;
            } else {
                stage(b, r, column, end, &staged);
                w[r][0] = staged.tile[r][0];
                w[r][1] = staged.tile[r][1];
                stride[r] = TILE_DEPTH * sizeof(uint16_t);
            }
        }
        for (uint32_t x_term = 0; x_term < x_terms; x_term++, x0 += x_tile, x1 += x_tile) {
            amx_load(6, x0, x_stride);
            if (n_groups > 1)
                amx_load(7, x1, x_stride);
            for (uint32_t w_term = 0; w_term < w_terms; w_term++) {
                if (w_terms > 1 || x_term == 0) {
                    amx_load(4, w[0][w_term], stride[0]);
                    if (n_row_tiles > 1)
                        amx_load(5, w[1][w_term], stride[1]);
                }
                amx_dpbf16(0, 4, 6);
                if (n_row_tiles > 1)
                    amx_dpbf16(1, 5, 6);
                if (n_groups > 1)
                    amx_dpbf16(2, 4, 7);
                if (n_row_tiles > 1 && n_groups > 1)
                    amx_dpbf16(3, 5, 7);
            }
        }
    }
    const uint64_t sum_tile = (uint64_t)TILE_ROWS * b->width;
    amx_store(0, sums, x_stride);
    amx_store(1, sums + sum_tile, x_stride);
    amx_store(2, sums + 2 * sum_tile, x_stride);
    amx_store(3, sums + 3 * sum_tile, x_stride);
}

static void multiply_segment(const struct amx_block *b, uint32_t segment, uint32_t n_row_tiles, uint32_t n_groups,
                             float *sums)
{
    if (n_row_tiles > 1 && n_groups > 1)
        multiply(b, segment, 2, 2, sums);
    else if (n_row_tiles > 1)
        multiply(b, segment, 2, 1, sums);
    else if (n_groups > 1)
        multiply(b, segment, 1, 2, sums);
    else
        multiply(b, segment, 1, 1, sums);
}

/* Computes the sums of all segments and adds them into the first segment's. */
static void multiply_block(const struct amx_block *b, uint32_t n_row_tiles, uint32_t n_groups, float *sums)
{
    const struct cpu_gemm *task = b->task;
    const uint32_t n = 2 * n_groups * TILE_ROWS * b->width;
    for (uint32_t i = 0; i < task->n_segments; i++) {
        float *out = sums + (uint64_t)i * BLOCK_SUMS;
        if (task->column[i] < task->column[i + 1]) {
            multiply_segment(b, i, n_row_tiles, n_groups, out);
            continue;
        }
        for (uint32_t k = 0; k < n; k++)
            out[k] = CPU_NO_TERM;
    }
    if (task->n_segments > 1)
        cpu_sum_segments(sums, BLOCK_SUMS, n);
}

/* Stores 16 adjacent rows of 16 tokens. */
static void store_transposed(const float *sums, float *y, uint64_t n_rows)
{
    for (uint32_t t = 0; t < TILE_TOKENS; t += VEC_WIDTH) {
        for (uint32_t r = 0; r < TILE_ROWS; r += VEC_WIDTH) {
            words v[VEC_WIDTH];
#pragma GCC unroll 16
            for (uint32_t i = 0; i < VEC_WIDTH; i++)
                v[i] = words_load(sums + (r + i) * TILE_TOKENS + t);
            words_transpose(v);
#pragma GCC unroll 16
            for (uint32_t i = 0; i < VEC_WIDTH; i++)
                vec_store(y + (t + i) * n_rows + r, vec_of(v[i]));
        }
    }
}

static void run_block(const struct amx_block *b, uint32_t n_groups)
{
    const struct k_gemm_args *a = &b->task->args;
    const uint64_t n_rows = a->weight->n_rows;
    const uint32_t n_row_tiles = b->n_rows[1] > 0 ? 2 : 1;
    float sums[K_SEGMENTS * BLOCK_SUMS] __attribute__((aligned(64)));
    multiply_block(b, n_row_tiles, n_groups, sums);
    for (uint32_t g = 0; g < n_groups; g++) {
        uint64_t token = (b->group + g) * TILE_TOKENS;
        uint32_t n = a->n_tokens - token < TILE_TOKENS ? (uint32_t)(a->n_tokens - token) : TILE_TOKENS;
        for (uint32_t r = 0; r < n_row_tiles; r++) {
            const float *tile = sums + (g * 2 + r) * (uint64_t)TILE_ROWS * b->width;
            float *y = a->y_dev + token * n_rows + b->part->first_row + b->row[r];
            if (n == TILE_TOKENS && b->row_step == 1 && b->n_rows[r] == TILE_ROWS) {
                store_transposed(tile, y, n_rows);
                continue;
            }
            for (uint32_t i = 0; i < b->n_rows[r]; i++)
                for (uint32_t t = 0; t < n; t++)
                    y[t * n_rows + (uint64_t)i * b->row_step] = tile[i * b->width + t];
        }
    }
}

static void run_groups(struct amx_block *b, uint64_t first, uint64_t end)
{
    for (b->group = first; b->group < end; b->group += 2)
        run_block(b, end - b->group > 1 ? 2 : 1);
}

/* Computes rows [begin, end) of a part for groups [first, last). */
static void run_rows(struct amx_block *b, uint32_t begin, uint32_t end, uint64_t first, uint64_t last)
{
    const uint32_t n_blocks = (end - begin) / BLOCK_ROWS;
    const bool spread = b->task->args.n_tokens <= FEW_TOKENS;
    b->row_step = spread ? n_blocks : 1;
    b->n_rows[0] = b->n_rows[1] = TILE_ROWS;
    for (uint32_t i = 0; i < n_blocks; i++) {
        b->row[0] = begin + (spread ? i : i * BLOCK_ROWS);
        b->row[1] = b->row[0] + TILE_ROWS * b->row_step;
        run_groups(b, first, last);
    }
    b->row_step = 1;
    b->row[0] = begin + n_blocks * BLOCK_ROWS;
    b->row[1] = b->row[0] + TILE_ROWS;
    uint32_t rest = end - b->row[0];
    b->n_rows[0] = rest < TILE_ROWS ? rest : TILE_ROWS;
    b->n_rows[1] = rest - b->n_rows[0];
    if (rest > 0)
        run_groups(b, first, last);
}

/* ---- does it match the specification? --------------------------------------------------------- */

/* Products of one row with one column, one pair of k after the other, added to c. */
struct tile_sum {
    float w[6], x[6]; /* powers of two: exact in bf16 */
    float c, expected;
};

static float sum_on_amx(const struct tile_sum *sum)
{
    struct amx_config config = {.palette = 1};
    uint16_t w[TILE_DEPTH] = {0}, x[TILE_DEPTH] = {0};
    float c = sum->c;
    config.rows[0] = config.rows[1] = 1;
    config.rows[2] = TILE_PAIRS;
    config.row_bytes[0] = config.row_bytes[2] = 4;
    config.row_bytes[1] = 64;
    for (int k = 0; k < 6; k++) {
        w[k] = k_bf16_from_f32(sum->w[k]);
        x[k] = k_bf16_from_f32(sum->x[k]);
    }
    amx_configure(&config);
    amx_load(0, &c, 4);
    amx_load(1, w, 64);
    amx_load(2, x, 4);
    amx_dpbf16(0, 1, 2);
    amx_store(0, &c, 4);
    amx_release();
    return c;
}

bool cpu_amx_is_exact(void)
{
    static const struct tile_sum sums[] = {
        /* even k in rising order, one rounding each: 2^24 + 1 - 2^24 */
        {{0x1p24f, 0, 1, 0, -0x1p24f, 0}, {1, 0, 1, 0, 1, 0}, 0, 0},
        {{0x1p24f, 0, -0x1p24f, 0, 1, 0}, {1, 0, 1, 0, 1, 0}, 0, 1},
        /* odd k separately, and c last: 1 + (2^24 + (-2^24)), 2^24 + (1 + 1) */
        {{0x1p24f, -0x1p24f, 0, 0, 0, 0}, {1, 1, 0, 0, 0, 0}, 1, 1},
        {{1, 1, 0, 0, 0, 0}, {1, 1, 0, 0, 0, 0}, 0x1p24f, 0x1p24f + 2},
        /* a denormal operand counts as zero, and so does a denormal result */
        {{0x1p-127f, 0, 0, 0, 0, 0}, {0x1p20f, 0, 0, 0, 0, 0}, 0, 0},
        {{0x1p-64f, 0, 0, 0, 0, 0}, {0x1p-63f, 0, 0, 0, 0, 0}, 0, 0},
        /* values that f32 rounds up to 2^-126: 2^-126 - 2^-150 is tiny, and 2^-126 - 2^-151 is not */
        {{0x1p-63f, 0, -0x1p-75f, 0, 0, 0}, {0x1p-63f, 0, 0x1p-75f, 0, 0, 0}, 0, 0},
        {{0x1p-63f, 0, -0x1p-75f, 0, 0, 0}, {0x1p-63f, 0, 0x1p-76f, 0, 0, 0}, 0, 0x1p-126f},
    };
    for (size_t i = 0; i < sizeof sums / sizeof sums[0]; i++)
        if (sum_on_amx(&sums[i]) != sums[i].expected)
            return false;
    return true;
}

/* ---- the pool's functions -------------------------------------------------------------------- */

static uint32_t group_width(const struct cpu_gemm *task)
{
    return task->args.n_tokens < TILE_TOKENS ? task->args.n_tokens : TILE_TOKENS;
}

void cpu_tile_split_amx(void *context, struct k_piece piece)
{
    tile_split(context, group_width(context), 0, piece);
}

void cpu_gemm_tile_amx(void *context, struct k_piece piece)
{
    const struct cpu_gemm *task = context;
    const struct k_weight *w = task->args.weight;
    const uint64_t n_groups = (task->args.n_tokens + TILE_TOKENS - 1) / TILE_TOKENS;
    uint64_t group_bytes = (uint64_t)tile_count(task) * task->n_terms * TILE_PAIRS * TILE_TOKENS * 4;
    uint64_t step = X_BYTES / group_bytes / 2 * 2;
    step = step < 2 ? 2 : step;
    configure(group_width(task));
    for (uint32_t p = 0; p < w->n_parts; p++) {
        struct amx_block block = {.task = task, .part = &w->parts[p], .width = group_width(task)};
        uint32_t begin, end;
        if (!host_part_share(w, block.part, TILE_SHARE_ROWS, piece, &begin, &end))
            continue;
        const uint32_t together = task->args.n_tokens <= FEW_TOKENS ? SPREAD_ROWS : end - begin;
        for (uint64_t g = 0; g < n_groups; g += step)
            for (uint32_t row = begin; row < end; row += together)
                run_rows(&block, row, end - row < together ? end : row + together, g,
                         n_groups - g < step ? n_groups : g + step);
        tile_add_bias(&task->args, block.part, begin, end);
    }
    amx_release();
}
