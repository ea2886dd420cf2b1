#include "tools/quantize/writer/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define VERSION "quire quantize 1"
#define MAX_FILES 64

struct quantizer_output {
    char *path, *partial, *journal, *data_path;
    bool is_directory, is_finished;
    uint64_t n_bytes;
    uint32_t n_units, n_done;
    bool *done; /* [n_units] */
    int data, log; /* -1: not open */
    char *files[MAX_FILES]; /* names of the directory's small files */
    uint32_t n_files;
};

static int failed(const char *path, const char *what, struct quire_error *err)
{
    return quire_fail(err, QUIRE_IO, "%.350s: %s: %m", path, what);
}

static int sync_parent(const char *path, struct quire_error *err)
{
    const char *slash = strrchr(path, '/');
    char *parent = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    if (!parent)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    const int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int status = fd >= 0 && fsync(fd) == 0 ? QUIRE_OK : failed(parent, "cannot be synchronized", err);
    if (fd >= 0)
        close(fd);
    free(parent);
    return status;
}

static int name_paths(struct quantizer_output *o, const struct quantizer_output_plan *plan, struct quire_error *err)
{
    size_t n = strlen(plan->path);
    while (n > 1 && plan->path[n - 1] == '/')
        n--;
    o->path = strndup(plan->path, n);
    if (!o->path || asprintf(&o->partial, "%s.partial", o->path) < 0)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (asprintf(&o->journal, "%s.journal", o->partial) < 0 ||
        (plan->data_name ? asprintf(&o->data_path, "%s/%s", o->partial, plan->data_name)
                         : asprintf(&o->data_path, "%s", o->partial)) < 0)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    return QUIRE_OK;
}

static int open_journal(struct quantizer_output *o, struct quire_error *err)
{
    struct stat st;
    if (lstat(o->path, &st) == 0)
        return quire_fail(err, QUIRE_INVALID, "%.350s: exists: name another output, or delete it", o->path);
    /* Whatever is there without a journal was not made here, and a link would lead elsewhere. */
    const bool is_there = lstat(o->partial, &st) == 0;
    if (is_there && (S_ISLNK(st.st_mode) || access(o->journal, F_OK) != 0))
        return quire_fail(err, QUIRE_INVALID, "%.350s: exists, and was not made by quire quantize: delete it",
                          o->partial);
    if ((o->log = open(o->journal, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666)) < 0)
        return failed(o->path, "cannot be created", err);
    if (flock(o->log, LOCK_EX | LOCK_NB) != 0)
        return quire_fail(err, QUIRE_INVALID, "%.350s: another process is writing it", o->partial);
    return QUIRE_OK;
}

/* Reads the units of an earlier run. Removes a last line without its newline, which was not written
 * completely. *is_new: the journal is empty. */
static int read_journal(struct quantizer_output *o, const char *head, bool *is_new, struct quire_error *err)
{
    char line[128];
    FILE *f = fdopen(dup(o->log), "r");
    if (!f)
        return failed(o->journal, "cannot be read", err);
    rewind(f);
    *is_new = !fgets(line, sizeof line, f) || !strchr(line, '\n');
    int status = QUIRE_OK;
    if (!*is_new && strcmp(line, head) != 0)
        status = quire_fail(err, QUIRE_INVALID,
                            "%.350s: belongs to another command or model: repeat that command, or delete it and its "
                            "journal",
                            o->partial);
    long end_of_lines = ftell(f);
    while (status == QUIRE_OK && !*is_new && fgets(line, sizeof line, f)) {
        char *end;
        const unsigned long unit = strtoul(line, &end, 10);
        if (*end != '\n')
            break;
        end_of_lines = ftell(f);
        if (unit < o->n_units && !o->done[unit]) {
            o->done[unit] = true;
            o->n_done++;
        }
    }
    fclose(f);
    if (status == QUIRE_OK && !*is_new && ftruncate(o->log, end_of_lines) != 0)
        status = failed(o->journal, "cannot be written", err);
    return status;
}

