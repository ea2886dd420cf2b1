#include "engine/model/quantization/repack_cache.h"

#include "base/log.h"
#include "engine/model/quantization/row_threads.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_BYTES 4096u /* so that rows begin on a page */
#define PIECE_BYTES ((uint64_t)1 << 20)
#define PATH_BYTES 4096u

static const char magic[16] = "quire rows";

struct header {
    char magic[16];
    struct key256 key, rows;
    uint64_t n_bytes;
};

/* ---- hashes ------------------------------------------------------------------------------------------------------- */

struct hashing {
    const uint8_t *rows;
    uint64_t n_bytes;
    struct key256 *pieces;
};

static void hash_pieces(void *context, uint32_t share, uint32_t first, uint32_t last)
{
    const struct hashing *h = context;
    (void)share;
    for (uint32_t i = first; i < last; i++) {
        const uint64_t at = i * PIECE_BYTES, left = h->n_bytes - at;
        h->pieces[i] = quire_labelled_hash(magic, h->rows + at, left < PIECE_BYTES ? left : PIECE_BYTES);
    }
}

/* Hashes pieces on several threads: one core hashes 1 GB per second. */
static bool hash_rows(const void *rows, uint64_t n_bytes, uint32_t n_threads, struct key256 *out)
{
    const uint64_t n = (n_bytes + PIECE_BYTES - 1) / PIECE_BYTES;
    struct hashing h = {rows, n_bytes, n <= UINT32_MAX ? malloc(n * sizeof *h.pieces + 1) : NULL};
    if (!h.pieces)
        return false;
    row_threads_run((uint32_t)n, 1, n_bytes, n_threads, hash_pieces, &h);
    *out = quire_sha256(h.pieces, n * sizeof *h.pieces);
    free(h.pieces);
    return true;
}

/* ---- the key ------------------------------------------------------------------------------------------------------ */

static int is_of_model(const struct dirent *e)
{
    const char *end = strrchr(e->d_name, '.');
    return end && (strcmp(end, ".safetensors") == 0 || strcmp(end, ".json") == 0 || strcmp(end, ".gguf") == 0);
}

static void add(struct quire_sha256_state *to, const char *text)
{
    quire_sha256_add(to, text, strlen(text));
}

static void add_file(struct quire_sha256_state *to, const char *dir, const char *name)
{
    char path[PATH_BYTES], line[NAME_MAX + 80];
    struct stat about = {0};
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (stat(name[0] ? path : dir, &about) != 0)
        return;
    snprintf(line, sizeof line, "file=%s %llu %lld.%09ld\n", name, (unsigned long long)about.st_size,
             (long long)about.st_mtim.tv_sec, about.st_mtim.tv_nsec);
    add(to, line);
}

/* The digest reads a part of each tensor; times and sizes see what it does not. */
static struct key256 key_of(const struct repack_source *s, uint64_t n_bytes)
{
    char digest[65], description[65], line[320];
    struct dirent **names = NULL;
    struct quire_sha256_state state;
    quire_key256_hex(&s->checkpoint, digest);
    quire_key256_hex(&s->description, description);
    snprintf(line, sizeof line, "version=%u\ncheckpoint=%s\ndescription=%s\nmade=%s\nbytes=%llu\n", REPACK_VERSION,
             digest, description, s->made, (unsigned long long)n_bytes);
    quire_sha256_begin(&state);
    add(&state, line);
    if (s->end_layer > 0) {
        snprintf(line, sizeof line, "layers=%u-%u\n", s->first_layer, s->end_layer);
        add(&state, line);
    }
    if (s->n_ranks > 0) {
        snprintf(line, sizeof line, "rank=%u of %u\n", s->rank, s->n_ranks);
        add(&state, line);
    }
    const int n = scandir(s->model, &names, is_of_model, alphasort);
    if (n < 0)
        add_file(&state, s->model, "");
    for (int i = 0; i < n; i++) {
        add_file(&state, s->model, names[i]->d_name);
        free(names[i]);
    }
    free(names);
    return quire_sha256_now(&state);
}

static bool path_of(const struct repack_source *s, const struct key256 *key, char out[PATH_BYTES])
{
    char hex[65];
    quire_key256_hex(key, hex);
    return snprintf(out, PATH_BYTES, "%s/%.32s.rows", s->dir, hex) < (int)PATH_BYTES - 8;
}

/* ---- public functions
 * --------------------------------------------------------------------------------------------- */

