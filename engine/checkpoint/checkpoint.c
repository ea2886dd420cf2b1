#include "engine/checkpoint/checkpoint.h"

#include "base/encoding/json.h"
#include "engine/checkpoint/checkpoint_table.h"
#include "files/gguf.h"
#include "files/model_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SINGLE_FILE "model.safetensors"
#define INDEX_FILE "model.safetensors.index.json"
#define MAX_FILES 4096
#define COPY_ALIGN 64u
#define MAX_INDEX_BYTES ((size_t)100000000)

struct mapped_file {
    char *name;
    void *bytes;    /* NULL for an image that the caller owns */
    size_t n_bytes;
};

/* The table is sorted by name once everything has been opened, and never changes after.
 *
 * A file that shrinks while it is mapped makes reads past its new end fail with SIGBUS: the sizes
 * are checked when it is opened, and replacing a checkpoint must be done by renaming new files
 * into place (as every download tool does), never by writing into the old ones. */
struct checkpoint {
    struct checkpoint_table table;
    struct mapped_file *files;
    uint32_t n_files;
    uint64_t total_bytes;
    bool is_gguf, has_index;
    uint8_t *copies; /* of tensors that are misaligned in their files */
    struct gguf *gguf; /* GGUF checkpoints: the files, whose mappings this owns */
};

static int by_name(const void *a, const void *b)
{
    const struct checkpoint_entry *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->file > y->file) - (x->file < y->file);
}

