#include "server/similar/vector_log.h"

#include "base/clock.h"
#include "server/similar/vector_records.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_WAITING ((size_t)16 << 20)
#define LEAST_REWRITTEN ((uint64_t)1 << 20)
#define WRITTEN_AT_ONCE ((size_t)1 << 20)

struct vector_log {
    char *path, *path_new;
    struct key256 identity;
    uint32_t n_numbers, max_entries;
    int fd; /* the thread's, once it runs */
    uint64_t n_bytes, rewrite_at; /* the thread's */
    pthread_t thread;
    pthread_mutex_t mutex; /* of all below */
    pthread_cond_t wake;
    struct buffer waiting;
    bool is_cleared, is_ending;
    struct vector_log_stats stats;
};

static bool write_all(int fd, const void *bytes, size_t n)
{
    const char *p = bytes;
    while (n > 0) {
        const ssize_t done = write(fd, p, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        p += done;
        n -= (size_t)done;
    }
    return true;
}

/* ---- rewriting the file ---------------------------------------------------------------------- */

struct place { /* of a record */
    struct key256 answer;
    size_t at;
};

static int by_answer(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    const int order = memcmp(&x->answer, &y->answer, sizeof x->answer);
    return order ? order : (x->at > y->at) - (x->at < y->at);
}

static int by_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* Where the records stand that still hold, oldest first. NULL: no memory. */
static struct place *holding(const struct vector_log *l, const uint8_t *bytes, size_t *n_out)
{
    const int64_t now_ms = (int64_t)(quire_wall_ns() / 1000000);
    struct place *places = malloc((l->n_bytes / VECTOR_GONE_BYTES + 1) * sizeof *places);
    struct vector_record r;
    size_t n = 0, n_left = 0;
    if (!places)
        return NULL;
    for (size_t at = 0, from = VECTOR_HEAD_BYTES; vector_records_next(bytes, l->n_bytes, l->n_numbers, &at, &r);
         from = at)
        places[n++] = (struct place){r.answer, from};
    qsort(places, n, sizeof *places, by_answer);
    for (size_t i = 0; i < n; i++) {
        size_t at = places[i].at;
        if (i + 1 < n && memcmp(&places[i].answer, &places[i + 1].answer, sizeof places[i].answer) == 0)
            continue; /* a later record replaces it */
        if (vector_records_next(bytes, l->n_bytes, l->n_numbers, &at, &r) && r.vector && r.expires_ms > now_ms)
            places[n_left++] = places[i];
    }
    qsort(places, n_left, sizeof *places, by_place);
    *n_out = n_left;
    return places;
}

static bool write_holding(const struct vector_log *l, const uint8_t *bytes, int fd, uint64_t *n_written)
{
    size_t n;
    struct place *places = holding(l, bytes, &n);
    struct buffer out = {0};
    bool ok = places;
    *n_written = 0;
    vector_records_head(&out, &l->identity, l->n_numbers);
    for (size_t i = places && n > l->max_entries ? n - l->max_entries : 0; ok && i < n; i++) {
        ok = buffer_append(&out, bytes + places[i].at, vector_record_bytes(l->n_numbers)) == QUIRE_OK;
        if (ok && out.n >= WRITTEN_AT_ONCE) {
            ok = write_all(fd, out.data, out.n);
            *n_written += out.n;
            buffer_clear(&out);
        }
    }
    ok = ok && !out.failed && write_all(fd, out.data, out.n) && fdatasync(fd) == 0;
    *n_written += out.n;
    buffer_free(&out);
    free(places);
    return ok;
}

/* Where it fails the file goes on as it is, and becomes twice as large before it is tried again. */
static bool rewrite(struct vector_log *l)
{
    uint64_t n_written = 0;
    l->rewrite_at = 2 * l->n_bytes + LEAST_REWRITTEN;
    const uint8_t *bytes = mmap(NULL, l->n_bytes, PROT_READ, MAP_PRIVATE, l->fd, 0);
    if (bytes == MAP_FAILED)
        return false;
    const int fd = open(l->path_new, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool ok = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && write_holding(l, bytes, fd, &n_written);
    ok = ok && rename(l->path_new, l->path) == 0;
    munmap((void *)bytes, l->n_bytes);
    if (!ok) {
        if (fd >= 0) {
            unlink(l->path_new);
            close(fd);
        }
        return false;
    }
    close(l->fd);
    l->fd = fd;
    l->n_bytes = n_written;
    l->rewrite_at = 2 * n_written + LEAST_REWRITTEN;
    return true;
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Returns false if none of the records reached the file. */
static bool append(struct vector_log *l, const struct buffer *records)
{
    if (records->failed)
        return false;
    if (records->n == 0)
        return true;
    if (write_all(l->fd, records->data, records->n)) {
        l->n_bytes += records->n;
        return true;
    }
    if (ftruncate(l->fd, (off_t)l->n_bytes) != 0)
        l->rewrite_at = 0; /* a torn record in the middle would spoil the file */
    return false;
}

static void *write_records(void *context)
{
    struct vector_log *l = context;
    struct buffer records = {0};
    bool is_ending = false;
    while (!is_ending) {
        pthread_mutex_lock(&l->mutex);
        while (l->waiting.n == 0 && !l->waiting.failed && !l->is_cleared && !l->is_ending)
            pthread_cond_wait(&l->wake, &l->mutex);
        const struct buffer taken = l->waiting;
        const bool is_cleared = l->is_cleared;
        l->waiting = records;
        l->is_cleared = false;
        is_ending = l->is_ending;
        pthread_mutex_unlock(&l->mutex);
        records = taken;
        if (is_cleared && ftruncate(l->fd, VECTOR_HEAD_BYTES) == 0)
            l->n_bytes = VECTOR_HEAD_BYTES;
        const bool is_written = append(l, &records);
        const bool is_new = l->n_bytes > l->rewrite_at && rewrite(l);
        buffer_clear(&records);
        pthread_mutex_lock(&l->mutex);
        l->stats.n_dropped += !is_written;
        l->stats.n_rewritten += is_new;
        l->stats.n_bytes = l->n_bytes;
        pthread_mutex_unlock(&l->mutex);
    }
    buffer_free(&records);
    return NULL;
}

/* ---- opening --------------------------------------------------------------------------------- */

static void tell(const struct vector_log *l, const uint8_t *bytes, float *vector, vector_log_told *told, void *context)
{
    struct vector_record r;
    for (size_t at = 0; vector_records_next(bytes, l->n_bytes, l->n_numbers, &at, &r);) {
        if (r.vector)
            vector_record_numbers(&r, l->n_numbers, vector);
        told(context, &r.context, r.vector ? vector : NULL, &r.answer, r.expires_ms);
    }
}

static int read_file(struct vector_log *l, size_t n, vector_log_told *told, void *context, struct quire_error *err)
{
    float *vector = malloc(l->n_numbers * sizeof *vector);
    if (!vector)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory for a vector");
    const uint8_t *bytes = mmap(NULL, n, PROT_READ, MAP_PRIVATE, l->fd, 0);
    if (bytes == MAP_FAILED) {
        free(vector);
        return quire_fail(err, QUIRE_IO, "cannot be mapped: %m");
    }
    size_t n_whole = 0;
    int status = vector_records_check(bytes, n, &l->identity, l->n_numbers, &n_whole, err);
    if (status == QUIRE_OK) {
        l->n_bytes = n_whole;
        tell(l, bytes, vector, told, context);
    }
    munmap((void *)bytes, n);
    free(vector);
    if (status == QUIRE_OK && n_whole < n && ftruncate(l->fd, (off_t)n_whole) != 0)
        status = quire_fail(err, QUIRE_IO, "a torn record cannot be cut off: %m");
    return status;
}

static int open_file(struct vector_log *l, vector_log_told *told, void *context, struct quire_error *err)
{
    struct stat st;
    l->fd = open(l->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (l->fd < 0 || fstat(l->fd, &st) != 0)
        return quire_fail(err, QUIRE_IO, "cannot be opened: %m");
    if (!S_ISREG(st.st_mode))
        return quire_fail(err, QUIRE_INVALID, "is not a regular file");
    if (flock(l->fd, LOCK_EX | LOCK_NB) != 0)
        return quire_fail(err, QUIRE_EXHAUSTED, "another process has it open");
    if (st.st_size > 0)
        return read_file(l, (size_t)st.st_size, told, context, err);
    struct buffer head = {0};
    vector_records_head(&head, &l->identity, l->n_numbers);
    const bool ok = !head.failed && write_all(l->fd, head.data, head.n);
    l->n_bytes = head.n;
    buffer_free(&head);
    return ok ? QUIRE_OK : quire_fail(err, QUIRE_IO, "cannot be written: %m");
}

static void log_free(struct vector_log *l)
{
    if (l->fd >= 0)
        close(l->fd);
    buffer_free(&l->waiting);
    free(l->path);
    free(l->path_new);
    free(l);
}

int vector_log_open(const char *path, const struct key256 *identity, uint32_t n_numbers, uint32_t max_entries,
                    vector_log_told *told, void *context, struct vector_log **out, struct quire_error *err)
{
    struct vector_log *l = calloc(1, sizeof *l);
    *out = NULL;
    if (!l)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory for a file of vectors");
    *l = (struct vector_log){.identity = *identity,
                             .n_numbers = n_numbers,
                             .max_entries = max_entries,
                             .fd = -1,
                             .rewrite_at = LEAST_REWRITTEN,
                             .mutex = PTHREAD_MUTEX_INITIALIZER,
                             .wake = PTHREAD_COND_INITIALIZER,
                             .path = strdup(path)};
    if (!l->path || asprintf(&l->path_new, "%s.new", path) < 0) {
        l->path_new = NULL;
        log_free(l);
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory for a file of vectors");
    }
    int status = open_file(l, told, context, err);
    l->stats.n_bytes = l->n_bytes;
    if (status == QUIRE_OK && pthread_create(&l->thread, NULL, write_records, l) != 0)
        status = quire_fail(err, QUIRE_NO_MEMORY, "the thread that writes it cannot be started");
    if (status != QUIRE_OK) {
        quire_error_prefix(err, "%s", path);
        log_free(l);
        return status;
    }
    *out = l;
    return QUIRE_OK;
}

/* ---- the loop's thread ----------------------------------------------------------------------- */

void vector_log_add(struct vector_log *l, const struct key256 *around, const float *vector, const struct key256 *answer,
                    int64_t expires_ms)
{
    pthread_mutex_lock(&l->mutex);
    if (l->waiting.n < MOST_WAITING)
        vector_records_add(&l->waiting, around, vector, l->n_numbers, answer, expires_ms);
    else
        l->stats.n_dropped++;
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->mutex);
}

void vector_log_remove(struct vector_log *l, const struct key256 *answer)
{
    pthread_mutex_lock(&l->mutex);
    vector_records_gone(&l->waiting, answer);
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->mutex);
}

void vector_log_clear(struct vector_log *l)
{
    pthread_mutex_lock(&l->mutex);
    buffer_clear(&l->waiting);
    l->is_cleared = true;
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->mutex);
}

void vector_log_stats(struct vector_log *l, struct vector_log_stats *out)
{
    pthread_mutex_lock(&l->mutex);
    *out = l->stats;
    pthread_mutex_unlock(&l->mutex);
}

void vector_log_close(struct vector_log *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->mutex);
    l->is_ending = true;
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->mutex);
    pthread_join(l->thread, NULL);
    log_free(l);
}
