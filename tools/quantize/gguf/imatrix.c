#include "tools/quantize/gguf/imatrix.h"

#include "base/buffer.h"
#include "base/encoding/little_endian.h"
#include "base/file.h"
#include "files/gguf.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE_BYTES ((size_t)1 << 30)
#define MAX_ENTRIES 100000u
#define SUMS ".in_sum2"

struct entry {
    char name[128]; /* the tensor's */
    float *values;  /* [n], owned */
    uint64_t n;
};

struct imatrix {
    struct entry *entries;
    uint32_t n, capacity;
};

/* Appends an entry of n zeros. */
static struct entry *append(struct imatrix *m, const char *name, size_t n_name, uint64_t n)
{
    if (m->n == m->capacity) {
        const uint32_t capacity = m->capacity ? m->capacity * 2 : 128;
        struct entry *entries = realloc(m->entries, capacity * sizeof *entries);
        if (!entries)
            return NULL;
        m->entries = entries;
        m->capacity = capacity;
    }
    struct entry *e = &m->entries[m->n];
    *e = (struct entry){.values = calloc(n + 1, sizeof *e->values), .n = n};
    if (!e->values)
        return NULL;
    memcpy(e->name, name, n_name < sizeof e->name ? n_name : sizeof e->name - 1);
    m->n++;
    return e;
}

static int check(const struct entry *e, struct quire_error *err)
{
    for (uint64_t i = 0; i < e->n; i++)
        if (!(e->values[i] >= 0) || !isfinite(e->values[i]))
            return quire_fail(err, QUIRE_INVALID, "--imatrix: '%s': value %llu is negative or not finite", e->name,
                              (unsigned long long)i);
    return QUIRE_OK;
}

/* ---- the binary form: n, then for each entry its name, the number of calls, and sums over them --------------------- */

struct reader {
    const uint8_t *at, *end;
};

static bool take_count(struct reader *r, uint32_t most, uint32_t *out)
{
    if (r->end - r->at < 4)
        return false;
    *out = le_load_u32(r->at);
    r->at += 4;
    return *out <= most;
}

static int read_binary(struct imatrix *m, const uint8_t *data, size_t n_bytes, struct quire_error *err)
{
    struct reader r = {data, data + n_bytes};
    uint32_t n = 0, n_name = 0, n_calls = 0, n_values = 0;
    int status = take_count(&r, MAX_ENTRIES, &n) && n > 0
                     ? QUIRE_OK
                     : quire_fail(err, QUIRE_INVALID, "--imatrix: this is not an importance matrix");
    for (uint32_t i = 0; status == QUIRE_OK && i < n; i++) {
        struct entry *e = NULL;
        const uint8_t *name = r.at + 4;
        bool ok = take_count(&r, 127, &n_name) && (uint64_t)(r.end - r.at) >= n_name;
        r.at += ok ? n_name : 0;
        ok = ok && take_count(&r, INT32_MAX, &n_calls) && take_count(&r, INT32_MAX, &n_values) &&
             (uint64_t)(r.end - r.at) / 4 >= n_values;
        if (!ok)
            return quire_fail(err, QUIRE_INVALID, "--imatrix: the file ends in entry %u, or is no importance matrix",
                              i);
        if (!(e = append(m, (const char *)name, n_name, n_values)))
            return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
        for (uint32_t k = 0; k < n_values; k++, r.at += 4) {
            memcpy(&e->values[k], r.at, 4);
            e->values[k] /= n_calls > 0 ? (float)n_calls : 1;
        }
        status = check(e, err);
    }
    return status;
}

/* ---- the GGUF form ------------------------------------------------------------------------------------------------ */

