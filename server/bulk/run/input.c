#include "server/bulk/run/input.h"

#include "base/checksum.h"
#include "base/hash.h"
#include "base/id_map.h"
#include "server/bulk/run/prefix.h"
#include "text/quire_json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)256 << 10)
#define NO_LINE UINT32_MAX
#define LONG_BYTES ((uint64_t)64 << 10)

struct place {
    uint64_t at, n_bytes, number;
    uint32_t repeats; /* the earlier line with its custom_id; NO_LINE */
};

/* A long line as it was read when the input was opened: parsing 16 MiB again takes longer than a caller on the loop may. */
struct long_line {
    uint32_t line;
    uint64_t checksum;
    char *why; /* malloc'd; NULL: the line is good */
    const char *url;
    size_t custom_id_at, n_custom_id, body_at, n_body; /* 0 bytes: absent */
};

struct bulk_input {
    int fd;
    enum bulk_dialect dialect;
    char *url; /* NULL: each line's */
    uint32_t n, capacity, max_lines;
    uint64_t digest;
    struct place *lines;
    struct long_line *long_lines; /* [n_long], by line */
    uint32_t n_long;
    uint32_t *order;
};

/* ---- finding lines -------------------------------------------------------------------------- */

/* The line that is being read. */
struct scan {
    struct bulk_input *in;
    uint64_t begin, number;
    bool has_text; /* more than blanks */
};

static int add_line(struct scan *s, uint64_t end, struct quire_error *err)
{
    struct bulk_input *in = s->in;
    s->number++;
    if (!s->has_text)
        return QUIRE_OK;
    if (in->n == in->max_lines)
        return quire_fail(err, QUIRE_INVALID, "the input has more than %u lines", in->max_lines);
    if (in->n == in->capacity) {
        const uint32_t capacity = in->capacity ? 2 * in->capacity : 1024;
        struct place *more = realloc(in->lines, capacity * sizeof *more);
        if (!more)
            return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
        in->lines = more;
        in->capacity = capacity;
    }
    in->lines[in->n++] = (struct place){s->begin, end - s->begin, s->number, NO_LINE};
    return QUIRE_OK;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static int scan_piece(struct scan *s, uint64_t at, const char *piece, size_t n, struct quire_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (piece[i] == '\n') {
            const int status = add_line(s, at + i, err);
            if (status != QUIRE_OK)
                return status;
            s->begin = at + i + 1;
            s->has_text = false;
            continue;
        }
        if (!s->has_text)
            s->has_text = !is_blank(piece[i]);
        const char *end = s->has_text ? memchr(piece + i, '\n', n - i) : NULL;
        if (s->has_text)
            i = (end ? (size_t)(end - piece) : n) - 1;
    }
    return QUIRE_OK;
}

static int fail_read(struct quire_error *err)
{
    return quire_fail(err, QUIRE_IO, "the input cannot be read: %s", strerror(errno));
}

/* Reads n bytes, or less at the end of the file. Whole pieces, so that the digest does not depend on how they came.
 * Returns -1 on a failure. */
static ssize_t read_at(int fd, char *to, size_t n, uint64_t at)
{
    size_t done = 0;
    while (done < n) {
        const ssize_t got = pread(fd, to + done, n - done, (off_t)(at + done));
        if (got == 0)
            break;
        if (got < 0 && errno != EINTR)
            return -1;
        done += got > 0 ? (size_t)got : 0;
    }
    return (ssize_t)done;
}

static int find_lines(struct bulk_input *in, struct quire_error *err)
{
    static const char mark[] = "\xEF\xBB\xBF"; /* UTF-8's byte order mark: some editors write it */
    struct scan s = {.in = in};
    char *piece = malloc(PIECE_BYTES);
    uint64_t at = 0;
    int status = piece ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    while (status == QUIRE_OK) {
        const ssize_t n = read_at(in->fd, piece, PIECE_BYTES, at);
        if (n < 0)
            status = fail_read(err);
        if (n <= 0)
            break;
        const size_t skip = at == 0 && (size_t)n >= sizeof mark - 1 && memcmp(piece, mark, sizeof mark - 1) == 0 ? 3
                                                                                                                 : 0;
        if (skip)
            s.begin = skip;
        in->digest = quire_checksum(in->digest, piece, (size_t)n);
        status = scan_piece(&s, at + skip, piece + skip, (size_t)n - skip, err);
        at += (uint64_t)n;
    }
    if (status == QUIRE_OK)
        status = add_line(&s, at, err);
    if (status == QUIRE_OK && in->n == 0)
        status = quire_fail(err, QUIRE_INVALID, "the input has no lines");
    free(piece);
    return status;
}

