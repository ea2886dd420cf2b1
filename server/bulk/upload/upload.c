#include "server/bulk/upload/upload.h"

#include "server/bulk/call.h"
#include "server/bulk/replies.h"
#include "server/bulk/run/input.h"
#include "server/bulk/upload/multipart.h"
#include "server/bulk/upload/split.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WRITE_BYTES ((size_t)256 << 10)   /* from so many on, a job writes them */
#define PAUSE_BYTES ((size_t)1 << 20)     /* from so many on, the client waits */
#define MAX_FILE_BYTES ((uint64_t)1 << 30)
#define MIN_EXPIRY_S 3600
#define MAX_EXPIRY_S 2592000
#define MESSAGES_WINDOW_S 86400

struct upload {
    struct bulk *bulk;
    struct http_exchange *x; /* NULL: the client has gone, or has its error */
    struct bulk_file file;
    struct multipart *form;   /* of /v1/files */
    struct bulk_split *split; /* of /v1/messages/batches */
    bool has_purpose, has_file, has_anchor;
    int64_t expiry_s;
    bool busy, is_whole;
    int fd; /* the job's; -1: none */
    uint64_t n_written; /* the job's */
    struct buffer waiting, writing;
    struct bulk_batch *batch; /* of split; NULL */
    struct bulk_job job;
    int status; /* status of the job, with err */
    struct quire_error err;
};

static struct upload *upload_of(struct bulk_job *job)
{
    return (struct upload *)((char *)job - offsetof(struct upload, job));
}

static void free_upload(struct upload *u)
{
    multipart_close(u->form);
    bulk_split_close(u->split);
    buffer_free(&u->waiting);
    buffer_free(&u->writing);
    if (u->batch)
        bulk_batch_free(u->batch);
    free(u->batch);
    if (u->fd >= 0)
        close(u->fd);
    free(u);
}

/* ---- on the threads ------------------------------------------------------------------------- */

static int disk_failed(struct upload *u)
{
    const bool is_full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
    return quire_fail(&u->err, is_full ? QUIRE_UNAVAILABLE : QUIRE_IO, "the file cannot be stored: %s",
                      strerror(errno));
}

static int write_all(struct upload *u)
{
    char path[BULK_PATH_BYTES];
    int status = bulk_store_has_space(u->bulk->store, u->file.tenant, u->writing.n, &u->err);
    if (status == QUIRE_OK)
        status = bulk_store_hold(u->bulk->store, u->file.tenant, u->file.id, u->n_written + u->writing.n, &u->err);
    if (status != QUIRE_OK)
        return status;
    bulk_store_part_path(u->bulk->store, u->file.id, path);
    if (u->fd < 0)
        u->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (u->fd < 0)
        return disk_failed(u);
    for (size_t at = 0; at < u->writing.n;) {
        const ssize_t n = write(u->fd, u->writing.data + at, u->writing.n - at);
        if (n < 0 && errno != EINTR)
            return disk_failed(u);
        at += n > 0 ? (size_t)n : 0;
    }
    u->n_written += u->writing.n;
    return QUIRE_OK;
}

static void remove_part(struct upload *u)
{
    char path[BULK_PATH_BYTES];
    bulk_store_part_path(u->bulk->store, u->file.id, path);
    unlink(path);
}

static void write_work(struct bulk_job *job)
{
    struct upload *u = upload_of(job);
    u->status = write_all(u);
    if (u->status != QUIRE_OK)
        remove_part(u);
}

/* On the lane of the store. */
static void release(struct upload *u)
{
    struct quire_error ignored;
    bulk_store_hold(u->bulk->store, u->file.tenant, u->file.id, 0, &ignored);
}

static void drop_work(struct bulk_job *job)
{
    remove_part(upload_of(job));
    release(upload_of(job));
}