static const struct checkpoint_entry *find_entry(const struct checkpoint *st, const char *name)
{
    size_t low = 0, high = st->table.n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(st->table.entries[middle].name, name);
        if (order == 0)
            return &st->table.entries[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* Sorts the table and refuses a name that two files hold. */
static int table_finish(struct checkpoint *st, struct quire_error *err)
{
    struct checkpoint_table *table = &st->table;
    if (table->n == 0)
        return quire_fail(err, QUIRE_INVALID, "%s: header: lists no tensors", st->files[0].name);
    qsort(table->entries, table->n, sizeof *table->entries, by_name);
    st->total_bytes = 0;
    for (size_t i = 0; i < table->n; i++) {
        const struct checkpoint_entry *e = &table->entries[i];
        if (i > 0 && strcmp(e->name, e[-1].name) == 0)
            return quire_fail(err, QUIRE_INVALID, "%.100s: tensor '%.150s': also in %.100s", st->files[e->file].name,
                              e->name, st->files[e[-1].file].name);
        st->total_bytes += e->end - e->begin;
    }
    return QUIRE_OK;
}

static int map_file(const char *dir, struct mapped_file *file, const char *listed_in, struct quire_error *err)
{
    char *path;
    if (asprintf(&path, "%s/%s", dir, file->name) < 0)
        return quire_fail(err, QUIRE_NO_MEMORY, "%s: out of memory", file->name);
    /* O_NONBLOCK, so that a FIFO put in a file's place cannot hold us. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int open_errno = errno;
    free(path);
    if (fd < 0) {
        enum quire_status status = open_errno == ENOENT ? QUIRE_NOT_FOUND : QUIRE_IO;
        errno = open_errno;
        return quire_fail(err, status, "%s: cannot be opened%s%s: %m", file->name,
                          listed_in ? ", though listed in " : "", listed_in ? listed_in : "");
    }

    int status = QUIRE_OK;
    struct stat info;
    if (fstat(fd, &info) != 0)
        status = quire_fail(err, QUIRE_IO, "%s: cannot be read: %m", file->name);
    else if (!S_ISREG(info.st_mode))
        status = quire_fail(err, QUIRE_INVALID, "%s: not a regular file", file->name);
    else if (info.st_size < 8)
        status = quire_fail(err, QUIRE_INVALID, "%s: header: the file ends before its 8-byte length (%lld bytes)",
                            file->name, (long long)info.st_size);
    else if ((uint64_t)info.st_size > SIZE_MAX / 2)
        status = quire_fail(err, QUIRE_UNSUPPORTED, "%s: too large to map", file->name);
    if (status == QUIRE_OK) {
        void *bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (bytes == MAP_FAILED) {
            status = quire_fail(err, QUIRE_IO, "%s: cannot be mapped: %m", file->name);
        } else {
            file->bytes = bytes;
            file->n_bytes = (size_t)info.st_size;
        }
    }
    close(fd);
    return status;
}

/* A shard lies in the directory itself, whatever the index says. */
static int shard_name_check(const char *name, struct quire_error *err)
{
    if (!checkpoint_is_printable(name))
        return quire_fail(err, QUIRE_INVALID,
                          INDEX_FILE ": weight_map: a file name has control"
                                     " characters");
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strchr(name, '/') || strlen(name) > 255)
        return quire_fail(err, QUIRE_INVALID,
                          INDEX_FILE ": weight_map: '%.150s' is not the plain name of a file in the"
                                     " directory",
                          name);
    return QUIRE_OK;
}

static int compare_strings(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Fills st->files with the distinct shard names of weight_map, sorted. */
static int list_shards(struct checkpoint *st, const json_t *weight_map, struct quire_error *err)
{
    const char *tensor;
    json_t *value;
    size_t n = 0;
    const char **names = calloc(json_object_size(weight_map), sizeof *names);
    if (!names)
        return quire_fail(err, QUIRE_NO_MEMORY, INDEX_FILE ": out of memory");

    int status = QUIRE_OK;
    json_object_foreach((json_t *)(uintptr_t)weight_map, tensor, value)
    {
        if (!json_is_string(value))
            status = quire_fail(err, QUIRE_INVALID, INDEX_FILE ": weight_map: every value must be a file name");
        else if (!checkpoint_is_printable(tensor))
            status = quire_fail(err, QUIRE_INVALID, INDEX_FILE ": weight_map: a tensor's name has control characters");
        else
            status = shard_name_check(json_string_value(value), err);
        if (status != QUIRE_OK)
            break;
        names[n++] = json_string_value(value);
    }
    if (status == QUIRE_OK) {
        size_t n_distinct = 0;
        qsort(names, n, sizeof *names, compare_strings);
        for (size_t i = 0; i < n; i++)
            if (i == 0 || strcmp(names[i], names[n_distinct - 1]) != 0)
                names[n_distinct++] = names[i];
        if (n_distinct > MAX_FILES)
            status = quire_fail(err, QUIRE_INVALID, INDEX_FILE ": weight_map: more than %d files", MAX_FILES);
        else if (!(st->files = calloc(n_distinct, sizeof *st->files)))
            status = quire_fail(err, QUIRE_NO_MEMORY, INDEX_FILE ": out of memory");
        for (size_t i = 0; status == QUIRE_OK && i < n_distinct; i++) {
            st->files[i].name = strdup(names[i]);
            st->n_files++;
            if (!st->files[i].name)
                status = quire_fail(err, QUIRE_NO_MEMORY, INDEX_FILE ": out of memory");
        }
    }
    free(names);
    return status;
}

/* Every tensor of the index must be in the shard that it names. */
static int index_check(const struct checkpoint *st, const json_t *weight_map, struct quire_error *err)
{
    const char *tensor;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)weight_map, tensor, value)
    {
        const struct checkpoint_entry *entry = find_entry(st, tensor);
        const char *shard = json_string_value(value);
        if (!entry || strcmp(st->files[entry->file].name, shard) != 0)
            return quire_fail(err, QUIRE_INVALID, INDEX_FILE ": weight_map: tensor '%.150s' is not in %.150s", tensor,
                              shard);
    }
    return QUIRE_OK;
}

/* Drops the tensors of a file that weight_map does not assign to it, from entry `first` on: what a merge left in its place, or
 * another shard's. */
static void keep_assigned(struct checkpoint *st, uint32_t file, size_t first, const json_t *weight_map)
{
    struct checkpoint_table *table = &st->table;
    size_t n = first;
    for (size_t i = first; i < table->n; i++) {
        const char *shard = json_string_value(json_object_get(weight_map, table->entries[i].name));
        if (shard && strcmp(shard, st->files[file].name) == 0)
            table->entries[n++] = table->entries[i];
        else
            free(table->entries[i].name);
    }
    table->n = n;
}

/* weight_map: of an index, which then says what each file has, or NULL. */
static int open_files(struct checkpoint *st, const char *dir, const json_t *weight_map, struct quire_error *err)
{
    const char *listed_in = weight_map ? INDEX_FILE : NULL;
    for (uint32_t i = 0; i < st->n_files; i++) {
        struct mapped_file *file = &st->files[i];
        const size_t first = st->table.n;
        int status = map_file(dir, file, listed_in, err);
        if (status == QUIRE_OK)
            status = checkpoint_add_safetensors(&st->table, file->bytes, file->n_bytes, i, file->name, err);
        if (status != QUIRE_OK)
            return status;
        if (weight_map)
            keep_assigned(st, i, first, weight_map);
    }
    if (weight_map && st->table.entries && st->table.n == 0)
        return index_check(st, weight_map, err); /* none is where the index says */
    return table_finish(st, err);
}

static int open_index(struct checkpoint *st, const char *dir, const char *index_path, struct quire_error *err)
{
    json_t *index, *weight_map = NULL;
    st->has_index = true;
    int status = quire_json_read_python_file(index_path, MAX_INDEX_BYTES, &index, err);
    if (status != QUIRE_OK)
        return status;
    if (!json_is_object(index))
        status = quire_fail(err, QUIRE_INVALID, INDEX_FILE ": must be a JSON object");
    else
        status = quire_json_object(index, INDEX_FILE, "weight_map", &weight_map, err);
    if (status == QUIRE_OK && (!weight_map || json_object_size(weight_map) == 0))
        status = quire_fail(err, QUIRE_INVALID, INDEX_FILE ": weight_map: is missing or empty");
    if (status == QUIRE_OK)
        status = list_shards(st, weight_map, err);
    if (status == QUIRE_OK)
        status = open_files(st, dir, weight_map, err);
    if (status == QUIRE_OK)
        status = index_check(st, weight_map, err);
    json_decref(index);
    return status;
}

/* ---- GGUF ------------------------------------------------------------------------------------ */

static int open_gguf(struct checkpoint *st, const char *path, struct quire_error *err)
{
    st->is_gguf = true;
    int status = gguf_open_model(path, &st->gguf, err);
    uint32_t n = 0;
    for (const struct gguf *g = st->gguf; g; g = gguf_next(g))
        n++;
    if (status == QUIRE_OK && !(st->files = calloc(n, sizeof *st->files)))
        status = quire_fail(err, QUIRE_NO_MEMORY, "checkpoint: out of memory");
    for (const struct gguf *g = st->gguf; status == QUIRE_OK && g; g = gguf_next(g)) {
        const uint32_t i = st->n_files++;
        st->files[i].name = strdup(gguf_name(g));
        status = st->files[i].name ? checkpoint_add_gguf(&st->table, g, st->gguf, i, err)
                                   : quire_fail(err, QUIRE_NO_MEMORY, "%s: out of memory", gguf_name(g));
    }
    return status == QUIRE_OK ? table_finish(st, err) : status;
}

/* One file without an index: the checkpoint's only one, or the caller's image. */
static int single_file(struct checkpoint *st, const char *name, struct quire_error *err)
{
    st->files = calloc(1, sizeof *st->files);
    if (st->files)
        st->files[0].name = strdup(name);
    if (!st->files || !st->files[0].name)
        return quire_fail(err, QUIRE_NO_MEMORY, "%s: out of memory", name);
    st->n_files = 1;
    return QUIRE_OK;
}

static int open_directory(struct checkpoint *st, const char *dir, struct quire_error *err)
{
    char *single, *index;
    if (asprintf(&single, "%s/" SINGLE_FILE, dir) < 0)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (asprintf(&index, "%s/" INDEX_FILE, dir) < 0) {
        free(single);
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    struct stat info;
    int status;
    if (stat(single, &info) == 0) {
        status = single_file(st, SINGLE_FILE, err);
        if (status == QUIRE_OK)
            status = open_files(st, dir, NULL, err);
    } else if (stat(index, &info) == 0) {
        status = open_index(st, dir, index, err);
    } else {
        status = quire_fail(err, QUIRE_NOT_FOUND, "%.300s: has neither " SINGLE_FILE " nor " INDEX_FILE, dir);
    }
    free(single);
    free(index);
    return status;
}

int checkpoint_open(const char *model, struct checkpoint **out, struct quire_error *err)
{
    *out = NULL;
    struct checkpoint *st = calloc(1, sizeof *st);
    if (!st)
        return quire_fail(err, QUIRE_NO_MEMORY, "checkpoint: out of memory");
    int status = model_is_gguf(model) ? open_gguf(st, model, err) : open_directory(st, model, err);
    if (status != QUIRE_OK) {
        checkpoint_close(st);
        return status;
    }
    *out = st;
    return QUIRE_OK;
}

static int prefix_names(struct checkpoint_table *table, size_t from, const char *prefix, struct quire_error *err)
{
    for (size_t i = from; i < table->n; i++) {
        char *name;
        if (asprintf(&name, "%s%s", prefix, table->entries[i].name) < 0)
            return quire_fail(err, QUIRE_NO_MEMORY, "checkpoint: out of memory");
        free(table->entries[i].name);
        table->entries[i].name = name;
    }
    return QUIRE_OK;
}

int checkpoint_add_folder(struct checkpoint *st, const char *model, const char *folder, const char *prefix,
                          struct quire_error *err)
{
    const size_t n = st->table.n;
    struct mapped_file *files = realloc(st->files, (st->n_files + 1) * sizeof *files);
    if (!files)
        return quire_fail(err, QUIRE_NO_MEMORY, "checkpoint: out of memory");
    st->files = files;
    struct mapped_file *file = &files[st->n_files];
    *file = (struct mapped_file){.bytes = NULL};
    if (asprintf(&file->name, "%s/" SINGLE_FILE, folder) < 0)
        return quire_fail(err, QUIRE_NO_MEMORY, "checkpoint: out of memory");
    const uint32_t i = st->n_files++;
    int status = map_file(model, file, NULL, err);
    if (status == QUIRE_OK)
        status = checkpoint_add_safetensors(&st->table, file->bytes, file->n_bytes, i, file->name, err);
    if (status == QUIRE_OK)
        status = prefix_names(&st->table, n, prefix, err);
    return status == QUIRE_OK ? table_finish(st, err) : status;
}

int checkpoint_take_text_names(struct checkpoint *st, struct quire_error *err)
{
    static const struct {
        const char *whole, *alone;
    } names[] = {{"language_model.model.", "model."},
                 {"language_model.lm_head.", "lm_head."},
                 {"model.language_model.", "model."}};
    for (size_t i = 0; i < st->table.n; i++) {
        char *name = st->table.entries[i].name;
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            const size_t n = strlen(names[k].whole), n_alone = strlen(names[k].alone);
            if (strncmp(name, names[k].whole, n) != 0)
                continue;
            memmove(name + n_alone, name + n, strlen(name + n) + 1); /* it becomes shorter */
            memcpy(name, names[k].alone, n_alone);
            break;
        }
    }
    return table_finish(st, err);
}

int checkpoint_open_memory(const void *data, size_t n_bytes, struct checkpoint **out, struct quire_error *err)
{
    *out = NULL;
    struct checkpoint *st = calloc(1, sizeof *st);
    if (!st)
        return quire_fail(err, QUIRE_NO_MEMORY, "checkpoint: out of memory");
    int status = single_file(st, SINGLE_FILE, err);
    if (status == QUIRE_OK)
        status = checkpoint_add_safetensors(&st->table, data, n_bytes, 0, SINGLE_FILE, err);
    if (status == QUIRE_OK)
        status = table_finish(st, err);
    if (status != QUIRE_OK) {
        checkpoint_close(st);
        return status;
    }
    *out = st;
    return QUIRE_OK;
}

void checkpoint_close(struct checkpoint *st)
{
    if (!st)
        return;
    checkpoint_table_free(&st->table);
    for (uint32_t i = 0; i < st->n_files; i++) {
        if (st->files[i].bytes)
            munmap(st->files[i].bytes, st->files[i].n_bytes);
        free(st->files[i].name);
    }
    free(st->files);
    free(st->copies);
    gguf_close(st->gguf);
    free(st);
}

void checkpoint_drop_pages(const struct checkpoint *st)
{
    for (uint32_t i = 0; i < st->n_files; i++)
        if (st->files[i].bytes)
            madvise(st->files[i].bytes, st->files[i].n_bytes, MADV_DONTNEED);
    gguf_drop_pages(st->gguf);
}

static uint64_t copy_bytes(const struct checkpoint_entry *e)
{
    return e->misaligned ? (e->end - e->begin + COPY_ALIGN - 1) / COPY_ALIGN * COPY_ALIGN : 0;
}

uint64_t checkpoint_misaligned_bytes(const struct checkpoint *st)
{
    uint64_t n = 0;
    for (size_t i = 0; i < st->table.n; i++)
        n += copy_bytes(&st->table.entries[i]);
    return n;
}

int checkpoint_align(struct checkpoint *st, struct quire_error *err)
{
    const uint64_t n_bytes = checkpoint_misaligned_bytes(st);
    if (n_bytes == 0 || st->copies)
        return QUIRE_OK;
    st->copies = aligned_alloc(COPY_ALIGN, n_bytes);
    if (!st->copies)
        return quire_fail(err, QUIRE_NO_MEMORY, "weights: %llu bytes for misaligned tensors cannot be allocated",
                          (unsigned long long)n_bytes);
    uint8_t *to = st->copies;
    for (size_t i = 0; i < st->table.n; i++) {
        struct checkpoint_entry *e = &st->table.entries[i];
        if (!e->misaligned)
            continue;
        memcpy(to, e->data, e->end - e->begin);
        e->data = to;
        to += copy_bytes(e);
    }
    return QUIRE_OK;
}

static int missing(const struct checkpoint *st, const char *name, struct quire_error *err)
{
    return quire_fail(err, QUIRE_NOT_FOUND, "%.100s: tensor '%.150s' is missing",
                      st->has_index ? INDEX_FILE : st->files[0].name, name);
}

static void put_tensor(const struct checkpoint *st, const struct checkpoint_entry *entry, struct checkpoint_tensor *out)
{
    out->name = entry->name;
    out->file = st->files[entry->file].name;
    out->dtype = entry->dtype_name;
    out->format = entry->format;
    out->n_dims = entry->n_dims;
    memcpy(out->shape, entry->shape, sizeof out->shape);
    out->data = entry->data;
    out->interleaved = entry->interleaved;
    out->n_bytes = entry->end - entry->begin;
}

static int give_tensor(const struct checkpoint *st, const struct checkpoint_entry *entry, struct checkpoint_tensor *out,
                       struct quire_error *err)
{
    if (entry->n_dims > CHECKPOINT_MAX_DIMS)
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          "%.100s: tensor '%.150s': shape: %u dimensions, at most %d are supported",
                          st->files[entry->file].name, entry->name, entry->n_dims, CHECKPOINT_MAX_DIMS);
    put_tensor(st, entry, out);
    return QUIRE_OK;
}

