/* A file of exported answers has JSON lines: {"quire_cache": 1, "identity"}, then one entry of POST /cache/entries per
 * line. */
#include "tools/cache/answers.h"
#include "tools/cache/stats_table.h"

#include "base/buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PAGE_BYTES ((size_t)1 << 20) /* of lines sent in one request */
#define MAX_LINE ((size_t)2 << 20)

int answers_stats(struct cache_client *client, bool json, struct quire_error *err)
{
    json_t *reply = NULL;
    int status = cache_client_call(client, "GET", "/cache/stats", NULL, &reply, err);
    if (status == QUIRE_OK && !json)
        stats_table_print(reply);
    else if (status == QUIRE_OK && json_dumpf(reply, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0)
        putchar('\n');
    json_decref(reply);
    return status;
}

int answers_clear(struct cache_client *client, struct quire_error *err)
{
    json_t *reply = NULL, *body = json_object();
    int status = cache_client_call(client, "POST", "/cache/clear", body, &reply, err);
    if (status == QUIRE_OK)
        printf("%" JSON_INTEGER_FORMAT " responses deleted\n", json_integer_value(json_object_get(reply, "removed")));
    json_decref(reply);
    json_decref(body);
    return status;
}

/* Page by page: calls back for each entry, and before the first with the common data. */
static int each_page(struct cache_client *client, bool with_answers,
                     int (*page)(void *context, const json_t *reply, bool first, struct quire_error *err),
                     void *context, struct quire_error *err)
{
    json_int_t from = 0;
    int status = QUIRE_OK;
    for (bool first = true; status == QUIRE_OK && (first || from > 0); first = false) {
        json_t *reply = NULL, *body = json_pack("{s:I,s:b}", "from", from, "answers", with_answers);
        status = cache_client_call(client, "POST", "/cache/entries", body, &reply, err);
        if (status == QUIRE_OK)
            status = page(context, reply, first, err);
        from = json_integer_value(json_object_get(reply, "next"));
        json_decref(reply);
        json_decref(body);
    }
    return status;
}

static long long whole(const json_t *entry, const char *name)
{
    return (long long)json_integer_value(json_object_get(entry, name));
}

static int show_page(void *context, const json_t *reply, bool first, struct quire_error *err)
{
    size_t i;
    json_t *entry;
    const long long now = (long long)time(NULL);
    (void)context;
    (void)err;
    if (first)
        printf("%-64s %9s %9s %8s %8s %8s %8s\n", "key", "age s", "left s", "given", "prompt", "tokens", "bytes");
    json_array_foreach(json_object_get(reply, "entries"), i, entry)
    {
        const char *key = json_string_value(json_object_get(entry, "key"));
        printf("%-64s %9lld %9lld %8lld %8lld %8lld %8lld%s\n", key ? key : "", now - whole(entry, "created_at"),
               whole(entry, "expires_at") - now, whole(entry, "hit_count"), whole(entry, "prompt_tokens"),
               whole(entry, "tokens"), whole(entry, "bytes"),
               json_is_true(json_object_get(entry, "unseeded")) ? " unseeded" : "");
    }
    return QUIRE_OK;
}

int answers_inspect(struct cache_client *client, struct quire_error *err)
{
    return each_page(client, false, show_page, NULL, err);
}

/* ---- files ---------------------------------------------------------------------------------- */

struct exporting {
    const char *path;
    char part[4096]; /* written first and renamed to path when it is complete; "": writes path itself */
    FILE *file; /* NULL until there is something to write */
    size_t n;
};

/* The file is either complete or unchanged: a truncated export would be imported as a smaller one. Answers are private,
 * so only the owner may read the file, whatever its mode was before. */
static int open_export(struct exporting *e, struct quire_error *err)
{
    struct stat there;
    int fd = -1;
    if (stat(e->path, &there) == 0 && !S_ISREG(there.st_mode)) {
        fd = open(e->path, O_WRONLY | O_CLOEXEC);
    } else {
        if ((size_t)snprintf(e->part, sizeof e->part, "%s.XXXXXX", e->path) >= sizeof e->part)
            errno = ENAMETOOLONG;
        else
            fd = mkostemp(e->part, O_CLOEXEC);
        if (fd < 0)
            e->part[0] = '\0';
    }
    e->file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (e->file)
        return QUIRE_OK;
    int status = quire_fail(err, QUIRE_IO, "%s: cannot be written: %m", e->path);
    if (fd >= 0)
        close(fd);
    return status;
}

static int close_export(struct exporting *e, int status, struct quire_error *err)
{
    bool ok = !e->file || (fflush(e->file) == 0 && (!e->part[0] || fsync(fileno(e->file)) == 0));
    if (e->file && e->file != stdout)
        ok = fclose(e->file) == 0 && ok;
    if (ok && status == QUIRE_OK && e->part[0])
        ok = rename(e->part, e->path) == 0;
    if (!ok && status == QUIRE_OK)
        status = quire_fail(err, QUIRE_IO, "%s: cannot be written: %m", e->path);
    if (status != QUIRE_OK && e->part[0])
        unlink(e->part);
    return status;
}

static int write_page(void *context, const json_t *reply, bool first, struct quire_error *err)
{
    struct exporting *e = context;
    size_t i;
    json_t *entry;
    bool ok = true;
    int status = e->file ? QUIRE_OK : open_export(e, err);
    if (status != QUIRE_OK)
        return status;
    if (first) {
        json_t *head = json_pack("{s:i,s:O}", "quire_cache", 1, "identity", json_object_get(reply, "identity"));
        ok = head && json_dumpf(head, e->file, JSON_COMPACT) == 0 && fputc('\n', e->file) != EOF;
        json_decref(head);
    }
    json_array_foreach(json_object_get(reply, "entries"), i, entry)
    {
        ok = ok && json_dumpf(entry, e->file, JSON_COMPACT) == 0 && fputc('\n', e->file) != EOF;
        e->n++;
    }
    return ok ? QUIRE_OK : quire_fail(err, QUIRE_IO, "the file cannot be written: %m");
}

int answers_export(struct cache_client *client, const char *file, struct quire_error *err)
{
    struct exporting e = {.path = file, .file = strcmp(file, "-") == 0 ? stdout : NULL};
    int status = close_export(&e, each_page(client, true, write_page, &e, err), err);
    if (status == QUIRE_OK)
        fprintf(stderr, "%zu answers\n", e.n);
    return status;
}

struct importing {
    struct cache_client *client;
    json_t *identity, *entries;
    size_t n_bytes;
    long long n_imported, n_refused;
};

static int send_page(struct importing *m, struct quire_error *err)
{
    json_t *reply = NULL;
    if (json_array_size(m->entries) == 0)
        return QUIRE_OK;
    json_t *body = json_pack("{s:O,s:O}", "identity", m->identity, "entries", m->entries);
    int status = cache_client_call(m->client, "POST", "/cache/import", body, &reply, err);
    m->n_imported += whole(reply, "imported");
    m->n_refused += whole(reply, "refused");
    json_decref(reply);
    json_decref(body);
    json_array_clear(m->entries);
    m->n_bytes = 0;
    return status;
}

static int take_line(struct importing *m, const char *line, size_t n, size_t number, struct quire_error *err)
{
    char what[48];
    json_t *value = NULL;
    snprintf(what, sizeof what, "line %zu", number);
    int status = quire_json_parse(line, n, 8, what, &value, err);
    if (status != QUIRE_OK)
        return status;
    if (number == 1) {
        m->identity = json_incref(json_object_get(value, "identity"));
        if (json_integer_value(json_object_get(value, "quire_cache")) != 1 || !json_is_string(m->identity))
            status = quire_fail(err, QUIRE_INVALID, "it was not written by quire cache export, or has another version");
        json_decref(value);
        return status;
    }
    json_array_append_new(m->entries, value);
    m->n_bytes += n;
    return m->n_bytes >= PAGE_BYTES ? send_page(m, err) : QUIRE_OK;
}

/* Reads the next line, of at most MAX_LINE; *n 0 at the end. The file may be anything, such as /dev/zero. */
static int read_line(FILE *f, char line[MAX_LINE], size_t *n, size_t number, struct quire_error *err)
{
    int c = 0;
    *n = 0;
    while (*n < MAX_LINE && c != '\n' && (c = getc_unlocked(f)) != EOF)
        line[(*n)++] = (char)c;
    if (ferror(f))
        return quire_fail(err, QUIRE_IO, "line %zu: cannot be read: %m", number);
    return *n < MAX_LINE || c == '\n' ? QUIRE_OK : quire_fail(err, QUIRE_INVALID, "line %zu: is too long", number);
}

int answers_import(struct cache_client *client, const char *file, struct quire_error *err)
{
    FILE *f = strcmp(file, "-") == 0 ? stdin : fopen(file, "r");
    struct importing m = {.client = client, .entries = json_array()};
    char *line = malloc(MAX_LINE);
    size_t number = 0, n = 1;
    int status = f ? QUIRE_OK : quire_fail(err, QUIRE_NOT_FOUND, "%s: cannot be opened: %m", file);
    if (status == QUIRE_OK && !line)
        status = quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    while (status == QUIRE_OK && n > 0) {
        status = read_line(f, line, &n, number + 1, err);
        if (status == QUIRE_OK && n > 0)
            status = take_line(&m, line, n, ++number, err);
    }
    if (status == QUIRE_OK && number == 0)
        status = quire_fail(err, QUIRE_INVALID, "%s: is empty", file);
    if (status == QUIRE_OK)
        status = send_page(&m, err);
    if (status == QUIRE_OK)
        printf("%lld responses imported, %lld rejected: expired or invalid\n", m.n_imported, m.n_refused);
    free(line);
    if (f && f != stdin)
        fclose(f);
    json_decref(m.identity);
    json_decref(m.entries);
    return status;
}
