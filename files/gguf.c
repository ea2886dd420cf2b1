#include "files/gguf.h"

#include "base/encoding/little_endian.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_KEY_BYTES 65535u
#define DEFAULT_ALIGNMENT 32u
#define MAX_ALIGNMENT (1u << 20)
#define LEAST_TENSOR_BYTES 24u /* of its description */
#define LEAST_PAIR_BYTES 13u

struct pair {
    struct gguf_text key;
    struct gguf_value value;
    struct gguf_text bytes; /* the whole pair */
};

struct gguf {
    char name[256];
    void *mapped; /* NULL: the image is the caller's */
    const uint8_t *bytes;
    size_t n_bytes;
    struct pair *pairs;
    struct gguf_tensor *tensors; /* by offset */
    size_t n_pairs, n_tensors;
    struct gguf *next; /* owned: the split behind this one */
};

/* The part of the file that is not read yet. `bad` is set if the file ends too early. */
struct reader {
    const uint8_t *at, *end;
    bool bad;
};

/* ---- types ------------------------------------------------------------------------------------------ */

struct type {
    uint32_t number;
    const char *name;
    uint32_t columns, bytes; /* of a block */
};

/* All of GGML's, since the sizes of all must be checked. */
static const struct type types[] = {
    {0, "F32", 1, 4},
    {1, "F16", 1, 2},
    {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},
    {6, "Q5_0", 32, 22},
    {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},
    {9, "Q8_1", 32, 40},
    {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},
    {12, "Q4_K", 256, 144},
    {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},
    {15, "Q8_K", 256, 292},
    {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98},
    {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},
    {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136},
    {24, "I8", 1, 1},
    {25, "I16", 1, 2},
    {26, "I32", 1, 4},
    {27, "I64", 1, 8},
    {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2},
    {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},
    {39, "MXFP4", 32, 17},
    {40, "NVFP4", 64, 36},
    {41, "Q1_0", 128, 18},
    {42, "Q2_0", 64, 18},
    /* no longer in files that llama.cpp writes */
    {31, "Q4_0_4_4", 32, 18},
    {32, "Q4_0_4_8", 32, 18},
    {33, "Q4_0_8_8", 32, 18},
    {36, "IQ4_NL_4_4", 32, 18},
    {37, "IQ4_NL_4_8", 32, 18},
    {38, "IQ4_NL_8_8", 32, 18},
};

static const struct type *find_type(uint32_t number)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].number == number)
            return &types[i];
    return NULL;
}

const char *gguf_type_name(uint32_t number)
{
    const struct type *type = find_type(number);
    return type ? type->name : NULL;
}

/* ---- reading ---------------------------------------------------------------------------------------- */

static const uint8_t *take(struct reader *r, uint64_t n)
{
    const uint8_t *at = r->at;
    if (r->bad || n > (uint64_t)(r->end - at)) {
        r->bad = true;
        return NULL;
    }
    r->at += n;
    return at;
}

static uint32_t take_u32(struct reader *r)
{
    const uint8_t *p = take(r, 4);
    return p ? le_load_u32(p) : 0;
}

static uint64_t take_u64(struct reader *r)
{
    const uint8_t *p = take(r, 8);
    return p ? le_load_u64(p) : 0;
}

static struct gguf_text take_text(struct reader *r)
{
    uint64_t n = take_u64(r);
    const uint8_t *p = take(r, n);
    return p ? (struct gguf_text){(const char *)p, (size_t)n} : (struct gguf_text){"", 0};
}

static uint32_t kind_bytes(uint32_t kind)
{
    static const uint8_t bytes[GGUF_N_KINDS] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return bytes[kind];
}

static bool is_printable(struct gguf_text text)
{
    for (size_t i = 0; i < text.n; i++)
        if ((unsigned char)text.data[i] < 0x20 || text.data[i] == 0x7f)
            return false;
    return text.n > 0;
}

/* An array of arrays has no use here: false, and nothing after it can be found. */
static bool take_array(struct reader *r, struct gguf_value *v)
{
    uint32_t kind = take_u32(r);
    v->n = take_u64(r);
    v->is_array = true;
    if (kind >= GGUF_N_KINDS || kind == GGUF_ARRAY)
        return false;
    v->kind = (enum gguf_kind)kind;
    v->data = r->at;
    if (kind == GGUF_STRING)
        for (uint64_t i = 0; i < v->n && !r->bad; i++)
            take_text(r);
    else if (v->n > (uint64_t)(r->end - r->at) / kind_bytes(kind))
        r->bad = true;
    else
        take(r, v->n * kind_bytes(kind));
    return true;
}

