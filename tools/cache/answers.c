/* A file of exported answers is lines of JSON: {"quire_cache": 1, "identity"} and then an entry of POST /cache/entries each. */
#include "tools/cache/answers.h"

#include "base/buffer.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PAGE_BYTES ((size_t)1 << 20) /* of lines that are sent at once */
#define MAX_LINE ((size_t)2 << 20)

int answers_stats(struct cache_client *client, struct quire_error *err)
{
    json_t *reply = NULL;
    int status = cache_client_call(client, "GET", "/cache/stats", NULL, &reply, err);
    if (status == QUIRE_OK && json_dumpf(reply, stdout, JSON_INDENT(2)) == 0)
        putchar('\n');
    json_decref(reply);
    return status;
}

int answers_clear(struct cache_client *client, struct quire_error *err)
{
    json_t *reply = NULL, *body = json_object();
    int status = cache_client_call(client, "POST", "/cache/clear", body, &reply, err);
    if (status == QUIRE_OK)
        printf("%" JSON_INTEGER_FORMAT " answers are forgotten\n",
               json_integer_value(json_object_get(reply, "removed")));
    json_decref(reply);
    json_decref(body);
    return status;
}

/* Page by page: each says what is done with one, and with what all of them share before the first. */
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
    FILE *
        file; /* NULL until there is something to write: what a file had is not lost to a server that cannot be asked */
    size_t n;
};

/* Answers are whoever asked's: the file is its owner's alone. */
static int open_export(struct exporting *e, struct quire_error *err)
{
    int fd = open(e->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    e->file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (e->file)
        return QUIRE_OK;
    int status = quire_fail(err, QUIRE_IO, "%s: cannot be written: %m", e->path);
    if (fd >= 0)
        close(fd);
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
    const bool is_out = strcmp(file, "-") == 0;
    struct exporting e = {.path = file, .file = is_out ? stdout : NULL};
    int status = each_page(client, true, write_page, &e, err);
    if (e.file && (is_out ? fflush(e.file) : fclose(e.file)) != 0 && status == QUIRE_OK)
        status = quire_fail(err, QUIRE_IO, "%s: cannot be written: %m", file);
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
            status = quire_fail(err, QUIRE_INVALID, "it is no file of quire cache export, or of another version");
        json_decref(value);
        return status;
    }
    json_array_append_new(m->entries, value);
    m->n_bytes += n;
    return m->n_bytes >= PAGE_BYTES ? send_page(m, err) : QUIRE_OK;
}

int answers_import(struct cache_client *client, const char *file, struct quire_error *err)
{
    FILE *f = strcmp(file, "-") == 0 ? stdin : fopen(file, "r");
    struct importing m = {.client = client, .entries = json_array()};
    char *line = NULL;
    size_t room = 0, number = 0;
    ssize_t n;
    int status = f ? QUIRE_OK : quire_fail(err, QUIRE_NOT_FOUND, "%s: cannot be opened: %m", file);
    while (status == QUIRE_OK && (n = getline(&line, &room, f)) > 0) {
        number++;
        status = (size_t)n > MAX_LINE ? quire_fail(err, QUIRE_INVALID, "line %zu: is too long", number)
                                      : take_line(&m, line, (size_t)n, number, err);
    }
    if (status == QUIRE_OK && number == 0)
        status = quire_fail(err, QUIRE_INVALID, "%s: is empty", file);
    if (status == QUIRE_OK)
        status = send_page(&m, err);
    if (status == QUIRE_OK)
        printf("%lld answers taken over, %lld refused: too old, or none\n", m.n_imported, m.n_refused);
    free(line);
    if (f && f != stdin)
        fclose(f);
    json_decref(m.identity);
    json_decref(m.entries);
    return status;
}