/* ---- reading a line ------------------------------------------------------------------------- */

static int read_text(const struct bulk_input *in, const struct place *p, struct buffer *text, struct quire_error *err)
{
    buffer_clear(text);
    if (p->n_bytes > BULK_MAX_LINE_BYTES)
        return quire_fail(err, QUIRE_INVALID, "the line has %llu bytes; at most %zu are allowed",
                          (unsigned long long)p->n_bytes, BULK_MAX_LINE_BYTES);
    char *to = buffer_reserve(text, (size_t)p->n_bytes);
    if (!to)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    const ssize_t n = read_at(in->fd, to, (size_t)p->n_bytes, p->at);
    if (n < 0)
        return fail_read(err);
    text->n = (size_t)n;
    return text->n == p->n_bytes ? QUIRE_OK : quire_fail(err, QUIRE_INVALID, "the input was cut while it was read");
}

static struct long_line *find_long(const struct bulk_input *in, uint32_t line)
{
    uint32_t low = 0, high = in->n_long;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (in->long_lines[middle].line < line)
            low = middle + 1;
        else
            high = middle;
    }
    return low < in->n_long && in->long_lines[low].line == line ? &in->long_lines[low] : NULL;
}

/* The line is what it was. */
static int recall(const struct long_line *l, const struct buffer *text, struct bulk_line *out, struct quire_error *err)
{
    if (quire_checksum(0, text->data, text->n) != l->checksum)
        return quire_fail(err, QUIRE_INVALID, "the input was changed while it was read");
    *out = (struct bulk_line){.url = l->url, .n_custom_id = l->n_custom_id, .n_body = l->n_body};
    out->custom_id = l->n_custom_id ? text->data + l->custom_id_at : NULL;
    out->body = l->n_body ? text->data + l->body_at : NULL;
    return l->why ? quire_fail(err, QUIRE_INVALID, "%s", l->why) : QUIRE_OK;
}