/* Returns false for an unknown kind, or one that is not read. */
static bool take_value(struct reader *r, struct gguf_value *v)
{
    uint32_t kind = take_u32(r);
    if (kind == GGUF_ARRAY)
        return take_array(r, v);
    if (kind >= GGUF_N_KINDS)
        return false;
    *v = (struct gguf_value){.kind = (enum gguf_kind)kind, .n = 1, .data = r->at};
    if (kind == GGUF_STRING)
        take_text(r);
    else
        take(r, kind_bytes(kind));
    return true;
}

static int by_key(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    size_t n = x->key.n < y->key.n ? x->key.n : y->key.n;
    int order = memcmp(x->key.data, y->key.data, n);
    return order ? order : (x->key.n > y->key.n) - (x->key.n < y->key.n);
}

static int read_pairs(struct gguf *g, struct reader *r, uint64_t n, struct quire_error *err)
{
    if (n > (uint64_t)(r->end - r->at) / LEAST_PAIR_BYTES)
        return quire_fail(err, QUIRE_INVALID, "%s: header: %llu keys do not fit into the file", g->name,
                          (unsigned long long)n);
    if (!(g->pairs = calloc(n + 1, sizeof *g->pairs)))
        return quire_fail(err, QUIRE_NO_MEMORY, "%s: out of memory", g->name);
    for (; g->n_pairs < n; g->n_pairs++) {
        struct pair *pair = &g->pairs[g->n_pairs];
        pair->bytes.data = (const char *)r->at;
        pair->key = take_text(r);
        if (r->bad || pair->key.n > MAX_KEY_BYTES || !is_printable(pair->key))
            return quire_fail(err, QUIRE_INVALID, "%s: header: key %zu is not a name, or the file ends in it", g->name,
                              g->n_pairs);
        if (!take_value(r, &pair->value) || r->bad)
            return quire_fail(err, QUIRE_INVALID, "%s: %.*s: has an unknown type, or the file ends in it", g->name,
                              (int)(pair->key.n < 150 ? pair->key.n : 150), pair->key.data);
        pair->bytes.n = (size_t)((const char *)r->at - pair->bytes.data);
    }
    qsort(g->pairs, g->n_pairs, sizeof *g->pairs, by_key);
    for (size_t i = 1; i < g->n_pairs; i++)
        if (by_key(&g->pairs[i - 1], &g->pairs[i]) == 0)
            return quire_fail(err, QUIRE_INVALID, "%s: %.*s: occurs twice", g->name,
                              (int)(g->pairs[i].key.n < 150 ? g->pairs[i].key.n : 150), g->pairs[i].key.data);
    return QUIRE_OK;
}

/* ---- tensors ---------------------------------------------------------------------------------------- */

/* Computes the number of elements and their size in bytes. */
static int size_tensor(const struct gguf *g, struct gguf_tensor *t, struct quire_error *err)
{
    const struct type *type = find_type(t->type);
    uint64_t n = 1;
    if (!type)
        return quire_fail(err, QUIRE_INVALID, "%s: tensor '%s': type: %u is unknown", g->name, t->name, t->type);
    for (uint32_t i = 0; i < GGUF_MAX_DIMS; i++)
        if (__builtin_mul_overflow(n, t->size[i], &n))
            return quire_fail(err, QUIRE_INVALID, "%s: tensor '%s': dimensions: are too large", g->name, t->name);
    if (t->size[0] % type->columns != 0)
        return quire_fail(err, QUIRE_INVALID,
                          "%s: tensor '%s': dimensions: %llu columns are not a multiple of a block of %s (%u)", g->name,
                          t->name, (unsigned long long)t->size[0], type->name, type->columns);
    if (__builtin_mul_overflow(n / type->columns, (uint64_t)type->bytes, &t->n_bytes))
        return quire_fail(err, QUIRE_INVALID, "%s: tensor '%s': dimensions: are too large", g->name, t->name);
    return QUIRE_OK;
}

