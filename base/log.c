#include "base/log.h"

#include "base/clock.h"
#include "base/encoding/utf8.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* PIPE_BUF, so that processes that share a pipe do not split each other's lines. */
#define LINE_BYTES 4096
#define MESSAGE_BYTES 2000
#define FIELD_BYTES 200

static enum quire_log_format log_format;
static bool log_verbose;

void quire_log_set_format(enum quire_log_format format)
{
    log_format = format;
}

enum quire_log_format quire_log_format(void)
{
    return log_format;
}

void quire_log_set_verbose(bool verbose)
{
    log_verbose = verbose;
}

struct line {
    char bytes[LINE_BYTES];
    size_t n, limit; /* the line ends before limit */
};

static bool put(struct line *l, const char *text, size_t n)
{
    if (n > l->limit - l->n)
        return false;
    memcpy(l->bytes + l->n, text, n);
    l->n += n;
    return true;
}

static bool put_text(struct line *l, const char *text)
{
    return put(l, text, strlen(text));
}

/* Appends text escaped for JSON. Stops where the line is full. */
static bool put_escaped(struct line *l, const char *text, size_t n)
{
    bool fits = true;
    for (size_t i = 0, length; i < n && fits; i += length) {
        char escape[8];
        unsigned char c = (unsigned char)text[i];
        length = utf8_character((const uint8_t *)text + i, n - i);
        if (length == 0) {
            length = 1;
            fits = put_text(l, "\xef\xbf\xbd");
        } else if (c < 0x20 || c == 0x7f) {
            snprintf(escape, sizeof escape, "\\u%04x", c);
            fits = put_text(l, escape);
        } else if (c == '"' || c == '\\') {
            snprintf(escape, sizeof escape, "\\%c", c);
            fits = put_text(l, escape);
        } else {
            fits = put(l, text + i, length);
        }
    }
    return fits;
}

static bool put_quoted(struct line *l, const char *text, size_t n)
{
    return put_text(l, "\"") && put_escaped(l, text, n) && put_text(l, "\"");
}

/* In text format, quotes a value that could be read as something else. */
static bool put_value(struct line *l, const struct quire_log_field *f)
{
    char number[40];
    if (!f->text) {
        snprintf(number, sizeof number, "%.15g", f->number);
        return put_text(l, number);
    }
    size_t n = strnlen(f->text, FIELD_BYTES);
    size_t plain = strspn(f->text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/+");
    if (log_format == QUIRE_LOG_AS_TEXT && n > 0 && plain >= n)
        return put(l, f->text, n);
    return put_quoted(l, f->text, n);
}

static void put_field(struct line *l, const struct quire_log_field *f)
{
    bool json = log_format == QUIRE_LOG_AS_JSON;
    size_t before = l->n;
    if (!put_text(l, json ? ",\"" : " ") || !put_text(l, f->key) || !put_text(l, json ? "\":" : "=") ||
        !put_value(l, f))
        l->n = before;
}

static void put_message(struct line *l, const char *message, size_t n)
{
    if (log_format == QUIRE_LOG_AS_JSON) {
        put_escaped(l, message, n);
        return;
    }
    size_t begin = l->n;
    put(l, message, n);
    for (size_t i = begin; i < l->n; i++)
        if ((unsigned char)l->bytes[i] < 0x20 || l->bytes[i] == 0x7f)
            l->bytes[i] = '?';
}

static void put_head(struct line *l, enum quire_log_level level, const char *module)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    char time[40], head[160];
    struct timespec now = quire_until_ns(quire_wall_ns());
    struct tm utc;
    gmtime_r(&now.tv_sec, &utc);
    size_t n = strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(time + n, sizeof time - n, ".%03ldZ", now.tv_nsec / 1000000);
    snprintf(head, sizeof head,
             log_format == QUIRE_LOG_AS_JSON ? "{\"ts\":\"%s\",\"level\":\"%s\",\"module\":\"%.32s\",\"room\":\"%.32s\""
                                             : "%s %-5s %.32s: ",
             time, names[level], module, module);
    put_text(l, head);
}

static void write_line(enum quire_log_level level, const char *module, const struct quire_log_field *fields,
                       size_t n_fields, const char *format, va_list args)
{
    char message[MESSAGE_BYTES];
    if (level == QUIRE_LOG_DEBUG && !log_verbose)
        return;
    struct line l = {.limit = LINE_BYTES - 1}; /* leaves space for the newline */
    int m = vsnprintf(message, sizeof message, format, args);
    size_t n = m < 0 ? 0 : (size_t)m < sizeof message ? (size_t)m : sizeof message - 1;
    put_head(&l, level, module);
    if (log_format == QUIRE_LOG_AS_TEXT)
        put_message(&l, message, n);
    /* In JSON the message comes last. Only the message may be cut, and the closing brace still fits. */
    if (log_format == QUIRE_LOG_AS_JSON)
        l.limit -= strlen(",\"msg\":\"\"}");
    for (size_t i = 0; i < n_fields; i++)
        put_field(&l, &fields[i]);
    if (log_format == QUIRE_LOG_AS_JSON) {
        l.limit += strlen(",\"msg\":\"");
        put_text(&l, ",\"msg\":\"");
        put_message(&l, message, n);
        l.limit += strlen("\"}");
        put_text(&l, "\"}");
    }
    l.bytes[l.n++] = '\n';
    if (write(STDERR_FILENO, l.bytes, l.n) < 0) {
        /* standard error is gone, so there is no place to report this */
    }
}

void quire_log(enum quire_log_level level, const char *module, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_line(level, module, NULL, 0, format, args);
    va_end(args);
}

void quire_log_fields(enum quire_log_level level, const char *module, const struct quire_log_field *fields,
                      size_t n_fields, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    write_line(level, module, fields, n_fields, format, args);
    va_end(args);
}
