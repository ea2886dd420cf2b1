#include "server/similar/vector_index.h"

#include "server/similar/key_table.h"
#include "server/similar/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_USED 3u
#define EVICTION_LOOKS 32u /* so that a lap over a million used entries does not stall the loop */
#define EXPIRY_LOOKS 4u

struct vector_index {
    struct row_shape shape;
    uint32_t max_entries, n_entries, n_contexts;
    uint32_t hand, sweep; /* places in the ring: of eviction, and of looking for what has expired */
    struct entry **ring; /* all entries, in no order: max_entries places */
    struct key_table entries, contexts;
    struct row_query query; /* scratch of find() */
    int64_t now_ms; /* the time of the last find */
    uint64_t n_orders, n_evicted, n_compared;
};

static bool create_parts(struct vector_index *x)
{
    const size_t n_stages = x->shape.n_stages;
    x->shape.turned = calloc(n_stages * SCAN_DIMS, sizeof *x->shape.turned);
    x->query.codes = calloc(n_stages, SCAN_DIMS);
    x->query.tables = calloc(n_stages, SKETCH_TABLE_BYTES);
    x->query.steps = calloc(n_stages, sizeof *x->query.steps);
    x->ring = calloc(x->max_entries, sizeof(*x->ring));
    return x->shape.turned && x->query.codes && x->query.tables && x->query.steps && x->ring &&
           key_table_create(&x->entries, x->max_entries) && key_table_create(&x->contexts, x->max_entries);
}

struct vector_index *vector_index_create(uint32_t n_numbers, uint32_t max_entries)
{
    if (n_numbers < 1 || n_numbers > VECTOR_MAX_NUMBERS || max_entries < 1 || max_entries > VECTOR_MAX_ENTRIES)
        return NULL;
    struct vector_index *x = calloc(1, sizeof *x);
    if (!x)
        return NULL;
    x->max_entries = max_entries;
    x->shape = (struct row_shape){.n_dims = n_numbers,
                                  .n_stages = (n_numbers + SCAN_DIMS - 1) / SCAN_DIMS,
                                  .sketch = sketch_best(),
                                  .scan = scan_isa()->tiles};
    if (create_parts(x))
        return x;
    vector_index_free(x);
    return NULL;
}

void vector_index_free(struct vector_index *x)
{
    if (!x)
        return;
    if (x->entries.places && x->contexts.places)
        vector_index_clear(x);
    key_table_destroy(&x->entries);
    key_table_destroy(&x->contexts);
    free(x->ring);
    free(x->query.steps);
    free(x->query.tables);
    free(x->query.codes);
    free(x->shape.turned);
    free(x);
}

uint32_t vector_index_width(const struct vector_index *x)
{
    return x->shape.n_dims;
}

/* Not so of NaN. */
static bool has_length_1(const struct vector_index *x, const float *vector)
{
    double squares = 0;
    for (uint32_t i = 0; i < x->shape.n_dims; i++)
        squares += (double)vector[i] * vector[i];
    return fabs(squares - 1) <= VECTOR_SQUARES_SLACK;
}

/* ---- entries and contexts -------------------------------------------------------------------- */

static void free_context(struct vector_index *x, struct context *c)
{
    rows_free(&x->shape, c);
    x->n_contexts--;
    free(c);
}

static void drop(struct vector_index *x, struct entry *e)
{
    struct context *c = e->context;
    rows_remove(&x->shape, c, e->row);
    if (c->n_rows == 0) {
        key_table_remove(&x->contexts, c);
        free_context(x, c);
    }
    struct entry *last = x->ring[--x->n_entries];
    x->ring[e->place] = last;
    last->place = e->place;
    key_table_remove(&x->entries, e);
    free(e);
}

static struct context *context_of(struct vector_index *x, const struct key256 *key)
{
    struct context *c = key_table_find(&x->contexts, key);
    if (!c && (c = calloc(1, sizeof *c))) {
        c->key = *key;
        key_table_add(&x->contexts, c);
        x->n_contexts++;
    }
    return c;
}