/* Every request of a message batch must be one: the client gets the first that is not. */
static int check_requests(struct upload *u, const char *path)
{
    struct bulk_input *in;
    struct buffer text = {0};
    struct bulk_line line;
    int status = bulk_input_open(path, BULK_ANTHROPIC, BULK_MESSAGES_URL, BULK_MAX_LINES, &in, &u->err);
    if (status != QUIRE_OK)
        return status;
    u->batch->counts.n_lines = bulk_input_lines(in);
    for (uint32_t i = 0; i < bulk_input_lines(in) && status == QUIRE_OK; i++) {
        status = bulk_input_read(in, i, &text, &line, &u->err);
        if (status != QUIRE_OK)
            quire_error_prefix(&u->err, "requests.%u", i);
    }
    buffer_free(&text);
    bulk_input_close(in);
    return status;
}

static void sync_work(struct bulk_job *job)
{
    struct upload *u = upload_of(job);
    char path[BULK_PATH_BYTES];
    bulk_store_part_path(u->bulk->store, u->file.id, path);
    u->status = u->fd < 0 || fsync(u->fd) == 0 ? QUIRE_OK : disk_failed(u);
    if (u->status == QUIRE_OK && u->split)
        u->status = check_requests(u, path);
    if (u->status != QUIRE_OK)
        remove_part(u);
}

static void add_work(struct bulk_job *job)
{
    struct upload *u = upload_of(job);
    struct quire_error ignored;
    u->status = bulk_store_add_file(u->bulk->store, &u->file, &u->err);
    if (u->status == QUIRE_OK)
        release(u);
    if (u->status != QUIRE_OK || !u->split)
        return;
    u->status = bulk_store_add_batch(u->bulk->store, u->batch, &u->err);
    if (u->status != QUIRE_OK)
        bulk_store_drop_file(u->bulk->store, u->file.id, &ignored);
}

/* ---- steps ---------------------------------------------------------------------------------- */

static void advance(struct upload *u);

static void drop_done(struct bulk_job *job)
{
    free_upload(upload_of(job));
}

static void job(struct upload *u, enum bulk_lane lane, void (*work)(struct bulk_job *job),
                void (*done)(struct bulk_job *job))
{
    u->busy = true;
    u->job = (struct bulk_job){.work = work, .done = done};
    bulk_disk_do(u->bulk->disk, lane, &u->job);
}

static void drop(struct upload *u)
{
    job(u, BULK_SHORT, drop_work, drop_done);
}

/* The client gets an error, and the rest of its body is not read. */
static void fail(struct upload *u, int status, const struct quire_error *err)
{
    struct http_exchange *x = u->x;
    u->x = NULL;
    if (x) {
        http_on_gone(x, NULL, NULL);
        bulk_reply_failed(x, status, err);
    }
    if (!u->busy)
        drop(u);
}

static void on_gone(void *context)
{
    struct upload *u = context;
    u->x = NULL;
    if (!u->busy)
        drop(u);
}

static void add_done(struct bulk_job *done)
{
    struct upload *u = upload_of(done);
    struct buffer o = {0};
    struct quire_error err;
    u->busy = false;
    if (u->status != QUIRE_OK) {
        fail(u, u->status, &u->err);
        return;
    }
    if (u->split)
        bulk_put_batch(&o, u->batch);
    else
        bulk_put_file(&o, &u->file);
    if (u->split && !u->bulk->stopping && runner_add(u->bulk, u->batch, &err) != QUIRE_OK)
        o.failed = true; /* the next start runs it */
    if (u->x) {
        http_on_gone(u->x, NULL, NULL);
        http_reply(u->x, o.failed ? 503 : 200, "application/json", o.data, o.failed ? 0 : o.n);
    }
    buffer_free(&o);
    free_upload(u);
}

static void sync_done(struct bulk_job *done)
{
    struct upload *u = upload_of(done);
    u->busy = false;
    if (u->status != QUIRE_OK || !u->x)
        fail(u, u->status, &u->err);
    else
        job(u, BULK_SHORT, add_work, add_done);
}