bool checkpoint_at(const struct checkpoint *st, size_t i, struct checkpoint_tensor *out)
{
    memset(out, 0, sizeof *out);
    if (i >= st->table.n)
        return false;
    put_tensor(st, &st->table.entries[i], out);
    return true;
}

int checkpoint_find_any(const struct checkpoint *st, const char *name, struct checkpoint_tensor *out,
                        struct quire_error *err)
{
    const struct checkpoint_entry *entry = find_entry(st, name);
    memset(out, 0, sizeof *out);
    return entry ? give_tensor(st, entry, out, err) : missing(st, name, err);
}

int checkpoint_find(const struct checkpoint *st, const char *name, struct checkpoint_tensor *out,
                    struct quire_error *err)
{
    const struct checkpoint_entry *entry = find_entry(st, name);
    memset(out, 0, sizeof *out);
    if (!entry)
        return missing(st, name, err);
    if (!entry->usable)
        return quire_fail(err, QUIRE_UNSUPPORTED, "%.100s: tensor '%.150s': %s: %s is not supported (%s are)",
                          st->files[entry->file].name, name, st->is_gguf ? "type" : "dtype", entry->dtype_name,
                          st->is_gguf
                              ? "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL, IQ4_XS and MXFP4"
                              : "F32, F16 and BF16");
    return give_tensor(st, entry, out, err);
}

