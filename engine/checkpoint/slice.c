#include "engine/checkpoint/slice.h"

#include <string.h>

void checkpoint_take_rows(struct checkpoint_tensor *t, uint64_t first, uint64_t n)
{
    const uint64_t bytes = t->n_bytes / t->shape[0]; /* exact: blocks and packed elements do not cross rows */
    if (t->data)
        t->data = (const char *)t->data + first * bytes;
    t->n_bytes = n * bytes;
    t->shape[0] = n;
}

void checkpoint_take(struct checkpoint_tensor *t, uint64_t index)
{
    checkpoint_take_rows(t, index, 1);
    t->n_dims--;
    memmove(t->shape, t->shape + 1, t->n_dims * sizeof *t->shape);
    t->shape[t->n_dims] = 0;
}
