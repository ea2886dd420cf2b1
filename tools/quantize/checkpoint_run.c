#include "tools/quantize/checkpoint_run.h"

#include <stdlib.h>

static struct source_part part_of(const struct checkpoint_run *r, const struct checkpoint_unit *u)
{
    struct source_part p = {.apart = u->apart, .expert = u->expert, .part = u->part};
    checkpoint_at(r->checkpoint, u->source, &p.tensor);
    return p;
}

void checkpoint_run_tensor(const struct checkpoint_run *r, uint32_t unit, struct checkpoint_tensor *out)
{
    const struct checkpoint_unit *u = &r->units[unit];
    const struct source_part p = part_of(r, u);
    *out = p.tensor;
    out->name = u->name;
    if (!u->apart)
        return;
    out->data = NULL;
    out->n_dims = u->apart->is_bias ? 1 : 2;
    out->shape[0] = source_part_rows(&p);
    out->shape[1] = u->apart->is_bias ? 1 : source_part_cols(&p);
    out->n_bytes = out->shape[0] * k_format_bytes(out->format, out->shape[1]);
}

int checkpoint_run_load(const struct checkpoint_run *r, uint32_t unit, float *out, struct quire_error *err)
{
    const struct checkpoint_unit *u = &r->units[unit];
    const struct source_part p = part_of(r, u);
    return u->apart ? source_part_load(&p, r->job->n_threads, out, err)
                    : source_load(&p.tensor, 0, p.tensor.shape[0], out, err);
}

struct quantizer_matrix_shape checkpoint_run_shape(const struct checkpoint_run *r, const struct checkpoint_tensor *t)
{
    return (struct quantizer_matrix_shape){.layout = r->job->method->layout,
                                           .fp8 = r->job->method->fp8,
                                           .how = &r->how,
                                           .n_rows = (uint32_t)t->shape[0],
                                           .n_cols = (uint32_t)t->shape[1]};
}

int checkpoint_run_alloc_codes(const struct checkpoint_run *r, const struct checkpoint_tensor *t,
                               struct quantizer_codes *out, struct quire_error *err)
{
    const uint64_t n = t->shape[0] * t->shape[1];
    *out = (struct quantizer_codes){.n_rows = (uint32_t)t->shape[0],
                                    .n_cols = (uint32_t)t->shape[1],
                                    .n_groups = quantizer_n_groups(&r->how, (uint32_t)t->shape[1])};
    const uint64_t n_planes = (uint64_t)out->n_rows * out->n_groups;
    out->codes = malloc(n + 1);
    out->scales = malloc((n_planes + 1) * sizeof *out->scales);
    out->zeros = malloc(n_planes + 1);
    return out->codes && out->scales && out->zeros ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
}

void checkpoint_run_free_codes(struct quantizer_codes *codes)
{
    free(codes->codes);
    free(codes->scales);
    free(codes->zeros);
    free(codes->groups);
    *codes = (struct quantizer_codes){0};
}

int checkpoint_run_write_expert(struct checkpoint_run *r, uint32_t unit, const struct checkpoint_tensor *t,
                                const struct quantizer_codes *codes, uint32_t expert, uint32_t n_experts,
                                struct quire_error *err)
{
    const struct quantizer_matrix_shape m = checkpoint_run_shape(r, t);
    const struct checkpoint_unit *u = &r->units[unit];
    int status = QUIRE_OK;
    for (uint32_t i = 0; status == QUIRE_OK && i < u->n_items; i++) {
        struct tensor_list_item item = r->list.items[u->first_item + i];
        item.n_bytes /= n_experts;
        uint8_t *bytes = malloc(item.n_bytes + 1);
        if (!bytes)
            return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
        quantizer_layout_write(&m, codes, &item, bytes);
        status = quantizer_output_write(r->output, r->header.n + item.begin + expert * item.n_bytes, bytes,
                                        item.n_bytes, err);
        free(bytes);
    }
    return status;
}

int checkpoint_run_write_codes(struct checkpoint_run *r, uint32_t unit, const struct checkpoint_tensor *t,
                               const struct quantizer_codes *codes, struct quire_error *err)
{
    int status = checkpoint_run_write_expert(r, unit, t, codes, 0, 1, err);
    return status == QUIRE_OK ? quantizer_output_done(r->output, unit, err) : status;
}

int checkpoint_run_read_codes(struct checkpoint_run *r, uint32_t unit, const struct checkpoint_tensor *t,
                              struct quantizer_codes *codes, struct quire_error *err)
{
    const struct quantizer_matrix_shape m = checkpoint_run_shape(r, t);
    const struct checkpoint_unit *u = &r->units[unit];
    int status = QUIRE_OK;
    for (uint32_t i = 0; status == QUIRE_OK && i < u->n_items; i++) {
        const struct tensor_list_item *item = &r->list.items[u->first_item + i];
        uint8_t *bytes = malloc(item->n_bytes + 1);
        if (!bytes)
            return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
        status = quantizer_output_read(r->output, r->header.n + item->begin, bytes, item->n_bytes, err);
        if (status == QUIRE_OK)
            quantizer_layout_read(&m, item, bytes, codes);
        free(bytes);
    }
    for (uint32_t k = 0; status == QUIRE_OK && k < codes->n_cols; k++)
        if (codes->groups[k] >= codes->n_groups)
            status = quire_fail(err, QUIRE_INVALID, "%.350s.partial: was changed: delete it and its journal",
                                r->job->out);
    return status;
}

int checkpoint_run_write_plain(struct checkpoint_run *r, uint32_t unit, const void *data, struct quire_error *err)
{
    const struct tensor_list_item *item = &r->list.items[r->units[unit].first_item];
    int status = quantizer_output_write(r->output, r->header.n + item->begin, data, item->n_bytes, err);
    return status == QUIRE_OK ? quantizer_output_done(r->output, unit, err) : status;
}