static int read_tensor(const struct gguf *g, struct reader *r, struct gguf_tensor *t, struct quire_error *err)
{
    struct gguf_text name = take_text(r);
    t->n_dims = take_u32(r);
    if (r->bad || name.n >= sizeof t->name || !is_printable(name))
        return quire_fail(err, QUIRE_INVALID, "%s: header: tensor %zu has an invalid name", g->name, g->n_tensors);
    memcpy(t->name, name.data, name.n);
    if (t->n_dims > GGUF_MAX_DIMS)
        return quire_fail(err, QUIRE_INVALID, "%s: tensor '%s': n_dims: must be at most %d, got %u", g->name, t->name,
                          GGUF_MAX_DIMS, t->n_dims);
    for (uint32_t i = 0; i < GGUF_MAX_DIMS; i++)
        t->size[i] = i < t->n_dims ? take_u64(r) : 1;
    t->type = take_u32(r);
    t->begin = take_u64(r);
    if (r->bad)
        return quire_fail(err, QUIRE_INVALID, "%s: tensor '%s': the file ends in its description", g->name, t->name);
    return size_tensor(g, t, err);
}

static int by_offset(const void *a, const void *b)
{
    const struct gguf_tensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes);
}

/* Inside the file, aligned, and none over another. */
static int place_tensors(struct gguf *g, const uint8_t *header_end, uint64_t alignment, struct quire_error *err)
{
    const uint64_t header = (uint64_t)(header_end - g->bytes);
    const uint64_t begin = (header + alignment - 1) / alignment * alignment;
    const uint64_t n_data = begin < g->n_bytes ? g->n_bytes - begin : 0;
    uint64_t covered = 0;
    qsort(g->tensors, g->n_tensors, sizeof *g->tensors, by_offset);
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        if (t->begin % alignment != 0)
            return quire_fail(err, QUIRE_INVALID, "%s: tensor '%s': offset: %llu is not a multiple of %llu", g->name,
                              t->name, (unsigned long long)t->begin, (unsigned long long)alignment);
        if (t->begin > n_data || t->n_bytes > n_data - t->begin)
            return quire_fail(err, QUIRE_INVALID,
                              "%s: tensor '%s': offset: %llu bytes at %llu, but the file has %llu of data (truncated?)",
                              g->name, t->name, (unsigned long long)t->n_bytes, (unsigned long long)t->begin,
                              (unsigned long long)n_data);
        if (t->begin < covered)
            return quire_fail(err, QUIRE_INVALID, "%s: tensor '%s': offset: overlaps tensor '%s'", g->name, t->name,
                              t[-1].name);
        covered = t->begin + t->n_bytes;
        t->data = g->bytes + (n_data ? begin + t->begin : g->n_bytes); /* a tensor of no bytes may be all there is */
    }
    return QUIRE_OK;
}

static int read_alignment(const struct gguf *g, uint64_t *out, struct quire_error *err)
{
    *out = DEFAULT_ALIGNMENT;
    int status = gguf_u64(g, "general.alignment", out, err);
    if (status == QUIRE_OK && (*out < 8 || *out > MAX_ALIGNMENT || (*out & (*out - 1))))
        return quire_fail(err, QUIRE_INVALID, "%s: general.alignment: must be a power of two from 8 to %u, got %llu",
                          g->name, MAX_ALIGNMENT, (unsigned long long)*out);
    return status;
}

static int parse(struct gguf *g, struct quire_error *err)
{
    struct reader r = {g->bytes, g->bytes + g->n_bytes, false};
    const uint8_t *magic = take(&r, 4);
    const uint32_t version = take_u32(&r);
    const uint64_t n_tensors = take_u64(&r), n_pairs = take_u64(&r);
    uint64_t alignment;
    if (r.bad || memcmp(magic, "GGUF", 4) != 0)
        return quire_fail(err, QUIRE_INVALID, "%s: header: this is not a GGUF file", g->name);
    if (version != 2 && version != 3)
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          "%s: header: version %u is not supported; supported: 2 and 3, little-endian", g->name,
                          version);
    int status = read_pairs(g, &r, n_pairs, err);
    if (status == QUIRE_OK)
        status = read_alignment(g, &alignment, err);
    if (status != QUIRE_OK)
        return status;
    if (n_tensors > (uint64_t)(r.end - r.at) / LEAST_TENSOR_BYTES)
        return quire_fail(err, QUIRE_INVALID, "%s: header: %llu tensors do not fit into the file", g->name,
                          (unsigned long long)n_tensors);
    if (!(g->tensors = calloc(n_tensors + 1, sizeof *g->tensors)))
        return quire_fail(err, QUIRE_NO_MEMORY, "%s: out of memory", g->name);
    for (; status == QUIRE_OK && g->n_tensors < n_tensors; g->n_tensors++)
        status = read_tensor(g, &r, &g->tensors[g->n_tensors], err);
    return status == QUIRE_OK ? place_tensors(g, r.at, alignment, err) : status;
}