static int append(struct quantizer_output *o, const char *text, struct quire_error *err)
{
    const size_t n = strlen(text);
    return write(o->log, text, n) == (ssize_t)n && fdatasync(o->log) == 0
               ? QUIRE_OK
               : failed(o->journal, "cannot be written", err);
}

static int begin_data(struct quantizer_output *o, const char *head, struct quire_error *err)
{
    if (o->is_directory && mkdir(o->partial, 0777) != 0 && errno != EEXIST)
        return failed(o->partial, "cannot be created", err);
    if ((o->data = open(o->data_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666)) < 0)
        return failed(o->data_path, "cannot be created", err);
    errno = o->n_bytes ? posix_fallocate(o->data, 0, (off_t)o->n_bytes) : 0;
    if (errno != 0)
        return failed(o->data_path, "no space for the output", err);
    if (ftruncate(o->log, 0) != 0 || fsync(o->data) != 0)
        return failed(o->data_path, "cannot be written", err);
    return append(o, head, err);
}

static int continue_data(struct quantizer_output *o, struct quire_error *err)
{
    struct stat st;
    if ((o->data = open(o->data_path, O_RDWR | O_CLOEXEC | O_NOFOLLOW)) < 0)
        return failed(o->data_path, "cannot be continued", err);
    if (fstat(o->data, &st) != 0 || (uint64_t)st.st_size != o->n_bytes)
        return quire_fail(err, QUIRE_INVALID, "%.350s: was changed: delete it and its journal", o->partial);
    return QUIRE_OK;
}

int quantizer_output_open(const struct quantizer_output_plan *plan, struct quantizer_output **out,
                          struct quire_error *err)
{
    char head[128], hex[65];
    bool is_new = false, is_own = false;
    struct quantizer_output *o = calloc(1, sizeof *o);
    *out = NULL;
    if (!o)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    o->data = o->log = -1;
    o->is_directory = plan->data_name != NULL;
    o->n_bytes = plan->n_bytes;
    o->n_units = plan->n_units;
    o->done = calloc(plan->n_units + 1u, sizeof *o->done);
    quire_key256_hex(&plan->identity, hex);
    snprintf(head, sizeof head, VERSION " %s\n", hex);
    int status = o->done ? name_paths(o, plan, err) : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (status == QUIRE_OK)
        status = open_journal(o, err);
    if (status == QUIRE_OK && access(o->data_path, F_OK) != 0 && ftruncate(o->log, 0) != 0)
        status = failed(o->journal, "cannot be written", err);
    if (status == QUIRE_OK)
        status = read_journal(o, head, &is_new, err);
    if (status == QUIRE_OK) {
        is_own = is_new;
        status = is_new ? begin_data(o, head, err) : continue_data(o, err);
    }
    if (status == QUIRE_OK)
        *out = o;
    else
        quantizer_output_close(o, !is_own);
    return status;
}

bool quantizer_output_has(const struct quantizer_output *o, uint32_t unit)
{
    return o->done[unit];
}

uint32_t quantizer_output_n_done(const struct quantizer_output *o)
{
    return o->n_done;
}

int quantizer_output_write(struct quantizer_output *o, uint64_t at, const void *data, uint64_t n,
                           struct quire_error *err)
{
    const char *p = data;
    while (n > 0) {
        const ssize_t written = pwrite(o->data, p, n < (1u << 30) ? n : 1u << 30, (off_t)at);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return failed(o->data_path, "cannot be written", err);
        p += written;
        at += (uint64_t)written;
        n -= (uint64_t)written;
    }
    return QUIRE_OK;
}

