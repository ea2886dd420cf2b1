#include "tools/hub/blob.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HASH_UNITS 4 /* per call: some 10 ms, so that connections are served in between */

bool hub_etag_parse(const char *header, char out[HUB_ETAG_BYTES])
{
    if (strncmp(header, "W/", 2) == 0)
        header += 2;
    size_t n = strlen(header);
    if (n >= 2 && header[0] == '"' && header[n - 1] == '"') {
        header++;
        n -= 2;
    }
    if (n < 8 || n >= HUB_ETAG_BYTES)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)header[i]) && header[i] != '-' && header[i] != '_')
            return false;
    memcpy(out, header, n);
    out[n] = 0;
    return true;
}

static uint64_t unit_bytes(const struct hub_blob *b, uint32_t unit)
{
    return unit + 1 < b->n_units ? HUB_UNIT_BYTES : b->size_bytes - (uint64_t)unit * HUB_UNIT_BYTES;
}

static int io_failed(const struct hub_blob *b, const char *what, struct quire_error *err)
{
    return quire_fail(err, QUIRE_IO, "%.350s: %s: %m", b->part, what);
}

static int write_all(const struct hub_blob *b, const void *bytes, uint64_t n, uint64_t at, struct quire_error *err)
{
    while (n > 0) {
        ssize_t wrote = pwrite(b->fd, bytes, n, (off_t)at);
        if (wrote < 0 && errno != EINTR)
            return io_failed(b, "cannot be written", err);
        if (wrote > 0) {
            bytes = (const char *)bytes + wrote;
            n -= (uint64_t)wrote;
            at += (uint64_t)wrote;
        }
    }
    return QUIRE_OK;
}

static int read_all(const struct hub_blob *b, void *out, uint64_t n, uint64_t at, struct quire_error *err)
{
    for (uint64_t done = 0; done < n;) {
        ssize_t got = pread(b->fd, (char *)out + done, n - done, (off_t)(at + done));
        if (got == 0 || (got < 0 && errno != EINTR))
            return io_failed(b, "cannot be read", err);
        done += got > 0 ? (uint64_t)got : 0;
    }
    return QUIRE_OK;
}

/* ---- opening ---- */

/* Reads the units that an earlier pull stored. A file of exactly the content's size was complete when its process
 * ended. */
static int read_units(struct hub_blob *b, struct quire_error *err)
{
    struct stat info;
    if (fstat(b->fd, &info) != 0)
        return io_failed(b, "cannot be examined", err);
    b->present_bytes = 0;
    if ((uint64_t)info.st_size == b->size_bytes) {
        memset(b->units, 1, b->n_units);
    } else if ((uint64_t)info.st_size != b->size_bytes + b->n_units) {
        return hub_blob_restart(b, err);
    } else {
        int status = read_all(b, b->units, b->n_units, b->size_bytes, err);
        if (status != QUIRE_OK)
            return status;
    }
    if (ftruncate(b->fd, (off_t)(b->size_bytes + b->n_units)) != 0)
        return io_failed(b, "cannot be extended", err);
    for (uint32_t i = 0; i < b->n_units; i++) {
        b->units[i] = b->units[i] == 1 ? HUB_UNIT_THERE : HUB_UNIT_MISSING;
        b->present_bytes += b->units[i] == HUB_UNIT_THERE ? unit_bytes(b, i) : 0;
    }
    return QUIRE_OK;
}