/* ---- the digest ------------------------------------------------------------------------------ */

#define DIGEST_PIECE_BYTES 4096u
#define DIGEST_MAX_PIECES 8u /* of one tensor, unless all bytes are hashed */
#define DIGEST_ALL_PIECES 4096u /* about so many in all: 16 MiB are hashed in 0.1 s */
#define DIGEST_DROPS_AFTER 16 /* tensors: with each piece of them the kernel maps 64 KiB, together 8 MiB */

/* So many that they cover each tensor, if all tensors together have no more bytes than the pieces may have. */
static uint64_t digest_pieces(const struct checkpoint *st)
{
    if (st->total_bytes <= (uint64_t)DIGEST_ALL_PIECES * DIGEST_PIECE_BYTES)
        return DIGEST_ALL_PIECES;
    uint64_t n = DIGEST_ALL_PIECES / st->table.n;
    return n > DIGEST_MAX_PIECES ? DIGEST_MAX_PIECES : n ? n : 1;
}

/* Piece i of n of a tensor that is longer than all of them. */
static const uint8_t *digest_piece(const struct checkpoint_entry *e, uint64_t n, uint64_t i)
{
    return e->data + (e->end - e->begin - DIGEST_PIECE_BYTES) / (2 * n) * (2 * i + 1);
}

