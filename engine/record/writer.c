#include "engine/record/writer.h"

#include "base/log.h"
#include "engine/record/format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

struct record_writer {
    char *path;
    int fd;
    bool ended; /* a write failed, or memory ran out: the recording has ended */

    /* The sum of the last record in the file, then records that are not in the file yet. */
    uint8_t *bytes;
    size_t n, capacity;
    size_t n_in_file; /* the first n_in_file of bytes[0..n) are in the file */
    size_t record;    /* offset of the record under construction */
};

/* ---- bytes ----------------------------------------------------------------------------------- */

void record_stop(struct record_writer *w, const char *why)
{
    if (!w->ended)
        quire_log(QUIRE_LOG_ERROR, "record", "%s: %s; the recording ends here, the engine goes on", w->path, why);
    w->ended = true;
}

bool record_has_ended(const struct record_writer *w)
{
    return w->ended;
}

/* Returns space for n more bytes, or NULL if the recording has ended. */
static uint8_t *extend(struct record_writer *w, size_t n)
{
    if (w->ended)
        return NULL;
    if (w->capacity - w->n < n) {
        size_t capacity = 2 * (w->n + n);
        uint8_t *bytes = realloc(w->bytes, capacity);
        if (!bytes) {
            record_stop(w, "out of memory");
            return NULL;
        }
        w->bytes = bytes;
        w->capacity = capacity;
    }
    w->n += n;
    return w->bytes + w->n - n;
}

void record_reserve(struct record_writer *w, size_t n)
{
    const size_t before = w->n;
    extend(w, n);
    w->n = before;
}

void record_put_bytes(struct record_writer *w, const void *data, size_t n)
{
    uint8_t *out = extend(w, n);
    if (out && n)
        memcpy(out, data, n);
}

void record_put_u8(struct record_writer *w, uint8_t value)
{
    record_put_bytes(w, &value, 1);
}

void record_put_u32(struct record_writer *w, uint32_t value)
{
    uint8_t *out = extend(w, 4);
    if (out)
        le_store_u32(out, value);
}

void record_put_u64(struct record_writer *w, uint64_t value)
{
    uint8_t *out = extend(w, 8);
    if (out)
        le_store_u64(out, value);
}

void record_put_f64(struct record_writer *w, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    record_put_u64(w, bits);
}

void record_put_text(struct record_writer *w, const char *text)
{
    size_t n = strlen(text);
    record_put_u32(w, (uint32_t)n);
    record_put_bytes(w, text, n);
}

void record_put_u32s(struct record_writer *w, const uint32_t *values, uint32_t n)
{
    uint8_t *out = extend(w, 4 * (size_t)n);
    for (uint32_t i = 0; out && i < n; i++)
        le_store_u32(out + 4 * (size_t)i, values[i]);
}

/* ---- records --------------------------------------------------------------------------------- */

void record_begin(struct record_writer *w, enum recording_kind kind)
{
    w->record = w->n;
    record_put_u32(w, 0);
    record_put_u32(w, kind);
    record_put_u32(w, 0);
}

void record_end(struct record_writer *w)
{
    if (!extend(w, RECORD_SUM_BYTES))
        return;
    uint8_t *from = w->bytes + w->record - RECORD_SUM_BYTES, *head = w->bytes + w->record;
    size_t n = w->n - w->record - RECORD_SUM_BYTES;
    le_store_u32(head, (uint32_t)(n - RECORD_HEAD_BYTES));
    record_sum(from, RECORD_SUM_BYTES + 8, head + 8, 4);
    record_sum(from, RECORD_SUM_BYTES + n, head + n, RECORD_SUM_BYTES);
}

void record_write_out(struct record_writer *w)
{
    while (!w->ended && w->n_in_file < w->n) {
        ssize_t n = write(w->fd, w->bytes + w->n_in_file, w->n - w->n_in_file);
        if (n > 0)
            w->n_in_file += (size_t)n;
        else if (n < 0 && errno != EINTR)
            record_stop(w, strerror(errno));
    }
    if (w->ended)
        return;
    memmove(w->bytes, w->bytes + w->n - RECORD_SUM_BYTES, RECORD_SUM_BYTES);
    w->n = w->n_in_file = RECORD_SUM_BYTES;
}

void record_write_if_much(struct record_writer *w)
{
    if (w->n >= RECORD_WRITE_AT_BYTES)
        record_write_out(w);
}

/* ---- the file -------------------------------------------------------------------------------- */

static int make_file(struct record_writer *w, struct quire_error *err)
{
    w->fd = open(w->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    if (w->fd >= 0)
        return QUIRE_OK;
    if (errno == EEXIST)
        return quire_fail(err, QUIRE_INVALID, "--record %s: is there already, and a recording is never overwritten",
                          w->path);
    return quire_fail(err, QUIRE_IO, "--record %s: cannot be made: %s", w->path, strerror(errno));
}

int record_writer_open(const char *path, struct record_writer **out, struct quire_error *err)
{
    struct record_writer *w = calloc(1, sizeof *w);
    *out = NULL;
    if (!w)
        return quire_fail(err, QUIRE_NO_MEMORY, "recording: out of memory");
    w->fd = -1;
    w->path = strdup(path);
    w->capacity = 2 * RECORD_WRITE_AT_BYTES;
    w->bytes = malloc(w->capacity);
    int status = w->path && w->bytes ? make_file(w, err) : quire_fail(err, QUIRE_NO_MEMORY, "recording: out of memory");
    if (status != QUIRE_OK) {
        record_writer_close(w, false);
        return status;
    }
    memcpy(w->bytes, RECORD_MAGIC, RECORD_SUM_BYTES);
    w->n = RECORD_SUM_BYTES;
    *out = w;
    return QUIRE_OK;
}

const char *record_writer_path(const struct record_writer *w)
{
    return w->path;
}

void record_writer_close(struct record_writer *w, bool keeps)
{
    if (!w)
        return;
    if (w->fd >= 0) {
        close(w->fd);
        if (!keeps)
            unlink(w->path);
    }
    free(w->bytes);
    free(w->path);
    free(w);
}
