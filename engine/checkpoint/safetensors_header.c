#include "engine/checkpoint/checkpoint_table.h"

#include "base/encoding/json.h"
#include "base/encoding/little_endian.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct st_dtype {
    const char *name;
    uint32_t bits;
    bool usable;
    enum k_dtype dtype;
};

/* Every dtype of the format: the sizes of all must be checked, three can be computed with. */
static const struct st_dtype dtypes[] = {
    {"F32", 32, true, K_F32},     {"F16", 16, true, K_F16},     {"BF16", 16, true, K_BF16},
    {"F64", 64, false, K_F32},    {"I64", 64, false, K_F32},    {"I32", 32, false, K_F32},
    {"I16", 16, false, K_F32},    {"I8", 8, false, K_F32},      {"U64", 64, false, K_F32},
    {"U32", 32, false, K_F32},    {"U16", 16, false, K_F32},    {"U8", 8, false, K_F32},
    {"BOOL", 8, false, K_F32},    {"C64", 64, false, K_F32},    {"F8_E4M3", 8, false, K_F32},
    {"F8_E5M2", 8, false, K_F32}, {"F8_E8M0", 8, false, K_F32}, {"F6_E2M3", 6, false, K_F32},
    {"F6_E3M2", 6, false, K_F32}, {"F4", 4, false, K_F32},
};

bool checkpoint_is_printable(const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == 0x7f)
            return false;
    }
    return true;
}

static const struct st_dtype *find_dtype(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return &dtypes[i];
    return NULL;
}

static int metadata_check(const json_t *value, const char *where, struct quire_error *err)
{
    const char *key;
    json_t *item;
    if (!json_is_object(value))
        return quire_fail(err, QUIRE_INVALID, "%s: __metadata__: must be an object", where);
    json_object_foreach((json_t *)(uintptr_t)value, key, item)
    {
        if (!json_is_string(item))
            return quire_fail(err, QUIRE_INVALID, "%s: __metadata__: every value must be a string", where);
    }
    return QUIRE_OK;
}

/* `where` names file and tensor. The product of the shape, in bits, must be whole bytes and equal
 * end - begin. */
static int shape_check(const json_t *shape, const struct st_dtype *dtype, struct checkpoint_entry *entry,
                       const char *where, struct quire_error *err)
{
    uint64_t n_bits = dtype->bits;
    size_t i;
    json_t *dim;
    bool overflow = false;
    json_array_foreach(shape, i, dim)
    {
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return quire_fail(err, QUIRE_INVALID, "%s: shape: must hold non-negative integers", where);
        uint64_t n = (uint64_t)json_integer_value(dim);
        if (i < CHECKPOINT_MAX_DIMS)
            entry->shape[i] = n;
        if (__builtin_mul_overflow(n_bits, n, &n_bits))
            overflow = true;
    }
    if (overflow)
        return quire_fail(err, QUIRE_INVALID, "%s: shape: the product overflows", where);
    if (json_array_size(shape) > UINT32_MAX)
        return quire_fail(err, QUIRE_INVALID, "%s: shape: too many dimensions", where);
    entry->n_dims = (uint32_t)json_array_size(shape);

    if (n_bits % 8 != 0)
        return quire_fail(err, QUIRE_INVALID, "%s: shape: not a whole number of bytes of %s", where, dtype->name);
    if (n_bits / 8 != entry->end - entry->begin)
        return quire_fail(err, QUIRE_INVALID, "%s: data_offsets: %llu bytes, but shape and dtype %s need %llu", where,
                          (unsigned long long)(entry->end - entry->begin), dtype->name,
                          (unsigned long long)(n_bits / 8));
    return QUIRE_OK;
}

static int offsets_check(const json_t *offsets, uint64_t n_data, struct checkpoint_entry *entry, const char *where,
                         struct quire_error *err)
{
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < 0)
        return quire_fail(err, QUIRE_INVALID, "%s: data_offsets: must be two non-negative integers", where);
    entry->begin = (uint64_t)json_integer_value(begin);
    entry->end = (uint64_t)json_integer_value(end);
    if (entry->begin > entry->end)
        return quire_fail(err, QUIRE_INVALID, "%s: data_offsets: begin lies after end", where);
    if (entry->end > n_data)
        return quire_fail(err, QUIRE_INVALID,
                          "%s: data_offsets: end at byte %llu, but the file has %llu bytes of data"
                          " (truncated?)",
                          where, (unsigned long long)entry->end, (unsigned long long)n_data);
    return QUIRE_OK;
}