int quantizer_output_read(const struct quantizer_output *o, uint64_t at, void *data, uint64_t n,
                          struct quire_error *err)
{
    char *p = data;
    while (n > 0) {
        const ssize_t got = pread(o->data, p, n < (1u << 30) ? n : 1u << 30, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return failed(o->data_path, "cannot be read", err);
        p += got;
        at += (uint64_t)got;
        n -= (uint64_t)got;
    }
    return QUIRE_OK;
}

int quantizer_output_done(struct quantizer_output *o, uint32_t unit, struct quire_error *err)
{
    char line[16];
    if (o->done[unit])
        return QUIRE_OK;
    if (fdatasync(o->data) != 0)
        return failed(o->data_path, "cannot be written", err);
    snprintf(line, sizeof line, "%u\n", unit);
    int status = append(o, line, err);
    o->done[unit] = status == QUIRE_OK;
    o->n_done += status == QUIRE_OK;
    return status;
}

/* The folder of a small file: NULL where that is the directory. The caller frees it. */
static char *folder_of(const struct quantizer_output *o, const char *path)
{
    const char *name = path + strlen(o->partial) + 1, *slash = strrchr(name, '/');
    return slash ? strndup(path, (size_t)(slash - path)) : NULL;
}

static int make_folder(const char *folder, struct quire_error *err)
{
    return mkdir(folder, 0777) == 0 || errno == EEXIST ? sync_parent(folder, err)
                                                       : failed(folder, "cannot be created", err);
}

static int write_file(const char *path, const void *data, size_t n, struct quire_error *err)
{
    FILE *f = fopen(path, "we");
    const bool is_written = f && fwrite(data, 1, n, f) == n && fflush(f) == 0 && fsync(fileno(f)) == 0;
    int status = is_written ? QUIRE_OK : failed(path, "cannot be written", err);
    if (f && fclose(f) != 0 && status == QUIRE_OK)
        status = failed(path, "cannot be written", err);
    return status;
}

int quantizer_output_file(struct quantizer_output *o, const char *name, const void *data, size_t n,
                          struct quire_error *err)
{
    char *path;
    if (o->n_files == MAX_FILES)
        return quire_fail(err, QUIRE_UNSUPPORTED, "%.350s: more than %d small files", o->path, MAX_FILES);
    if (asprintf(&path, "%s/%s", o->partial, name) < 0)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    o->files[o->n_files++] = path;
    char *folder = folder_of(o, path);
    int status = folder ? make_folder(folder, err) : QUIRE_OK;
    if (status == QUIRE_OK)
        status = write_file(path, data, n, err);
    if (status == QUIRE_OK && folder)
        status = sync_parent(path, err);
    free(folder);
    return status;
}

const char *quantizer_output_partial(const struct quantizer_output *o)
{
    return o->partial;
}

int quantizer_output_finish(struct quantizer_output *o, struct quire_error *err)
{
    if (o->n_done != o->n_units)
        return quire_fail(err, QUIRE_INTERNAL, "%.350s: %u of %u units are written", o->partial, o->n_done, o->n_units);
    if (fsync(o->data) != 0)
        return failed(o->data_path, "cannot be written", err);
    int status = o->is_directory ? sync_parent(o->data_path, err) : QUIRE_OK;
    if (status != QUIRE_OK)
        return status;
    if (rename(o->partial, o->path) != 0)
        return failed(o->path, "cannot be created", err);
    o->is_finished = true;
    unlink(o->journal);
    return sync_parent(o->path, err);
}

/* A folder goes with the last of its files. */
static void remove_files(const struct quantizer_output *o)
{
    for (uint32_t i = 0; i < o->n_files; i++) {
        char *folder = folder_of(o, o->files[i]);
        unlink(o->files[i]);
        if (folder)
            rmdir(folder);
        free(folder);
    }
}

void quantizer_output_close(struct quantizer_output *o, bool keep)
{
    if (!o)
        return;
    if (!keep && !o->is_finished && o->log >= 0) {
        remove_files(o);
        unlink(o->data_path);
        if (o->is_directory)
            rmdir(o->partial);
        unlink(o->journal);
    }
    if (o->data >= 0)
        close(o->data);
    if (o->log >= 0)
        close(o->log);
    for (uint32_t i = 0; i < o->n_files; i++)
        free(o->files[i]);
    free(o->path);
    free(o->partial);
    free(o->journal);
    free(o->data_path);
    free(o->done);
    free(o);
}
