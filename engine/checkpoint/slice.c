#include "engine/checkpoint/slice.h"

#include "base/encoding/little_endian.h"
#include "kernels/math/bits.h"
#include "kernels/math/convert.h"

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

float checkpoint_element(const struct checkpoint_tensor *t, uint64_t i)
{
    const uint8_t *p = (const uint8_t *)t->data + i * k_dtype_bytes(t->format.kind);
    if (t->format.kind == K_F32)
        return k_f32_from_bits(le_load_u32(p));
    return t->format.kind == K_F16 ? k_f32_from_f16(le_load_u16(p)) : k_f32_from_bf16(le_load_u16(p));
}
