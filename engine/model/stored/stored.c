#include "engine/model/stored/stored.h"

#include "engine/checkpoint/slice.h"
#include "engine/model/experts/are_apart.h"

#include <stdio.h>
#include <string.h>

static void shape_text(const uint64_t *shape, uint32_t n_dims, char *out, size_t n)
{
    size_t at = (size_t)snprintf(out, n, "[");
    for (uint32_t i = 0; i < n_dims && at < n; i++)
        at += (size_t)snprintf(out + at, n - at, "%s%llu", i ? ", " : "", (unsigned long long)shape[i]);
    if (at < n)
        snprintf(out + at, n - at, "]");
}

bool stored_apart(const struct stored_model *s, struct matrix_at at)
{
    return experts_are_apart(s->checkpoint, s->desc, at.row, at.layer, s->bare);
}

void stored_name(const struct stored_model *s, struct matrix_at at, char name[MODEL_NAME_BYTES])
{
    if (!stored_apart(s, at) || !model_apart_name(s->desc, at.row, at.layer, at.index, s->bare, name))
        model_tensor_name(s->desc, at.row, at.layer, at.index, s->bare, name);
}

int stored_refuse_both(const struct stored_model *s, struct matrix_at at, const char *one, struct quire_error *err)
{
    char name[MODEL_NAME_BYTES];
    struct checkpoint_tensor all;
    model_tensor_name(s->desc, at.row, at.layer, MODEL_ALL_OF, s->bare, name);
    return checkpoint_find(s->checkpoint, name, &all, NULL) == QUIRE_NOT_FOUND
               ? QUIRE_OK
               : quire_fail(err, QUIRE_INVALID,
                            "%.100s: tensor '%.150s': has the experts a second time, beside '%.150s': remove one",
                            all.file, name, one);
}

uint32_t stored_rows_before(const struct stored_model *s, struct matrix_at at, uint64_t *all)
{
    uint32_t before = 0;
    *all = model_whole_size(s->desc, at.layer, at.row->rows);
    if (stored_apart(s, at))
        return 0;
    for (const struct model_tensor *part = model_part_above(at.row); part; part = model_part_above(part))
        before += model_whole_size(s->desc, at.layer, part->rows);
    for (const struct model_tensor *part = model_part_below(at.row); part; part = model_part_below(part))
        *all += model_whole_size(s->desc, at.layer, part->rows);
    *all += before;
    return before;
}

bool stored_transposed(const struct stored_model *s, struct matrix_at at)
{
    return at.row->when == IF_EXPERTS_TRANSPOSED && at.row->kind != TENSOR_VECTOR && !stored_apart(s, at);
}

/* The parts of such a tensor have the same number of rows. */
struct transpose_rows stored_rows_in_turn(const struct stored_model *s, struct matrix_at at)
{
    uint64_t all;
    const uint32_t before = stored_rows_before(s, at, &all), own = model_whole_size(s->desc, at.layer, at.row->rows);
    return (struct transpose_rows){before / own, (uint32_t)(all / own), own};
}

/* Finds the tensor of a matrix or a vector, whose name it gives. *is_stacked: it has all `count` matrices. */
static int find_tensor(const struct stored_model *s, struct matrix_at at, struct checkpoint_tensor *out,
                       bool *is_stacked, char name[MODEL_NAME_BYTES], struct quire_error *err)
{
    const struct model_tensor *row = at.row;
    char all[MODEL_NAME_BYTES];
    stored_name(s, at, name);
    int status = checkpoint_find(s->checkpoint, name, out, err);
    *is_stacked = row->count != SIZE_ONE && !model_is_numbered(row) && !stored_apart(s, at);
    if (row->count == SIZE_ONE || *is_stacked)
        return status;
    if (status == QUIRE_OK)
        return at.index == 0 ? stored_refuse_both(s, at, name, err) : QUIRE_OK;
    model_tensor_name(s->desc, row, at.layer, MODEL_ALL_OF, s->bare, all);
    if (status != QUIRE_NOT_FOUND || checkpoint_find(s->checkpoint, all, out, NULL) == QUIRE_NOT_FOUND)
        return status; /* a missing one is called by its own name */
    *is_stacked = true;
    memcpy(name, all, sizeof all);
    return checkpoint_find(s->checkpoint, name, out, err);
}

/* GGUF may leave out dimensions of 1, or add them: then *t gets those that are wanted. */
static bool has_shape(const struct stored_model *s, struct checkpoint_tensor *t, const uint64_t *want, uint32_t n_dims)
{
    uint32_t n = t->n_dims, n_want = n_dims;
    while (checkpoint_is_gguf(s->checkpoint) && n > 0 && t->shape[t->n_dims - n] == 1)
        n--;
    while (checkpoint_is_gguf(s->checkpoint) && n_want > 0 && want[n_dims - n_want] == 1)
        n_want--;
    if (n != n_want || memcmp(t->shape + t->n_dims - n, want + n_dims - n_want, n * sizeof *want) != 0)
        return false;
    t->n_dims = n_dims;
    memcpy(t->shape, want, n_dims * sizeof *want);
    return true;
}

/* Finds a matrix or a vector in the checkpoint and checks its shape. Several matrices of one shape are tensors of their
 * own, or one tensor [count, rows, cols]. */
int stored_find(const struct stored_model *s, struct matrix_at at, struct checkpoint_tensor *out,
                struct quire_error *err)
{
    const struct model_tensor *row = at.row;
    char name[MODEL_NAME_BYTES], expected[64], got[192];
    bool is_stacked;
    int status = find_tensor(s, at, out, &is_stacked, name, err);
    if (status == QUIRE_NOT_FOUND && row->when >= IF_DENSE)
        return quire_fail(err, status, "%s/model.safetensors: tensor '%s' is missing",
                          s->desc->config->outputs.dense.folder, name + strlen(MODEL_DENSE_PREFIX));
    if (status != QUIRE_OK)
        return status;
    uint64_t rows;
    const uint32_t first_row = stored_rows_before(s, at, &rows);
    const bool is_turned = stored_transposed(s, at);
    const uint64_t cols = model_whole_size(s->desc, at.layer, row->cols);
    const uint64_t shape[3] = {model_whole_size(s->desc, at.layer, row->count),
                               is_turned && row->kind == TENSOR_MATRIX ? cols : rows,
                               is_turned && row->kind == TENSOR_MATRIX ? rows : cols};
    const uint64_t *want = is_stacked ? shape : shape + 1;
    const uint32_t n_dims = (row->kind == TENSOR_MATRIX || row->cols != SIZE_ONE ? 2 : 1) + (is_stacked ? 1 : 0);
    if (has_shape(s, out, want, n_dims)) {
        if (is_stacked)
            checkpoint_take(out, at.index);
        const uint32_t own_rows = model_whole_size(s->desc, at.layer, row->rows);
        if (own_rows < rows && !is_turned)
            checkpoint_take_rows(out, first_row, own_rows);
        return QUIRE_OK;
    }
    shape_text(want, n_dims, expected, sizeof expected);
    shape_text(out->shape, out->n_dims, got, sizeof got);
    return quire_fail(err, QUIRE_INVALID, "%.100s: %s: expected %s, as config.json says, got %s", out->file, name,
                      expected, got);
}