static void write_done(struct bulk_job *done)
{
    struct upload *u = upload_of(done);
    u->busy = false;
    buffer_clear(&u->writing);
    if (u->status != QUIRE_OK || !u->x) {
        fail(u, u->status, &u->err);
        return;
    }
    if (u->waiting.n < PAUSE_BYTES && !u->is_whole)
        http_pause_body(u->x, false);
    advance(u);
}

/* Writes what waits, if that is enough, or the end. */
static void advance(struct upload *u)
{
    if (u->busy)
        return;
    if (u->waiting.n >= WRITE_BYTES || (u->is_whole && (u->waiting.n > 0 || u->fd < 0))) {
        const struct buffer empty = u->writing;
        u->writing = u->waiting;
        u->waiting = empty;
        job(u, BULK_SHORT, write_work, write_done);
    } else if (u->is_whole) {
        job(u, BULK_LONG, sync_work, sync_done);
    }
}

/* ---- the form ------------------------------------------------------------------------------- */

static bool read_expiry(struct upload *u, const char *value, struct quire_error *err)
{
    char *end;
    errno = 0;
    const long long seconds = strtoll(value, &end, 10);
    u->expiry_s = seconds;
    return (value[0] && !*end && errno == 0 && seconds >= MIN_EXPIRY_S && seconds <= MAX_EXPIRY_S) ||
           quire_fail(err, QUIRE_INVALID, "expires_after[seconds]: must be a number from %d to %d", MIN_EXPIRY_S,
                      MAX_EXPIRY_S) == QUIRE_OK;
}

static bool on_field(void *context, const char *name, const char *value, size_t n, struct quire_error *err)
{
    struct upload *u = context;
    if (strlen(value) != n)
        return quire_fail(err, QUIRE_INVALID, "%.60s: has a NUL byte", name) == QUIRE_OK;
    if (strcmp(name, "purpose") == 0) {
        u->has_purpose = true;
        return strcmp(value, "batch") == 0 ||
               quire_fail(err, QUIRE_INVALID, "purpose: must be \"batch\", got \"%.40s\"", value) == QUIRE_OK;
    }
    if (strcmp(name, "expires_after[anchor]") == 0) {
        u->has_anchor = true;
        return strcmp(value, "created_at") == 0 ||
               quire_fail(err, QUIRE_INVALID, "expires_after[anchor]: must be \"created_at\"") == QUIRE_OK;
    }
    if (strcmp(name, "expires_after[seconds]") == 0)
        return read_expiry(u, value, err);
    return quire_fail(err, QUIRE_INVALID, "%.60s: is not a field of a file: purpose, file, expires_after", name) ==
           QUIRE_OK;
}

static bool on_file(void *context, const char *name, const char *filename, struct quire_error *err)
{
    struct upload *u = context;
    if (strcmp(name, "file") != 0 || u->has_file)
        return quire_fail(err, QUIRE_INVALID, "%.60s: %s", name,
                          u->has_file ? "one file at a time" : "the file must be in the field \"file\"") == QUIRE_OK;
    u->has_file = true;
    snprintf(u->file.filename, sizeof u->file.filename, "%s", filename);
    return true;
}

static bool on_bytes(void *context, const char *bytes, size_t n, struct quire_error *err)
{
    struct upload *u = context;
    u->file.n_bytes += n;
    if (u->file.n_bytes > MAX_FILE_BYTES)
        return quire_fail(err, QUIRE_EXHAUSTED, "file: is larger than 1 GiB: split it") == QUIRE_OK;
    return buffer_append(&u->waiting, bytes, n) == QUIRE_OK ||
           quire_fail(err, QUIRE_NO_MEMORY, "out of memory") == QUIRE_OK;
}

/* ---- requests ------------------------------------------------------------------------------- */

static int read_part(struct upload *u, const char *bytes, size_t n, struct quire_error *err)
{
    if (u->form)
        return multipart_feed(u->form, bytes, n, err);
    const size_t before = u->waiting.n;
    int status = bulk_split_feed(u->split, bytes, n, &u->waiting, err);
    u->file.n_bytes += u->waiting.n - before;
    return status;
}