/* All of them are asked for before the first is waited for: a disk then works on many at once. */
static void digest_prefetch(const struct checkpoint *st, uint64_t n)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (size_t t = 0; t < st->table.n; t++) {
        const struct checkpoint_entry *e = &st->table.entries[t];
        for (uint64_t i = 0; e->end - e->begin > n * DIGEST_PIECE_BYTES && i < n; i++) {
            uintptr_t from = (uintptr_t)digest_piece(e, n, i);
            posix_madvise((void *)(from / page * page), from % page + DIGEST_PIECE_BYTES, POSIX_MADV_WILLNEED);
        }
    }
}

static void digest_u64(struct quire_sha256_state *s, uint64_t value)
{
    uint8_t bytes[8];
    for (size_t i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(value >> 8 * i);
    quire_sha256_add(s, bytes, sizeof bytes);
}

static void digest_text(struct quire_sha256_state *s, const char *text)
{
    digest_u64(s, strlen(text));
    quire_sha256_add(s, text, strlen(text));
}

struct key256 checkpoint_digest(const struct checkpoint *st, bool keeps_pages)
{
    const uint64_t n_pieces = digest_pieces(st);
    struct quire_sha256_state s;
    digest_prefetch(st, n_pieces);
    quire_sha256_begin(&s);
    digest_text(&s, "quire weights 1");
    digest_u64(&s, st->table.n);
    for (size_t t = 0; t < st->table.n; t++) {
        const struct checkpoint_entry *e = &st->table.entries[t];
        const uint64_t n_bytes = e->end - e->begin;
        const uint32_t n_dims = e->n_dims < CHECKPOINT_MAX_DIMS ? e->n_dims : CHECKPOINT_MAX_DIMS;
        if (!keeps_pages && t % DIGEST_DROPS_AFTER == 0)
            checkpoint_drop_pages(st);
        digest_text(&s, e->name);
        digest_text(&s, e->dtype_name);
        digest_u64(&s, n_dims);
        for (uint32_t d = 0; d < n_dims; d++)
            digest_u64(&s, e->shape[d]);
        digest_u64(&s, n_bytes);
        if (n_bytes <= n_pieces * DIGEST_PIECE_BYTES) {
            quire_sha256_add(&s, e->data, n_bytes);
            continue;
        }
        for (uint64_t i = 0; i < n_pieces; i++)
            quire_sha256_add(&s, digest_piece(e, n_pieces, i), DIGEST_PIECE_BYTES);
    }
    if (!keeps_pages)
        checkpoint_drop_pages(st);
    return quire_sha256_now(&s);
}

uint64_t checkpoint_total_bytes(const struct checkpoint *st)
{
    return st->total_bytes;
}

uint32_t checkpoint_n_files(const struct checkpoint *st)
{
    return st->n_files;
}

bool checkpoint_is_gguf(const struct checkpoint *st)
{
    return st->is_gguf;
}