/* A tensor of sums [n_matrices, n_cols], with counts [n_matrices] beside it. */
static int read_sums(struct imatrix *m, const struct gguf *g, const struct gguf_tensor *t, struct quire_error *err)
{
    char name[80];
    const size_t n_name = strlen(t->name) - strlen(SUMS);
    const uint64_t n_cols = t->size[0], n_matrices = t->n_bytes / 4 / (n_cols ? n_cols : 1);
    snprintf(name, sizeof name, "%.*s.counts", (int)n_name, t->name);
    const struct gguf_tensor *counts = gguf_find_tensor(g, name);
    if (t->type != 0 || !counts || counts->type != 0 || counts->n_bytes / 4 != n_matrices)
        return quire_fail(err, QUIRE_INVALID, "--imatrix: tensor '%s': needs F32 sums, and a count for each matrix",
                          t->name);
    struct entry *e = append(m, t->name, n_name, n_matrices * n_cols);
    if (!e)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    memcpy(e->values, t->data, t->n_bytes);
    for (uint64_t i = 0; i < n_matrices; i++) {
        float count;
        memcpy(&count, counts->data + i * 4, 4);
        for (uint64_t k = 0; k < n_cols; k++) /* an expert that saw no token: all columns count the same */
            e->values[i * n_cols + k] = count > 0 ? e->values[i * n_cols + k] / count : 1;
    }
    return check(e, err);
}

static int read_gguf(struct imatrix *m, const void *data, size_t n_bytes, struct quire_error *err)
{
    struct gguf *g;
    int status = gguf_open_memory(data, n_bytes, "--imatrix", &g, err);
    for (size_t i = 0; status == QUIRE_OK && i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor(g, i);
        const size_t n = strlen(t->name);
        if (n > strlen(SUMS) && strcmp(t->name + n - strlen(SUMS), SUMS) == 0)
            status = read_sums(m, g, t, err);
    }
    if (status == QUIRE_OK && m->n == 0)
        status = quire_fail(err, QUIRE_INVALID, "--imatrix: the GGUF file has no tensors *" SUMS);
    gguf_close(g);
    return status;
}

/* ---- public functions --------------------------------------------------------------------------------------------- */

int imatrix_read(const void *data, size_t n_bytes, struct imatrix **out, struct quire_error *err)
{
    struct imatrix *m = *out = calloc(1, sizeof *m);
    if (!m)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    int status = n_bytes >= 4 && memcmp(data, "GGUF", 4) == 0 ? read_gguf(m, data, n_bytes, err)
                                                              : read_binary(m, data, n_bytes, err);
    if (status != QUIRE_OK) {
        imatrix_close(m);
        *out = NULL;
    }
    return status;
}

int imatrix_open(const char *path, struct imatrix **out, struct quire_error *err)
{
    struct buffer file = {0};
    FILE *f = fopen(path, "re");
    *out = NULL;
    if (!f)
        return quire_fail(err, QUIRE_IO, "--imatrix: %.350s: cannot be opened: %m", path);
    int status = buffer_read(&file, f, MAX_FILE_BYTES, "--imatrix", err);
    fclose(f);
    if (status == QUIRE_OK)
        status = imatrix_read(file.data, file.n, out, err);
    buffer_free(&file);
    return status;
}

void imatrix_close(struct imatrix *m)
{
    for (uint32_t i = 0; m && i < m->n; i++)
        free(m->entries[i].values);
    if (m)
        free(m->entries);
    free(m);
}

int imatrix_find(const struct imatrix *m, const char *tensor, uint64_t n_matrices, uint64_t n_cols, const float **out,
                 struct quire_error *err)
{
    *out = NULL;
    for (uint32_t i = 0; i < m->n; i++) {
        const struct entry *e = &m->entries[i];
        if (strcmp(e->name, tensor) != 0)
            continue;
        if (e->n != n_matrices * n_cols)
            return quire_fail(err, QUIRE_INVALID, "--imatrix: '%s' has %llu values, but the tensor has %llu columns",
                              tensor, (unsigned long long)e->n, (unsigned long long)(n_matrices * n_cols));
        *out = e->values;
        return QUIRE_OK;
    }
    return QUIRE_OK;
}

struct key256 imatrix_hash(const struct imatrix *m)
{
    struct quire_sha256_state s;
    quire_sha256_begin(&s);
    for (uint32_t i = 0; i < m->n; i++) {
        quire_sha256_add(&s, m->entries[i].name, sizeof m->entries[i].name);
        quire_sha256_add(&s, m->entries[i].values, m->entries[i].n * sizeof(float));
    }
    return quire_sha256_now(&s);
}