static void on_part(void *context, const char *bytes, size_t n)
{
    struct upload *u = context;
    struct quire_error err = {.text = ""};
    int status = read_part(u, bytes, n, &err);
    if (status == QUIRE_OK && u->file.n_bytes > MAX_FILE_BYTES)
        status = quire_fail(&err, QUIRE_EXHAUSTED, "requests: are more than 1 GiB: split them");
    if (status != QUIRE_OK) {
        fail(u, status, &err);
        return;
    }
    if (u->waiting.n >= PAUSE_BYTES)
        http_pause_body(u->x, true);
    advance(u);
}

static int open_form(struct upload *u, struct quire_error *err)
{
    const struct multipart_events events = {on_field, on_file, on_bytes, u};
    u->file.purpose = BULK_INPUT;
    return multipart_open(http_header(u->x, "Content-Type"), &events, &u->form, err);
}

static int open_requests(struct upload *u, const char *account, struct quire_error *err)
{
    u->file.purpose = BULK_MESSAGES;
    u->batch = calloc(1, sizeof *u->batch);
    if (!u->batch)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    u->batch->dialect = BULK_ANTHROPIC;
    u->batch->window_s = MESSAGES_WINDOW_S;
    snprintf(u->batch->account, sizeof u->batch->account, "%s", account ? account : "");
    bulk_new_id(BULK_MESSAGES_ID, u->batch->id);
    snprintf(u->batch->tenant, sizeof u->batch->tenant, "%s", u->file.tenant);
    snprintf(u->batch->input, sizeof u->batch->input, "%s", u->file.id);
    snprintf(u->batch->url, sizeof u->batch->url, "%s", BULK_MESSAGES_URL);
    u->batch->at[BULK_VALIDATING] = u->file.created;
    return bulk_split_open(&u->split, err);
}

void upload_begin(struct bulk *b, struct http_exchange *x, const struct http_caller *caller, bool is_messages)
{
    struct quire_error err = {.text = "out of memory"};
    struct upload *u = calloc(1, sizeof *u);
    int status = QUIRE_NO_MEMORY;
    if (u) {
        *u = (struct upload){.bulk = b, .x = x, .fd = -1};
        u->file.created = (int64_t)time(NULL);
        bulk_new_id(BULK_FILE_ID, u->file.id);
        snprintf(u->file.tenant, sizeof u->file.tenant, "%s", caller->tenant);
        status = is_messages ? open_requests(u, caller->account, &err) : open_form(u, &err);
    }
    if (status != QUIRE_OK) {
        bulk_reply_failed(x, status, &err);
        if (u)
            free_upload(u);
        return;
    }
    http_on_gone(x, on_gone, u);
    http_stream_body(x, on_part, u);
}

static int check_whole(const struct upload *u, struct quire_error *err)
{
    if (u->split)
        return bulk_split_end(u->split, err);
    if (!multipart_is_whole(u->form))
        return quire_fail(err, QUIRE_INVALID, "the body ends before its last boundary");
    if (!u->has_file)
        return quire_fail(err, QUIRE_INVALID, "file: is required");
    if (!u->has_purpose)
        return quire_fail(err, QUIRE_INVALID, "purpose: is required; it must be \"batch\"");
    if (u->has_anchor != (u->expiry_s > 0))
        return quire_fail(err, QUIRE_INVALID, "expires_after: needs both anchor and seconds");
    return QUIRE_OK;
}

void upload_end(struct bulk *b, struct http_exchange *x)
{
    struct quire_error err;
    struct upload *u = http_body_context(x);
    (void)b;
    int status = check_whole(u, &err);
    if (status != QUIRE_OK) {
        fail(u, status, &err);
        return;
    }
    if (u->expiry_s > 0)
        u->file.expires = u->file.created + u->expiry_s;
    u->is_whole = true;
    advance(u);
}
