#include "engine/forward/batch.h"

#include "engine/model/model.h"

#include <string.h>

#define IN(which) {BATCH_IN_##which, 0}
#define BELOW(limit) {BATCH_IN_BELOW, limit}
#define ROW(name, type, length, groups, present, filled, sent, padding, values, called) \
    {called,         offsetof(struct forward_batch, name), \
     sizeof(type),   BATCH_##length, \
     BATCH_##groups, BATCH_##present, \
     BATCH_##filled, BATCH_##sent == BATCH_SENT, \
     padding,        values},
const struct batch_array batch_arrays[BATCH_N_ARRAYS] = {BATCH_ARRAYS(ROW)};

uint32_t batch_present(const struct model_desc *desc)
{
    return (desc->config->encoder ? BATCH_ENCODER : 0u) |
           (desc->config->outputs.kind != OUTPUT_TOKENS ? BATCH_POOLED : 0u) |
           (desc->config->outputs.dense.size > 0 ? BATCH_DENSE : 0u);
}

uint32_t batch_groups(const struct batch_array *a, uint32_t n_groups, uint32_t *first)
{
    *first = a->groups == BATCH_OTHERS;
    return a->groups == BATCH_ONE ? 1 : n_groups;
}

uint32_t batch_length(const struct forward_batch *b, enum batch_length length)
{
    switch (length) {
    case BATCH_TOKENS: return b->n_tokens;
    case BATCH_ROWS: return b->n_rows;
    case BATCH_OUTPUTS: return b->n_outputs;
    default: return b->n_entries;
    }
}

/* By bytes, because the pointers have different types. */
void *batch_get(const struct forward_batch *b, const struct batch_array *a, uint32_t group)
{
    void *array;
    memcpy(&array, (const char *)b + a->at + group * sizeof array, sizeof array);
    return array;
}

void batch_set(struct forward_batch *b, const struct batch_array *a, uint32_t group, void *array)
{
    memcpy((char *)b + a->at + group * sizeof array, &array, sizeof array);
}

void batch_pad(struct forward_batch *b, const struct batch_array *a, uint32_t n_groups, uint32_t first, uint32_t end)
{
    uint32_t g;
    for (const uint32_t n = batch_groups(a, n_groups, &g); g < n; g++) {
        uint32_t *values = batch_get(b, a, g);
        for (uint32_t i = first; i < end; i++)
            values[i] = a->padding;
    }
}
