/* The vectors of one context, with what rules them out quickly (sketch.h, then scan.h): blocks of up to 1,024 rows, all but the last one
 * full, so that a scan runs over memory from one end to the other. A row that goes is replaced by the last one: nothing dead
 * is ever scanned, and nothing has to be rebuilt. A context of 16 rows or fewer has neither: most contexts have one. */
#ifndef QUIRE_SIMILAR_ROWS_H
#define QUIRE_SIMILAR_ROWS_H

#include "server/similar/scan.h"
#include "server/similar/sketch.h"
#include "server/similar/vector_index.h"

#define ROWS_OF_BLOCK 1024u

struct row_shape { /* the properties that all rows of an index share */
    uint32_t n_dims, n_stages;
    sketch_tiles *sketch;
    scan_tiles *scan;
    float *turned; /* scratch: n_stages · SCAN_DIMS */
    size_t n_bytes; /* memory of blocks and contexts */
};

struct entry {
    struct key256 answer; /* first: key_table.h */
    struct context *context;
    int64_t expires_ms;
    uint64_t order; /* when it was added: counts up */
    uint32_t row; /* of its context */
    uint32_t place; /* in the index's ring */
    uint8_t n_used; /* up to 3 */
};

struct block;
struct context {
    struct key256 key; /* first: key_table.h */
    struct block **blocks;
    uint32_t n_blocks, room /* for so many blocks in the list */, n_rows;
};

/* A question in the form that scans use. The arrays belong to the index. */
struct row_query {
    const float *vector;
    uint8_t *tables;
    struct sketch_query sketch;
    int8_t *codes;
    struct scan_step *steps; /* n_stages */
    bool is_coded;
};

/* The nearest so far. */
struct row_best {
    struct entry *entry; /* NULL: nothing found yet */
    float similarity; /* similarity of that entry; the threshold until one is found */
    uint64_t n_compared;
};

/* Sets the entry's context and row. False: out of memory; the context is as it was. */
bool rows_add(struct row_shape *shape, struct context *c, struct entry *e, const float *vector);
/* The last row's entry takes this one's place. */
void rows_remove(struct row_shape *shape, struct context *c, uint32_t row);
void rows_free(struct row_shape *shape, struct context *c); /* frees all rows; the entries belong to the caller */
void rows_find(const struct row_shape *shape, const struct context *c, struct row_query *q, int64_t now_ms,
               struct row_best *best);
#endif
