#include "server/bulk/runner.h"

#include "base/log.h"
#include "server/bulk/run/input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void active_do(struct active *a, enum bulk_lane lane, void (*work)(struct bulk_job *job),
               void (*done)(struct bulk_job *job))
{
    a->busy = true;
    a->job = (struct bulk_job){.work = work, .done = done};
    bulk_disk_do(a->bulk->disk, lane, &a->job);
}

static int open_input(struct active *a)
{
    char path[BULK_PATH_BYTES];
    bulk_store_file_path(a->bulk->store, a->batch->input, path);
    return bulk_input_open(path, a->batch->dialect, a->batch->url, BULK_MAX_LINES, &a->input, &a->err);
}

void active_check_work(struct bulk_job *job)
{
    struct active *a = active_of(job);
    a->status = open_input(a);
}

void active_open_work(struct bulk_job *job)
{
    struct active *a = active_of(job);
    char path[BULK_PATH_BYTES];
    a->status = a->input ? (int)QUIRE_OK : open_input(a);
    if (a->status != QUIRE_OK)
        return;
    bulk_store_results_path(a->bulk->store, a->batch->id, path);
    a->status = bulk_results_open(path, bulk_input_digest(a->input), bulk_input_lines(a->input), &a->results, &a->err);
    if (a->status == QUIRE_OK)
        return;
    quire_log(QUIRE_LOG_WARN, "batch", "%s: %s", a->batch->id, a->err.text);
    quire_fail(&a->err, (enum quire_status)a->status,
               "the server cannot open the results that the batch already has; its log has the reason");
}

/* ---- output files --------------------------------------------------------------------------- */

static int io_failed(struct quire_error *err, const char *path)
{
    return quire_fail(err, QUIRE_IO, "%s: %s", path, strerror(errno));
}

/* Writes the results with these outcomes as a file's part. *n_bytes 0: no result is left. */
static int write_part(struct active *a, const char *id, unsigned outcomes, uint64_t *n_bytes)
{
    char path[BULK_PATH_BYTES], final[BULK_PATH_BYTES];
    bulk_store_part_path(a->bulk->store, id, path);
    bulk_store_file_path(a->bulk->store, id, final);
    *n_bytes = 0;
    FILE *file = fopen(path, "we");
    if (!file)
        return io_failed(&a->err, path);
    int status = bulk_results_write(a->results, outcomes, file, &a->err);
    if (status == QUIRE_OK && (fflush(file) != 0 || fsync(fileno(file)) != 0))
        status = io_failed(&a->err, path);
    const long at = status == QUIRE_OK ? ftell(file) : 0;
    fclose(file);
    if (status != QUIRE_OK || at <= 0)
        unlink(path);
    *n_bytes = at > 0 ? (uint64_t)at : 0;
    return status;
}

void active_write_work(struct bulk_job *job)
{
    struct active *a = active_of(job);
    const unsigned all = (1u << BULK_OUTCOMES) - 1, good = 1u << BULK_SUCCEEDED;
    const bool one = a->batch->dialect == BULK_ANTHROPIC;
    a->status = bulk_results_flush(a->results, &a->err);
    if (a->status == QUIRE_OK)
        a->status = write_part(a, a->batch->output, one ? all : good, &a->out_bytes);
    a->error_bytes = 0;
    if (a->status == QUIRE_OK && !one)
        a->status = write_part(a, a->batch->errors, all & ~good, &a->error_bytes);
}

/* ---- the end -------------------------------------------------------------------------------- */

static void remove_results(struct active *a)
{
    static const char *const ends[] = {"", "-wal", "-shm"};
    char path[BULK_PATH_BYTES], whole[BULK_PATH_BYTES + 8];
    bulk_results_close(a->results);
    bulk_input_close(a->input);
    a->results = NULL;
    a->input = NULL;
    bulk_store_results_path(a->bulk->store, a->batch->id, path);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        snprintf(whole, sizeof whole, "%s%s", path, ends[i]);
        unlink(whole);
    }
}

static struct bulk_file file_of(const struct active *a, const char *id, const char *what, uint64_t n_bytes)
{
    struct bulk_file f = {.n_bytes = n_bytes,
                          .purpose = a->batch->dialect == BULK_ANTHROPIC ? BULK_MESSAGES : BULK_OUTPUT,
                          .created = (int64_t)time(NULL)};
    snprintf(f.id, sizeof f.id, "%s", id);
    snprintf(f.tenant, sizeof f.tenant, "%s", a->batch->tenant);
    snprintf(f.filename, sizeof f.filename, "%s_%s.jsonl", a->batch->id, what);
    if (a->batch->output_ttl_s > 0)
        f.expires = f.created + a->batch->output_ttl_s;
    return f;
}

void active_end_work(struct bulk_job *job)
{
    struct active *a = active_of(job);
    struct bulk_batch b = *a->batch;
    const struct bulk_file out = file_of(a, b.output, "output", a->out_bytes);
    const struct bulk_file failed = file_of(a, b.errors, "error", a->error_bytes);
    b.state = b.end;
    if (a->out_bytes == 0)
        b.output[0] = '\0';
    if (a->error_bytes == 0)
        b.errors[0] = '\0';
    a->status = bulk_store_end_batch(a->bulk->store, &b, a->out_bytes ? &out : NULL, a->error_bytes ? &failed : NULL,
                                     &a->err);
    if (a->status != QUIRE_OK)
        return;
    remove_results(a);
    bulk_store_hold(a->bulk->store, b.tenant, b.id, 0, &a->err);
}