/* NULL, or what is wrong with the file that *map became. */
static const char *check(const struct header *h, const struct key256 *key, uint64_t n_bytes, uint32_t n_threads)
{
    struct key256 seen;
    if (memcmp(h->magic, magic, sizeof magic) != 0)
        return "is not a file of repacked rows";
    if (memcmp(&h->key, key, sizeof *key) != 0 || h->n_bytes != n_bytes)
        return "was made from another checkpoint or by another version";
    if (!hash_rows((const uint8_t *)h + HEADER_BYTES, n_bytes, n_threads, &seen))
        return "cannot be checked";
    return memcmp(&seen, &h->rows, sizeof seen) == 0 ? NULL : "is damaged: its hash does not match";
}

/* NULL and *why: what is there is not used. */
static const struct header *map_file(int fd, const struct key256 *key, uint64_t n_bytes, uint32_t n_threads,
                                     const char **why)
{
    struct stat about;
    *why = "is truncated, or longer than its header says";
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) || (uint64_t)about.st_size != HEADER_BYTES + n_bytes)
        return NULL;
    void *map = mmap(NULL, HEADER_BYTES + n_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    *why = "cannot be mapped";
    if (map == MAP_FAILED)
        return NULL;
    *why = check(map, key, n_bytes, n_threads);
    if (*why)
        munmap(map, HEADER_BYTES + n_bytes);
    return *why ? NULL : map;
}

int repack_find(const struct repack_source *source, uint64_t n_bytes, const void **rows, struct quire_error *err)
{
    char path[PATH_BYTES], aside[PATH_BYTES + 4];
    struct stat about;
    const char *why;
    *rows = NULL;
    if (stat(source->dir, &about) != 0 || !S_ISDIR(about.st_mode))
        return quire_fail(err, QUIRE_INVALID, "--repack-cache %.300s: is not a directory", source->dir);
    const struct key256 key = key_of(source, n_bytes);
    if (!path_of(source, &key, path))
        return quire_fail(err, QUIRE_INVALID, "--repack-cache: the path is too long");
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        if (errno != ENOENT)
            quire_log(QUIRE_LOG_WARN, "engine", "--repack-cache: %s cannot be read: %s", path, strerror(errno));
        return QUIRE_OK;
    }
    const struct header *h = map_file(fd, &key, n_bytes, source->n_threads, &why);
    close(fd);
    if (h) {
        *rows = (const uint8_t *)h + HEADER_BYTES;
        return QUIRE_OK;
    }
    snprintf(aside, sizeof aside, "%s.bad", path);
    const bool is_aside = rename(path, aside) == 0;
    quire_log(QUIRE_LOG_WARN, "engine", "--repack-cache: %s %s, so it is not used%s", path, why,
              is_aside ? " and was renamed to .bad" : "");
    return QUIRE_OK;
}

void repack_unmap(const void *rows, uint64_t n_bytes)
{
    if (rows)
        munmap((void *)((uintptr_t)rows - HEADER_BYTES), HEADER_BYTES + n_bytes);
}

static bool write_all(int fd, const void *data, uint64_t n)
{
    const uint8_t *p = data;
    while (n) {
        const ssize_t wrote = write(fd, p, n < PIECE_BYTES ? n : PIECE_BYTES);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return false;
        p += wrote;
        n -= (uint64_t)wrote;
    }
    return true;
}

void repack_keep(const struct repack_source *source, const void *rows, uint64_t n_bytes)
{
    char path[PATH_BYTES], part[PATH_BYTES + 8];
    union {
        struct header header;
        uint8_t bytes[HEADER_BYTES];
    } first = {.header = {.key = key_of(source, n_bytes), .n_bytes = n_bytes}};
    memcpy(first.header.magic, magic, sizeof magic);
    if (!path_of(source, &first.header.key, path) || !hash_rows(rows, n_bytes, source->n_threads, &first.header.rows))
        return;
    snprintf(part, sizeof part, "%s.XXXXXX", path);
    const int fd = mkstemp(part);
    bool is_kept = fd >= 0 && write_all(fd, &first, sizeof first) && write_all(fd, rows, n_bytes) && fsync(fd) == 0;
    int why = errno;
    if (fd >= 0)
        close(fd);
    if (is_kept && rename(part, path) != 0) {
        why = errno;
        is_kept = false;
    }
    if (is_kept)
        return;
    if (fd >= 0)
        unlink(part);
    quire_log(QUIRE_LOG_WARN, "engine", "--repack-cache: %s cannot be written: %s", path, strerror(why));
}