int hub_blob_open(struct hub_blob *b, const char *repo, const char *etag, uint64_t size_bytes, struct quire_error *err)
{
    struct stat info;
    *b = (struct hub_blob){.fd = -1, .size_bytes = size_bytes};
    if (size_bytes > HUB_MAX_BLOB_BYTES)
        return quire_fail(err, QUIRE_INVALID, "%llu bytes are more than the largest file size",
                          (unsigned long long)size_bytes);
    snprintf(b->etag, sizeof b->etag, "%s", etag);
    b->has_sha256 = strlen(etag) == 64 && strspn(etag, "0123456789abcdef") == 64;
    b->n_units = (uint32_t)((size_bytes + HUB_UNIT_BYTES - 1) / HUB_UNIT_BYTES);
    b->units = calloc((size_t)b->n_units + 1, 1);
    if (asprintf(&b->path, "%s/blobs/%s", repo, etag) < 0)
        b->path = NULL;
    if (!b->path || asprintf(&b->part, "%s.quire.incomplete", b->path) < 0)
        b->part = NULL;
    if (!b->units || !b->part) {
        hub_blob_close(b);
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    quire_sha256_begin(&b->sha256);
    if (stat(b->path, &info) == 0 && S_ISREG(info.st_mode) && (uint64_t)info.st_size == size_bytes) {
        b->done = true;
        b->present_bytes = size_bytes;
        return QUIRE_OK;
    }
    b->fd = open(b->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    int status = b->fd < 0 ? io_failed(b, "cannot be created", err) : read_units(b, err);
    if (status != QUIRE_OK)
        hub_blob_close(b);
    return status;
}

void hub_blob_close(struct hub_blob *b)
{
    if (b->fd >= 0) {
        if (b->present_bytes == 0)
            unlink(b->part);
        close(b->fd);
    }
    free(b->units);
    free(b->path);
    free(b->part);
    *b = (struct hub_blob){.fd = -1};
}

int hub_blob_restart(struct hub_blob *b, struct quire_error *err)
{
    memset(b->units, HUB_UNIT_MISSING, b->n_units);
    b->present_bytes = 0;
    b->n_hashed = 0;
    quire_sha256_begin(&b->sha256);
    if (ftruncate(b->fd, 0) != 0 || ftruncate(b->fd, (off_t)(b->size_bytes + b->n_units)) != 0)
        return io_failed(b, "cannot be restarted", err);
    return QUIRE_OK;
}

void hub_blob_discard(struct hub_blob *b)
{
    b->present_bytes = 0;
    hub_blob_close(b);
}

/* ---- gathering ---- */

bool hub_blob_ask(struct hub_blob *b, uint64_t max_bytes, uint64_t *begin, uint64_t *end)
{
    uint32_t first = 0, n = 0;
    while (first < b->n_units && b->units[first] != HUB_UNIT_MISSING)
        first++;
    if (first == b->n_units)
        return false;
    while (first + n < b->n_units && b->units[first + n] == HUB_UNIT_MISSING &&
           (n + 1) * (uint64_t)HUB_UNIT_BYTES <= max_bytes)
        b->units[first + n++] = HUB_UNIT_ASKED;
    *begin = (uint64_t)first * HUB_UNIT_BYTES;
    *end = first + n < b->n_units ? *begin + (uint64_t)n * HUB_UNIT_BYTES : b->size_bytes;
    return true;
}

void hub_blob_unask(struct hub_blob *b, uint64_t begin, uint64_t end)
{
    for (uint64_t at = begin; at < end; at += HUB_UNIT_BYTES)
        if (b->units[at / HUB_UNIT_BYTES] == HUB_UNIT_ASKED)
            b->units[at / HUB_UNIT_BYTES] = HUB_UNIT_MISSING;
}

int hub_blob_write(struct hub_blob *b, uint64_t at, const void *bytes, uint64_t n, struct quire_error *err)
{
    static const uint8_t there = 1;
    int status = write_all(b, bytes, n, at, err);
    for (uint64_t unit = at / HUB_UNIT_BYTES; status == QUIRE_OK && unit < b->n_units; unit++) {
        uint64_t unit_end = unit * HUB_UNIT_BYTES + unit_bytes(b, (uint32_t)unit);
        if (at + n < unit_end)
            break;
        if (b->units[unit] == HUB_UNIT_THERE)
            continue;
        status = write_all(b, &there, 1, b->size_bytes + unit, err);
        b->units[unit] = HUB_UNIT_THERE;
        b->present_bytes += unit_bytes(b, (uint32_t)unit);
    }
    return status;
}

/* ---- the end ---- */

int hub_blob_hash_some(struct hub_blob *b, struct quire_error *err)
{
    static uint8_t chunk[HUB_UNIT_BYTES];
    for (int i = 0; i < HASH_UNITS && b->n_hashed < b->n_units && b->units[b->n_hashed] == HUB_UNIT_THERE; i++) {
        uint64_t at = (uint64_t)b->n_hashed * HUB_UNIT_BYTES, n = unit_bytes(b, b->n_hashed);
        if (b->has_sha256) {
            int status = read_all(b, chunk, n, at, err);
            if (status != QUIRE_OK)
                return status;
            quire_sha256_add(&b->sha256, chunk, n);
        }
        /* Starts writing to disk now, so that the final fdatasync() has little to do. */
        sync_file_range(b->fd, (off64_t)at, (off64_t)n, SYNC_FILE_RANGE_WRITE);
        b->n_hashed++;
    }
    return QUIRE_OK;
}

bool hub_blob_is_whole(const struct hub_blob *b)
{
    return b->n_hashed == b->n_units;
}

int hub_blob_finish(struct hub_blob *b, struct quire_error *err)
{
    char hex[65];
    struct key256 hash = quire_sha256_now(&b->sha256);
    quire_key256_hex(&hash, hex);
    if (b->has_sha256 && strcmp(hex, b->etag) != 0)
        return quire_fail(err, QUIRE_INVALID,
                          "the downloaded data has the SHA-256 %.12s..., but the hub says "
                          "%.12s...",
                          hex, b->etag);
    if (ftruncate(b->fd, (off_t)b->size_bytes) != 0 || fdatasync(b->fd) != 0)
        return io_failed(b, "cannot be completed", err);
    if (rename(b->part, b->path) != 0)
        return io_failed(b, "cannot be renamed", err);
    close(b->fd);
    b->fd = -1;
    b->done = true;
    return QUIRE_OK;
}
