#include "engine/model/quantization/mxfp4.h"

#include <stdio.h>
#include <string.h>

#define GROUP 32u /* columns that share a scale */
#define NOT_A_NUMBER 255u /* of a scale */

static int find(const struct quantized_matrix *m, const char *ending, struct checkpoint_tensor *out,
                struct quire_error *err)
{
    char name[QUANTIZED_NAME_BYTES + 24];
    snprintf(name, sizeof name, "%s%s", m->name, ending);
    return checkpoint_find_any(m->checkpoint, name, out, err);
}

/* last: the fourth dimension; 0: the tensor has three. */
static int find_stack(const struct quantized_matrix *m, const char *ending, uint64_t last,
                      struct checkpoint_tensor *out, struct quire_error *err)
{
    const uint64_t shape[4] = {m->place.count, (uint64_t)m->place.step * m->n_rows, m->n_cols / GROUP, last};
    const uint32_t n_dims = last ? 4 : 3;
    int status = find(m, ending, out, err);
    if (status != QUIRE_OK)
        return status;
    if (strcmp(out->dtype, "U8") != 0)
        return quire_fail(err, QUIRE_INVALID,
                          "%.100s: tensor '%.150s': dtype: %s, but config.json: quantization_config: mxfp4 needs U8",
                          out->file, out->name, out->dtype);
    if (out->n_dims == n_dims && memcmp(out->shape, shape, n_dims * sizeof *shape) == 0)
        return QUIRE_OK;
    return quire_fail(err, QUIRE_INVALID,
                      "%.100s: tensor '%.150s': shape: must be [%llu, %llu, %llu%s], as config.json says, got %u "
                      "dimensions, [%llu, %llu ...]",
                      out->file, out->name, (unsigned long long)shape[0], (unsigned long long)shape[1],
                      (unsigned long long)shape[2], last ? ", 16" : "", out->n_dims,
                      out->n_dims > 0 ? (unsigned long long)out->shape[0] : 0ULL,
                      out->n_dims > 1 ? (unsigned long long)out->shape[1] : 0ULL);
}

static int check_scales(const struct quantized_matrix *m, const struct checkpoint_tensor *t, const uint8_t *scales,
                        struct quire_error *err)
{
    const uint64_t groups = m->n_cols / GROUP;
    for (uint64_t r = 0; r < m->n_rows; r++) {
        const uint8_t *row = scales + r * m->place.step * groups, *bad = memchr(row, NOT_A_NUMBER, groups);
        if (bad)
            return quire_fail(err, QUIRE_INVALID, "%.100s: tensor '%.150s': element %llu is 255, which is no number",
                              t->file, t->name, (unsigned long long)(bad - (const uint8_t *)t->data));
    }
    return QUIRE_OK;
}

bool mxfp4_has(const struct quantized_matrix *m)
{
    struct checkpoint_tensor t;
    return m->place.count > 0 && find(m, "_blocks", &t, NULL) == QUIRE_OK;
}

int mxfp4_view(const struct quantized_matrix *m, struct k_weight_view *out, struct quire_error *err)
{
    struct checkpoint_tensor blocks, scales, plain;
    if (find(m, "", &plain, NULL) == QUIRE_OK)
        return quire_fail(err, QUIRE_INVALID, "%.100s: tensor '%.150s': exists in addition to its blocks: remove one",
                          plain.file, plain.name);
    if (m->n_cols % GROUP != 0)
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          "%.150s: rows of %u columns are not whole groups of %u, which MXFP4 needs", m->name,
                          m->n_cols, GROUP);
    int status = find_stack(m, "_blocks", GROUP / 2, &blocks, err);
    if (status == QUIRE_OK)
        status = find_stack(m, "_scales", 0, &scales, err);
    if (status != QUIRE_OK)
        return status;
    const uint64_t row = (uint64_t)m->place.index * m->place.step * m->n_rows + m->place.first;
    const uint8_t *scale = (const uint8_t *)scales.data + row * (m->n_cols / GROUP);
    *out = (struct k_weight_view){.data = (const uint8_t *)blocks.data + row * (m->n_cols / 2),
                                  .format = k_format_of_planes(K_E2M1, 4, GROUP, K_E8M0),
                                  .n_rows = m->n_rows,
                                  .n_cols = m->n_cols,
                                  .row_stride_bytes = m->place.step * (uint64_t)(m->n_cols / 2),
                                  .scales = scale,
                                  .scale_step = m->place.step};
    return m->is_read ? check_scales(m, &scales, scale, err) : QUIRE_OK;
}
