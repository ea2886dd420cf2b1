#include "server/similar/rows.h"

#include "server/similar/codes.h"

#include <stdlib.h>
#include <string.h>

struct block {
    uint32_t capacity; /* a power of two; at least SKETCH_ROWS where there are sketches and codes */
    size_t n_bytes;
    uint8_t *sketches; /* NULL: none */
    float *sketch_scale, *sketch_rest;
    uint8_t *codes; /* stage by stage */
    float *rest, *scale, *vectors;
    struct entry **owners;
};

static size_t rounded(size_t n)
{
    return (n + 63) / 64 * 64;
}

static struct block *block_create(struct row_shape *shape, uint32_t capacity)
{
    const size_t head = rounded(sizeof(struct block)), wide = (size_t)capacity * shape->n_stages;
    const bool coded = capacity >= SKETCH_ROWS;
    const size_t of_row = SKETCH_STAGE_BYTES + SCAN_DIMS + sizeof(float); /* and a stage */
    const size_t of_codes = coded ? wide * of_row + 3 * rounded(capacity * sizeof(float)) : 0;
    const size_t n = rounded(head + of_codes + rounded(capacity * sizeof(struct entry *)) +
                             (size_t)capacity * shape->n_dims * sizeof(float));
    char *at = aligned_alloc(64, n);
    struct block *b = (struct block *)at;
    if (!b)
        return NULL;
    memset(at, 0, head + of_codes); /* scans look at whole tiles */
    *b = (struct block){.capacity = capacity, .n_bytes = n};
    at += head;
    if (coded) {
        b->codes = (uint8_t *)at;
        b->rest = (float *)(at + wide * SCAN_DIMS);
        b->scale = b->rest + wide;
        b->sketch_scale = b->scale + rounded(capacity * sizeof(float)) / sizeof(float);
        b->sketch_rest = b->sketch_scale + rounded(capacity * sizeof(float)) / sizeof(float);
        b->sketches = (uint8_t *)(b->sketch_rest + rounded(capacity * sizeof(float)) / sizeof(float));
    }
    b->owners = (struct entry **)(at + of_codes);
    b->vectors = (float *)(at + of_codes + rounded(capacity * sizeof(struct entry *)));
    shape->n_bytes += n;
    return b;
}

static void block_free(struct row_shape *shape, struct block *b)
{
    shape->n_bytes -= b->n_bytes;
    free(b);
}

static void put(struct row_shape *shape, struct block *b, uint32_t row, struct entry *e, const float *vector)
{
    b->owners[row] = e;
    memcpy(b->vectors + (size_t)row * shape->n_dims, vector, shape->n_dims * sizeof *vector);
    if (b->sketches) {
        codes_turn(vector, shape->n_dims, shape->n_stages, shape->turned);
        sketch_put(shape->turned, shape->n_stages, row, b->sketches, b->sketch_scale, b->sketch_rest);
        codes_put(shape->turned, shape->n_stages, row, b->capacity, b->codes, b->rest, b->scale);
    }
}

/* A first block twice as large as it was, or the first one. */
static bool grow_first(struct row_shape *shape, struct context *c)
{
    struct block *old = c->n_blocks ? c->blocks[0] : NULL;
    struct block *b = block_create(shape, old ? old->capacity * 2 : 1);
    if (!b)
        return false;
    for (uint32_t r = 0; old && r < old->capacity; r++)
        put(shape, b, r, old->owners[r], old->vectors + (size_t)r * shape->n_dims);
    if (old)
        block_free(shape, old);
    c->blocks[0] = b;
    c->n_blocks = 1;
    return true;
}

/* The list of blocks has room for a power of two, and is never made smaller. */
static bool append_block(struct row_shape *shape, struct context *c)
{
    if (c->n_blocks == c->room) {
        const uint32_t room = c->room ? c->room * 2 : 1;
        struct block **blocks = realloc(c->blocks, room * sizeof(*blocks));
        if (!blocks)
            return false;
        shape->n_bytes += (room - c->room) * sizeof(*blocks);
        c->blocks = blocks;
        c->room = room;
    }
    if (c->n_blocks == 0)
        return grow_first(shape, c);
    struct block *b = block_create(shape, ROWS_OF_BLOCK);
    if (b)
        c->blocks[c->n_blocks++] = b;
    return b;
}

static bool has_space(struct row_shape *shape, struct context *c)
{
    const uint32_t capacity = c->n_blocks ? c->blocks[c->n_blocks - 1]->capacity : 0;
    if (c->n_blocks && c->n_rows < (c->n_blocks - 1) * ROWS_OF_BLOCK + capacity)
        return true;
    return c->n_blocks && capacity < ROWS_OF_BLOCK ? grow_first(shape, c) : append_block(shape, c);
}

bool rows_add(struct row_shape *shape, struct context *c, struct entry *e, const float *vector)
{
    if (!has_space(shape, c))
        return false;
    e->context = c;
    e->row = c->n_rows++;
    put(shape, c->blocks[e->row / ROWS_OF_BLOCK], e->row % ROWS_OF_BLOCK, e, vector);
    return true;
}