/* ---- opening ---------------------------------------------------------------------------------------- */

/* Control characters in a file's name must not reach a terminal. */
static void set_name(struct gguf *g, const char *path)
{
    const char *slash = strrchr(path, '/');
    snprintf(g->name, sizeof g->name, "%.200s", slash ? slash + 1 : path);
    for (char *c = g->name; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
}

static int map(struct gguf *g, const char *path, struct quire_error *err)
{
    /* O_NONBLOCK, so that a FIFO put in a file's place cannot hold us. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    if (fd < 0)
        return quire_fail(err, errno == ENOENT ? QUIRE_NOT_FOUND : QUIRE_IO, "%s: cannot be opened: %m", g->name);
    int status = QUIRE_OK;
    if (fstat(fd, &info) != 0)
        status = quire_fail(err, QUIRE_IO, "%s: cannot be read: %m", g->name);
    else if (!S_ISREG(info.st_mode) || info.st_size < 24)
        status = quire_fail(err, QUIRE_INVALID, "%s: header: this is not a GGUF file", g->name);
    if (status == QUIRE_OK) {
        void *bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (bytes == MAP_FAILED) {
            status = quire_fail(err, QUIRE_IO, "%s: cannot be mapped: %m", g->name);
        } else {
            g->mapped = bytes;
            g->bytes = bytes;
            g->n_bytes = (size_t)info.st_size;
        }
    }
    close(fd);
    return status;
}

int gguf_open(const char *path, struct gguf **out, struct quire_error *err)
{
    struct gguf *g = calloc(1, sizeof *g);
    *out = NULL;
    if (!g)
        return quire_fail(err, QUIRE_NO_MEMORY, "gguf: out of memory");
    set_name(g, path);
    int status = map(g, path, err);
    if (status == QUIRE_OK)
        status = parse(g, err);
    if (status == QUIRE_OK)
        *out = g;
    else
        gguf_close(g);
    return status;
}

int gguf_open_memory(const void *data, size_t n_bytes, const char *name, struct gguf **out, struct quire_error *err)
{
    struct gguf *g = calloc(1, sizeof *g);
    *out = NULL;
    if (!g)
        return quire_fail(err, QUIRE_NO_MEMORY, "gguf: out of memory");
    set_name(g, name);
    g->bytes = data;
    g->n_bytes = n_bytes;
    int status = parse(g, err);
    if (status == QUIRE_OK)
        *out = g;
    else
        gguf_close(g);
    return status;
}

void gguf_drop_pages(const struct gguf *g)
{
    for (; g; g = gguf_next(g))
        if (g->mapped)
            madvise(g->mapped, g->n_bytes, MADV_DONTNEED);
}

void gguf_close(struct gguf *g)
{
    while (g) {
        struct gguf *next = g->next;
        if (g->mapped)
            munmap(g->mapped, g->n_bytes);
        free(g->pairs);
        free(g->tensors);
        free(g);
        g = next;
    }
}

const struct gguf *gguf_next(const struct gguf *g)
{
    return g->next;
}

/* ---- asking ----------------------------------------------------------------------------------------- */

const char *gguf_name(const struct gguf *g)
{
    return g->name;
}

size_t gguf_n_tensors(const struct gguf *g)
{
    return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor(const struct gguf *g, size_t i)
{
    return &g->tensors[i];
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name)
{
    for (; g; g = g->next)
        for (size_t i = 0; i < g->n_tensors; i++)
            if (strcmp(g->tensors[i].name, name) == 0)
                return &g->tensors[i];
    return NULL;
}

bool gguf_find(const struct gguf *g, const char *key, struct gguf_value *out)
{
    const struct pair wanted = {.key = {key, strlen(key)}};
    const struct pair *found = bsearch(&wanted, g->pairs, g->n_pairs, sizeof *g->pairs, by_key);
    if (found)
        *out = found->value;
    return found != NULL;
}

bool gguf_pair(const struct gguf *g, size_t i, struct gguf_text *key, struct gguf_text *bytes)
{
    if (i >= g->n_pairs)
        return false;
    *key = g->pairs[i].key;
    *bytes = g->pairs[i].bytes;
    return true;
}

static int wrong(const struct gguf *g, const char *key, const char *must, struct quire_error *err)
{
    return quire_fail(err, QUIRE_INVALID, "%s: %s: must be %s", g->name, key, must);
}

static bool is_signed(enum gguf_kind kind)
{
    return kind == GGUF_I8 || kind == GGUF_I16 || kind == GGUF_I32 || kind == GGUF_I64;
}

/* Whether a value is a number of any width. Equal numbers, one a layer, are that number: converters write either. */
static bool is_number(const struct gguf_value *v)
{
    const size_t size = kind_bytes(v->kind);
    if (size == 0 || v->kind == GGUF_BOOL || v->n == 0)
        return false;
    for (uint64_t i = 1; i < v->n; i++)
        if (memcmp(v->data + i * size, v->data, size) != 0)
            return false;
    return true;
}

/* The bits of the first of an integer value's numbers, widened with its sign. */
static uint64_t bits_of(const struct gguf_value *v)
{
    switch (v->kind) {
    case GGUF_U8: return v->data[0];
    case GGUF_I8: return (uint64_t)(int8_t)v->data[0];
    case GGUF_U16: return le_load_u16(v->data);
    case GGUF_I16: return (uint64_t)(int16_t)le_load_u16(v->data);
    case GGUF_U32: return le_load_u32(v->data);
    case GGUF_I32: return (uint64_t)(int32_t)le_load_u32(v->data);
    default: return le_load_u64(v->data);
    }
}

static bool is_integer(const struct gguf_value *v)
{
    return is_number(v) && v->kind != GGUF_F32 && v->kind != GGUF_F64;
}

int gguf_u64(const struct gguf *g, const char *key, uint64_t *out, struct quire_error *err)
{
    struct gguf_value v;
    if (!gguf_find(g, key, &v))
        return QUIRE_OK;
    if (!is_integer(&v) || (is_signed(v.kind) && (int64_t)bits_of(&v) < 0))
        return wrong(g, key, "a non-negative integer", err);
    *out = bits_of(&v);
    return QUIRE_OK;
}

int gguf_i64(const struct gguf *g, const char *key, int64_t *out, struct quire_error *err)
{
    struct gguf_value v;
    if (!gguf_find(g, key, &v))
        return QUIRE_OK;
    if (!is_integer(&v) || (!is_signed(v.kind) && bits_of(&v) > INT64_MAX))
        return wrong(g, key, "an integer below 2^63", err);
    *out = (int64_t)bits_of(&v);
    return QUIRE_OK;
}

int gguf_f64(const struct gguf *g, const char *key, double *out, struct quire_error *err)
{
    struct gguf_value v;
    double value;
    if (!gguf_find(g, key, &v))
        return QUIRE_OK;
    if (!is_number(&v))
        return wrong(g, key, "a number", err);
    if (v.kind == GGUF_F32) {
        uint32_t bits = le_load_u32(v.data);
        float f;
        memcpy(&f, &bits, sizeof f);
        value = (double)f;
    } else if (v.kind == GGUF_F64) {
        uint64_t bits = le_load_u64(v.data);
        memcpy(&value, &bits, sizeof value);
    } else {
        value = is_signed(v.kind) ? (double)(int64_t)bits_of(&v) : (double)bits_of(&v);
    }
    if (!isfinite(value))
        return wrong(g, key, "finite", err);
    *out = value;
    return QUIRE_OK;
}

int gguf_bool(const struct gguf *g, const char *key, bool *out, struct quire_error *err)
{
    struct gguf_value v;
    if (!gguf_find(g, key, &v))
        return QUIRE_OK;
    const bool is_bool = v.kind == GGUF_BOOL && !v.is_array;
    const uint64_t bits = is_bool ? v.data[0] : is_integer(&v) ? bits_of(&v) : 2;
    if (bits > 1)
        return wrong(g, key, "true or false", err);
    *out = bits == 1;
    return QUIRE_OK;
}

int gguf_string(const struct gguf *g, const char *key, struct gguf_text *out, struct quire_error *err)
{
    struct gguf_value v;
    if (!gguf_find(g, key, &v))
        return QUIRE_OK;
    if (v.is_array || v.kind != GGUF_STRING)
        return wrong(g, key, "a string", err);
    *out = gguf_next_string(&v.data);
    return QUIRE_OK;
}

int gguf_array(const struct gguf *g, const char *key, enum gguf_kind kind, struct gguf_value *out,
               struct quire_error *err)
{
    struct gguf_value v;
    if (!gguf_find(g, key, &v))
        return QUIRE_OK;
    const bool is_kind = v.kind == kind || (kind == GGUF_I32 && v.kind == GGUF_U32); /* the same bits */
    if (!v.is_array || !is_kind)
        return wrong(g, key, kind == GGUF_STRING ? "an array of strings" : "an array of numbers of its kind", err);
    *out = v;
    return QUIRE_OK;
}

struct gguf_text gguf_next_string(const uint8_t **at)
{
    const uint64_t n = le_load_u64(*at);
    struct gguf_text text = {(const char *)*at + 8, (size_t)n};
    *at += 8 + n;
    return text;
}

#define MAX_SPLITS 1000u

int gguf_split(const struct gguf *g, uint32_t *number, uint32_t *n, struct quire_error *err)
{
    uint64_t no = 0, count = 1;
    int status = gguf_u64(g, "split.no", &no, err);
    if (status == QUIRE_OK)
        status = gguf_u64(g, "split.count", &count, err);
    if (status != QUIRE_OK)
        return status;
    if (count == 0)
        count = 1;
    if (count > MAX_SPLITS || no >= count)
        return quire_fail(err, QUIRE_INVALID, "%s: split.no: %llu is not below the %llu files of split.count", g->name,
                          (unsigned long long)no, (unsigned long long)count);
    *number = (uint32_t)no;
    *n = (uint32_t)count;
    return QUIRE_OK;
}

/* From "DIR/NAME-00001-of-00003.gguf" and i = 1 this makes "DIR/NAME-00002-of-00003.gguf". Returns NULL with the
 * reason in err. */
static char *split_path(const char *first, const char *name, uint32_t i, uint32_t n, struct quire_error *err)
{
    char end[40], *path;
    int n_end = snprintf(end, sizeof end, "-00001-of-%05u.gguf", n);
    size_t length = strlen(first);
    if (length <= (size_t)n_end || strcmp(first + length - (size_t)n_end, end) != 0) {
        quire_fail(err, QUIRE_INVALID, "%.150s: split.count: is %u, so its name must end in %s", name, n, end);
        return NULL;
    }
    if (asprintf(&path, "%.*s-%05u-of-%05u.gguf", (int)(length - (size_t)n_end), first, i + 1, n) < 0) {
        quire_fail(err, QUIRE_NO_MEMORY, "%s: out of memory", name);
        return NULL;
    }
    return path;
}

/* n 0: as many as the file says. */
static int open_split(const char *path, uint32_t i, uint32_t n, struct gguf **out, struct quire_error *err)
{
    uint32_t number, count;
    int status = gguf_open(path, out, err);
    if (status == QUIRE_OK)
        status = gguf_split(*out, &number, &count, err);
    if (status == QUIRE_OK && (number != i || (n && count != n)))
        status = quire_fail(err, QUIRE_INVALID,
                            "%.100s: split.no: is file %u of %u, but %u is needed here: give the first file",
                            (*out)->name, number + 1, count, i + 1);
    return status;
}

int gguf_open_model(const char *path, struct gguf **out, struct quire_error *err)
{
    struct gguf *first = NULL;
    uint32_t number, n = 1;
    int status = open_split(path, 0, 0, &first, err);
    if (status == QUIRE_OK)
        status = gguf_split(first, &number, &n, err);
    struct gguf *last = first;
    for (uint32_t i = 1; status == QUIRE_OK && i < n; i++) {
        char *split = split_path(path, first->name, i, n, err);
        status = split ? open_split(split, i, n, &last->next, err) : QUIRE_INVALID;
        last = last->next;
        free(split);
    }
    *out = status == QUIRE_OK ? first : NULL;
    if (status != QUIRE_OK)
        gguf_close(first);
    return status;
}