static void expire_some(struct vector_index *x)
{
    for (uint32_t i = 0; i < EXPIRY_LOOKS && x->n_entries; i++) {
        if (x->sweep >= x->n_entries)
            x->sweep = 0;
        struct entry *e = x->ring[x->sweep];
        if (e->expires_ms <= x->now_ms)
            drop(x, e); /* another one stands there now */
        else
            x->sweep++;
    }
}

static void make_space(struct vector_index *x)
{
    struct entry *least = NULL;
    uint8_t least_used = 0; /* when the hand came to it */
    for (uint32_t i = 0; i < EVICTION_LOOKS; i++) {
        if (x->hand >= x->n_entries)
            x->hand = 0;
        struct entry *e = x->ring[x->hand];
        if (e->expires_ms <= x->now_ms) {
            drop(x, e);
            return;
        }
        if (!least || e->n_used < least_used) {
            least = e;
            least_used = e->n_used;
        }
        if (e->n_used == 0)
            break;
        e->n_used--;
        x->hand++;
    }
    x->n_evicted++;
    drop(x, least);
}

/* ---- public functions ---------------------------------------------------------------------- */

bool vector_index_add(struct vector_index *x, const struct key256 *context, const float *vector,
                      const struct key256 *answer, int64_t expires_ms)
{
    vector_index_remove(x, answer);
    if (!has_length_1(x, vector))
        return false;
    if (x->n_entries == x->max_entries)
        make_space(x);
    struct entry *e = calloc(1, sizeof *e);
    struct context *c = e ? context_of(x, context) : NULL;
    if (!c || !rows_add(&x->shape, c, e, vector)) {
        if (c && c->n_rows == 0) {
            key_table_remove(&x->contexts, c);
            free_context(x, c);
        }
        free(e);
        return false;
    }
    e->answer = *answer;
    e->expires_ms = expires_ms;
    e->order = x->n_orders++;
    e->place = x->n_entries;
    x->ring[x->n_entries++] = e;
    key_table_add(&x->entries, e);
    return true;
}

void vector_index_remove(struct vector_index *x, const struct key256 *answer)
{
    struct entry *e = key_table_find(&x->entries, answer);
    if (e)
        drop(x, e);
}

void vector_index_clear(struct vector_index *x)
{
    for (uint32_t i = 0; i < x->n_entries; i++)
        free(x->ring[i]);
    for (size_t i = 0; x->n_contexts && i < x->contexts.capacity; i++)
        if (x->contexts.places[i])
            free_context(x, (struct context *)x->contexts.places[i]);
    key_table_clear(&x->entries);
    key_table_clear(&x->contexts);
    x->n_entries = x->hand = x->sweep = 0;
}

bool vector_index_find(struct vector_index *x, const struct key256 *context, const float *vector, float threshold,
                       int64_t now_ms, struct key256 *answer, float *similarity)
{
    x->now_ms = now_ms;
    expire_some(x);
    const struct context *c = has_length_1(x, vector) ? key_table_find(&x->contexts, context) : NULL;
    if (!c)
        return false;
    struct row_best best = {.similarity = threshold};
    x->query.vector = vector;
    x->query.is_coded = false;
    rows_find(&x->shape, c, &x->query, now_ms, &best);
    x->n_compared += best.n_compared;
    if (!best.entry)
        return false;
    best.entry->n_used += best.entry->n_used < MOST_USED;
    *answer = best.entry->answer;
    *similarity = best.similarity;
    return true;
}

void vector_index_stats(const struct vector_index *x, struct vector_index_stats *out)
{
    const size_t of_scratch = x->shape.n_stages * (SCAN_DIMS * (sizeof *x->shape.turned + sizeof *x->query.codes) +
                                                   SKETCH_TABLE_BYTES + sizeof *x->query.steps);
    const size_t of_places = x->max_entries * sizeof(*x->ring) +
                             (x->entries.capacity + x->contexts.capacity) * sizeof(*x->entries.places);
    *out = (struct vector_index_stats){
        .n_entries = x->n_entries,
        .n_contexts = x->n_contexts,
        .n_bytes = sizeof *x + of_scratch + of_places + x->n_entries * sizeof(struct entry) +
                   x->n_contexts * sizeof(struct context) + x->shape.n_bytes,
        .n_evicted = x->n_evicted,
        .n_compared = x->n_compared,
    };
}