/* Fills all of entry but name and file. */
static int tensor_check(const json_t *value, const uint8_t *data, uint64_t n_data, struct checkpoint_entry *entry,
                        const char *where, struct quire_error *err)
{
    if (!json_is_object(value))
        return quire_fail(err, QUIRE_INVALID, "%s: must be an object", where);
    const json_t *dtype_value = json_object_get(value, "dtype");
    const json_t *shape = json_object_get(value, "shape");
    const json_t *offsets = json_object_get(value, "data_offsets");
    if (!json_is_string(dtype_value))
        return quire_fail(err, QUIRE_INVALID, "%s: dtype: must be a string", where);
    if (!json_is_array(shape))
        return quire_fail(err, QUIRE_INVALID, "%s: shape: must be an array", where);
    if (!json_is_array(offsets))
        return quire_fail(err, QUIRE_INVALID, "%s: data_offsets: must be an array", where);

    const char *dtype_name = json_string_value(dtype_value);
    const struct st_dtype *dtype = find_dtype(dtype_name);
    if (!dtype)
        return quire_fail(err, QUIRE_INVALID, "%s: dtype: '%.40s' is not a safetensors dtype", where,
                          checkpoint_is_printable(dtype_name) ? dtype_name : "?");
    int status = offsets_check(offsets, n_data, entry, where, err);
    if (status == QUIRE_OK)
        status = shape_check(shape, dtype, entry, where, err);
    if (status != QUIRE_OK)
        return status;

    entry->dtype_name = dtype->name;
    entry->format = k_format_of(dtype->dtype);
    entry->usable = dtype->usable;
    entry->data = data + entry->begin;
    entry->misaligned = dtype->usable && entry->begin < entry->end && (uintptr_t)entry->data % (dtype->bits / 8) != 0;
    return QUIRE_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct checkpoint_entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return 0;
}

/* Sorts one file's entries by offset: each must begin where the one before it ends. */
static int coverage_check(struct checkpoint_entry *entries, size_t n, uint64_t n_data, const char *where,
                          struct quire_error *err)
{
    uint64_t covered = 0;
    if (n > 0)
        qsort(entries, n, sizeof *entries, by_offset);
    for (size_t i = 0; i < n; i++) {
        if (entries[i].begin < covered)
            return quire_fail(err, QUIRE_INVALID, "%s: tensor '%.150s': data_offsets: overlaps tensor '%.150s'", where,
                              entries[i].name, entries[i - 1].name);
        if (entries[i].begin > covered)
            return quire_fail(err, QUIRE_INVALID,
                              "%s: tensor '%.150s': data_offsets: bytes %llu to %llu before it"
                              " belong to no tensor",
                              where, entries[i].name, (unsigned long long)covered,
                              (unsigned long long)entries[i].begin);
        covered = entries[i].end;
    }
    if (covered != n_data)
        return quire_fail(err, QUIRE_INVALID,
                          "%s: data_offsets: the tensors end at byte %llu, but the file has %llu"
                          " bytes of data",
                          where, (unsigned long long)covered, (unsigned long long)n_data);
    return QUIRE_OK;
}

static int add_tensors(struct checkpoint_table *table, const json_t *header, const uint8_t *data, uint64_t n_data,
                       uint32_t file, const char *where, struct quire_error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)header, name, value)
    {
        int status;
        if (strcmp(name, "__metadata__") == 0) {
            status = metadata_check(value, where, err);
            if (status != QUIRE_OK)
                return status;
            continue;
        }
        if (!checkpoint_is_printable(name))
            return quire_fail(err, QUIRE_INVALID, "%s: header: a tensor's name has control characters", where);
        struct checkpoint_entry *entry = checkpoint_table_append(table, name);
        if (!entry)
            return quire_fail(err, QUIRE_NO_MEMORY, "%s: out of memory", where);
        entry->file = file;
        char label[320];
        snprintf(label, sizeof label, "%.100s: tensor '%.150s'", where, name);
        status = tensor_check(value, data, n_data, entry, label, err);
        if (status != QUIRE_OK)
            return status;
    }
    return QUIRE_OK;
}

int checkpoint_add_safetensors(struct checkpoint_table *table, const uint8_t *bytes, uint64_t n_bytes, uint32_t file,
                               const char *where, struct quire_error *err)
{
    if (n_bytes < 8)
        return quire_fail(err, QUIRE_INVALID, "%s: header: the file ends before its 8-byte length (%llu bytes)", where,
                          (unsigned long long)n_bytes);
    uint64_t n_header = le_load_u64(bytes);
    if (n_header > ST_MAX_HEADER_BYTES)
        return quire_fail(err, QUIRE_INVALID, "%s: header: length %llu is over the %u bytes the format allows", where,
                          (unsigned long long)n_header, ST_MAX_HEADER_BYTES);
    if (n_header > n_bytes - 8)
        return quire_fail(err, QUIRE_INVALID, "%s: header: length %llu, but only %llu bytes follow (truncated?)", where,
                          (unsigned long long)n_header, (unsigned long long)(n_bytes - 8));
    if (n_header == 0 || bytes[8] != '{')
        return quire_fail(err, QUIRE_INVALID, "%s: header: must be a JSON object", where);

    json_t *header;
    struct quire_error why;
    /* name → tensor → shape: three levels are all there are. */
    int status = quire_json_parse((const char *)bytes + 8, (size_t)n_header, 3, "header", &header, &why);
    if (status != QUIRE_OK)
        return quire_fail(err, (enum quire_status)status, "%s: %s", where,
                          checkpoint_is_printable(why.text) ? why.text : "header: not valid JSON");
    const uint8_t *data = bytes + 8 + n_header;
    uint64_t n_data = n_bytes - 8 - n_header;
    size_t first = table->n;
    status = add_tensors(table, header, data, n_data, file, where, err);
    json_decref(header);
    if (status == QUIRE_OK)
        status = coverage_check(table->entries + first, table->n - first, n_data, where, err);
    return status;
}
