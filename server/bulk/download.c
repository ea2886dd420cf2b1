#include "server/bulk/download.h"

#include "server/bulk/call.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)192 << 10) /* below a quarter of what may be pending */
#define LOOK_MS 10 /* how often a slow client is looked at */

struct download {
    struct bulk *bulk;
    struct http_exchange *x; /* NULL: the client has gone */
    const char *content_type;
    char path[BULK_PATH_BYTES];
    int fd; /* -1: not open yet */
    bool has_begun, busy;
    ssize_t n; /* bytes of the piece; negative: failed */
    char *piece;
    struct event *look;
    struct bulk_job job;
    struct quire_error err;
};

static void free_download(struct download *d)
{
    if (d->fd >= 0)
        close(d->fd);
    if (d->look)
        event_free(d->look);
    free(d->piece);
    free(d);
}

static void on_gone(void *context)
{
    struct download *d = context;
    d->x = NULL;
    if (!d->busy)
        free_download(d);
}

static void read_work(struct bulk_job *job)
{
    struct download *d = (struct download *)((char *)job - offsetof(struct download, job));
    if (d->fd < 0)
        d->fd = open(d->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    do {
        d->n = d->fd >= 0 ? read(d->fd, d->piece, PIECE_BYTES) : -1;
    } while (d->n < 0 && errno == EINTR);
    if (d->n < 0)
        quire_fail(&d->err, QUIRE_IO, "the file cannot be read: %s", strerror(errno));
}

static void read_done(struct bulk_job *job);

/* Reads the next piece, once the client has taken the last. */
static void read_next(struct download *d)
{
    const struct timeval soon = {.tv_usec = LOOK_MS * 1000};
    if (d->has_begun && !http_stream_has_space(d->x)) {
        event_add(d->look, &soon);
        return;
    }
    d->busy = true;
    d->job = (struct bulk_job){.work = read_work, .done = read_done};
    bulk_disk_do(d->bulk->disk, BULK_SHORT, &d->job);
}

static void on_look(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    read_next(context);
}

static void end(struct download *d)
{
    if (d->n < 0 && d->has_begun) {
        http_cut_off(d->x); /* on_gone frees it */
        return;
    }
    http_on_gone(d->x, NULL, NULL);
    if (d->n < 0)
        bulk_reply_failed(d->x, QUIRE_IO, &d->err);
    else
        http_stream_end(d->x);
    free_download(d);
}

static void read_done(struct bulk_job *job)
{
    struct download *d = (struct download *)((char *)job - offsetof(struct download, job));
    d->busy = false;
    if (!d->x) {
        free_download(d);
        return;
    }
    if (d->n >= 0 && strcmp(http_method(d->x), "HEAD") == 0) {
        http_on_gone(d->x, NULL, NULL);
        http_reply(d->x, 200, d->content_type, "", 0);
        free_download(d);
        return;
    }
    if (d->n >= 0 && !d->has_begun) {
        d->has_begun = true;
        http_stream_begin(d->x, 200, d->content_type);
    }
    if (d->n <= 0) {
        end(d);
        return;
    }
    http_stream_write(d->x, d->piece, (size_t)d->n);
    read_next(d);
}

void download_begin(struct bulk *b, struct http_exchange *x, const char *id, const char *content_type)
{
    struct api_error e;
    struct download *d = calloc(1, sizeof *d);
    if (d) {
        *d = (struct download){.bulk = b, .x = x, .content_type = content_type, .fd = -1};
        d->piece = malloc(PIECE_BYTES);
        d->look = evtimer_new(b->base, on_look, d);
    }
    if (!d || !d->piece || !d->look) {
        if (d)
            free_download(d);
        api_no_memory(&e);
        api_error_reply(x, &e);
        return;
    }
    bulk_store_file_path(b->store, id, d->path);
    http_on_gone(x, on_gone, d);
    read_next(d);
}