/* Keeps what bulk_line_read() said. why: of a wrong line; else NULL. */
static int keep_long(struct bulk_input *in, uint32_t line, const struct buffer *text, const struct bulk_line *read,
                     const char *why, struct quire_error *err)
{
    struct long_line *more = realloc(in->long_lines, ((size_t)in->n_long + 1) * sizeof *more);
    char *copy = why ? strdup(why) : NULL;
    if (more)
        in->long_lines = more;
    if (!more || (why && !copy)) {
        free(copy);
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    in->long_lines[in->n_long++] = (struct long_line){
        .line = line,
        .checksum = quire_checksum(0, text->data, text->n),
        .why = copy,
        .url = read->url,
        .custom_id_at = read->custom_id ? (size_t)(read->custom_id - text->data) : 0,
        .n_custom_id = read->custom_id ? read->n_custom_id : 0,
        .body_at = read->body ? (size_t)(read->body - text->data) : 0,
        .n_body = read->body ? read->n_body : 0,
    };
    return QUIRE_OK;
}

static int read_line(const struct bulk_input *in, uint32_t line, struct buffer *text, struct bulk_line *out,
                     struct quire_error *err)
{
    *out = (struct bulk_line){0};
    const int status = read_text(in, &in->lines[line], text, err);
    if (status != QUIRE_OK)
        return status;
    const struct long_line *known = find_long(in, line);
    return known ? recall(known, text, out, err) : bulk_line_read(text->data, text->n, in->dialect, in->url, out, err);
}

int bulk_input_read(const struct bulk_input *in, uint32_t line, struct buffer *text, struct bulk_line *out,
                    struct quire_error *err)
{
    const uint32_t earlier = in->lines[line].repeats;
    const int status = read_line(in, line, text, out, err);
    if (status == QUIRE_OK && earlier != NO_LINE)
        return quire_fail(err, QUIRE_INVALID, "custom_id: line %llu has the same",
                          (unsigned long long)in->lines[earlier].number);
    return status;
}

/* ---- what the lines say --------------------------------------------------------------------- */

/* "a" and "\u0061" are one custom_id: clients read both as a. */
static int hash_custom_id(const struct bulk_line *read, uint64_t *id, struct quire_error *err)
{
    char *text;
    size_t n;
    const struct quire_value string = {read->custom_id, read->n_custom_id};
    const int status = quire_value_text(string, &text, &n, err);
    if (status != QUIRE_OK)
        return status;
    const struct key256 hash = quire_sha256(text, n);
    memcpy(id, hash.bytes, sizeof *id);
    free(text);
    return QUIRE_OK;
}

static int note_custom_id(struct bulk_input *in, uint32_t line, const struct bulk_line *read, struct id_map *seen,
                          struct quire_error *err)
{
    uint64_t id;
    const int status = hash_custom_id(read, &id, err);
    if (status != QUIRE_OK)
        return status;
    const uintptr_t earlier = id_map_find(seen, id);
    if (earlier)
        in->lines[line].repeats = (uint32_t)(earlier - 1);
    else if (id_map_add(seen, id, (uintptr_t)line + 1) != QUIRE_OK)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    return QUIRE_OK;
}

static int read_all(struct bulk_input *in, struct bulk_prefix *prefixes, struct quire_error *err)
{
    struct buffer text = {0};
    struct id_map seen = {0};
    struct bulk_line read;
    struct quire_error ignored;
    int status = QUIRE_OK;
    for (uint32_t i = 0; i < in->n && status == QUIRE_OK; i++) {
        prefixes[i] = (struct bulk_prefix){.line = i};
        const int code = read_line(in, i, &text, &read, &ignored);
        if (code == QUIRE_NO_MEMORY || code == QUIRE_IO)
            status = quire_fail(err, (enum quire_status)code, "%s", ignored.text);
        else if (read.custom_id)
            status = note_custom_id(in, i, &read, &seen, err);
        if (status == QUIRE_OK && text.n > LONG_BYTES)
            status = keep_long(in, i, &text, &read, code == QUIRE_OK ? NULL : ignored.text, err);
        if (read.body)
            bulk_prefix_of(read.body, read.n_body, i, &prefixes[i]);
        if (text.capacity > 4 * PIECE_BYTES)
            buffer_free(&text); /* one long line is no reason to keep its memory */
    }
    buffer_free(&text);
    id_map_free(&seen);
    return status;
}

static int set_order(struct bulk_input *in, struct quire_error *err)
{
    struct bulk_prefix *prefixes = calloc(in->n, sizeof *prefixes);
    in->order = calloc(in->n, sizeof *in->order);
    int status = prefixes && in->order ? read_all(in, prefixes, err)
                                       : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (status == QUIRE_OK) {
        bulk_prefix_sort(prefixes, in->n);
        for (uint32_t i = 0; i < in->n; i++)
            in->order[i] = prefixes[i].line;
    }
    free(prefixes);
    return status;
}

/* ---- opening -------------------------------------------------------------------------------- */

static int open_file(struct bulk_input *in, const char *path, struct quire_error *err)
{
    struct stat st;
    in->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not wait for its writer */
    if (in->fd < 0 || fstat(in->fd, &st) != 0)
        return fail_read(err);
    if (!S_ISREG(st.st_mode))
        return quire_fail(err, QUIRE_IO, "the input must be a regular file");
    return QUIRE_OK;
}

int bulk_input_open(const char *path, enum bulk_dialect dialect, const char *url, uint32_t max_lines,
                    struct bulk_input **out, struct quire_error *err)
{
    struct bulk_input *in = calloc(1, sizeof *in);
    *out = NULL;
    if (!in)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    *in = (struct bulk_input){.fd = -1, .dialect = dialect, .max_lines = max_lines};
    in->url = url ? strdup(url) : NULL;
    const char *kind = dialect == BULK_ANTHROPIC ? BULK_MESSAGES_URL : url ? url : "";
    in->digest = quire_checksum((uint64_t)dialect, kind, strlen(kind));
    int status = url && !in->url ? quire_fail(err, QUIRE_NO_MEMORY, "out of memory") : open_file(in, path, err);
    if (status == QUIRE_OK)
        status = find_lines(in, err);
    if (status == QUIRE_OK)
        status = set_order(in, err);
    if (status != QUIRE_OK) {
        bulk_input_close(in);
        return status;
    }
    *out = in;
    return QUIRE_OK;
}

void bulk_input_close(struct bulk_input *in)
{
    if (!in)
        return;
    if (in->fd >= 0)
        close(in->fd);
    for (uint32_t i = 0; i < in->n_long; i++)
        free(in->long_lines[i].why);
    free(in->long_lines);
    free(in->url);
    free(in->lines);
    free(in->order);
    free(in);
}

uint32_t bulk_input_lines(const struct bulk_input *in)
{
    return in->n;
}

uint64_t bulk_input_digest(const struct bulk_input *in)
{
    return in->digest;
}

uint64_t bulk_input_number(const struct bulk_input *in, uint32_t line)
{
    return in->lines[line].number;
}

const uint32_t *bulk_input_order(const struct bulk_input *in)
{
    return in->order;
}