void rows_remove(struct row_shape *shape, struct context *c, uint32_t row)
{
    const uint32_t last = --c->n_rows;
    if (row != last) {
        const struct block *from = c->blocks[last / ROWS_OF_BLOCK];
        const uint32_t at = last % ROWS_OF_BLOCK;
        from->owners[at]->row = row;
        put(shape, c->blocks[row / ROWS_OF_BLOCK], row % ROWS_OF_BLOCK, from->owners[at],
            from->vectors + (size_t)at * shape->n_dims);
    }
    if (last % ROWS_OF_BLOCK == 0)
        block_free(shape, c->blocks[--c->n_blocks]);
}

void rows_free(struct row_shape *shape, struct context *c)
{
    while (c->n_blocks)
        block_free(shape, c->blocks[--c->n_blocks]);
    shape->n_bytes -= c->room * sizeof(*c->blocks);
    free(c->blocks);
    c->blocks = NULL;
    c->n_rows = c->room = 0;
}

/* In double: the order of its sums shows in no float, but once in a billion. Eight lanes, so that they overlap. */
static float product(const float *a, const float *b, uint32_t n)
{
    double lanes[8] = {0};
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (uint32_t l = 0; l < 8; l++)
            lanes[l] += (double)a[i + l] * b[i + l];
    for (; i < n; i++)
        lanes[0] += (double)a[i] * b[i];
    return (float)(((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7])));
}

static void compare(const struct row_shape *shape, const struct block *b, uint32_t row, const float *vector,
                    int64_t now_ms, struct row_best *best)
{
    struct entry *e = b->owners[row];
    if (e->expires_ms <= now_ms)
        return;
    const float similarity = product(b->vectors + (size_t)row * shape->n_dims, vector, shape->n_dims);
    best->n_compared++;
    const bool nearer = best->entry ? similarity > best->similarity ||
                                          (similarity == best->similarity && e->order < best->entry->order)
                                    : similarity >= best->similarity;
    if (nearer) {
        best->entry = e;
        best->similarity = similarity;
    }
}

/* The rows of a tile that pass the sketches go through the stages of codes, and the rest is compared exactly. */
static void find_in_tile(const struct row_shape *shape, const struct block *b, uint32_t tile, uint16_t left,
                         const struct row_query *q, int64_t now_ms, struct row_best *best)
{
    const size_t row = (size_t)tile * SCAN_ROWS;
    int32_t sums[SCAN_ROWS] = {0};
    for (uint32_t s = 0; s < shape->n_stages && left; s++) {
        uint16_t mask;
        shape->scan(b->codes + ((size_t)s * b->capacity + row) * SCAN_DIMS, b->scale + row,
                    b->rest + (size_t)s * b->capacity + row, 1, &q->steps[s], best->similarity, sums, &mask);
        left &= mask;
    }
    for (; left; left &= (uint16_t)(left - 1))
        compare(shape, b, (uint32_t)row + (uint32_t)__builtin_ctz(left), q->vector, now_ms, best);
}

static void find_in_block(const struct row_shape *shape, const struct block *b, uint32_t n_rows,
                          const struct row_query *q, int64_t now_ms, struct row_best *best)
{
    uint32_t masks[ROWS_OF_BLOCK / SKETCH_ROWS];
    const uint32_t n_tiles = (n_rows + SKETCH_ROWS - 1) / SKETCH_ROWS;
    shape->sketch(b->sketches, b->sketch_scale, b->sketch_rest, n_tiles, &q->sketch, best->similarity, masks);
    if (n_rows % SKETCH_ROWS)
        masks[n_tiles - 1] &= (1u << n_rows % SKETCH_ROWS) - 1;
    for (uint32_t t = 0; t < n_tiles; t++) {
        if (masks[t] & 0xffff)
            find_in_tile(shape, b, 2 * t, (uint16_t)masks[t], q, now_ms, best);
        if (masks[t] >> 16)
            find_in_tile(shape, b, 2 * t + 1, (uint16_t)(masks[t] >> 16), q, now_ms, best);
    }
}

void rows_find(const struct row_shape *shape, const struct context *c, struct row_query *q, int64_t now_ms,
               struct row_best *best)
{
    for (uint32_t i = 0; i < c->n_blocks; i++) {
        const struct block *b = c->blocks[i];
        const uint32_t n = i + 1 < c->n_blocks ? ROWS_OF_BLOCK : c->n_rows - i * ROWS_OF_BLOCK;
        if (!b->sketches) {
            for (uint32_t r = 0; r < n; r++)
                compare(shape, b, r, q->vector, now_ms, best);
            continue;
        }
        if (!q->is_coded) {
            codes_turn(q->vector, shape->n_dims, shape->n_stages, shape->turned);
            codes_of_query(shape->turned, shape->n_stages, q->codes, q->steps);
            sketch_of_query(shape->turned, shape->n_stages, q->tables, &q->sketch);
            q->is_coded = true;
        }
        find_in_block(shape, b, n, q, now_ms, best);
    }
}
