/* Writes log lines to standard error, as text or as JSON with one object per line:
 *     2026-01-31T12:00:00.123Z info  engine: text key=value
 *     {"ts":"2026-01-31T12:00:00.123Z","level":"info","module":"engine","room":"engine","key":"value","msg":"text"}
 * `room` is the old name of `module`, written for one release.
 * Any thread. Each line is one write(2), so lines of different threads never mix.
 * Libraries log only what an operator must see (start, plan, fatal errors). They return errors as statuses.
 */
#ifndef QUIRE_BASE_LOG_H
#define QUIRE_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

enum quire_log_level { QUIRE_LOG_ERROR, QUIRE_LOG_WARN, QUIRE_LOG_INFO, QUIRE_LOG_DEBUG };
enum quire_log_format { QUIRE_LOG_AS_TEXT, QUIRE_LOG_AS_JSON };

/* Selects the format for the whole process. Call it before the process starts threads. The default is text. */
void quire_log_set_format(enum quire_log_format format);
enum quire_log_format quire_log_format(void);

/* Whether lines of QUIRE_LOG_DEBUG are written: details of the start that only some operators need. Before threads start;
 * the default is no. */
void quire_log_set_verbose(bool verbose);

/* module: the module's name: "engine", "server", ... A line longer than 4,096 bytes loses the end of its message. Client
 * data cannot forge a line, a field or a terminal sequence: in text, control bytes become '?'; in JSON, lines stay
 * valid JSON and valid UTF-8. */
void quire_log(enum quire_log_level level, const char *module, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A key and value that a line carries in addition to its message. */
struct quire_log_field {
    const char *key;
    const char *text; /* at most 200 bytes are written; NULL selects the number */
    double number;
};
/* A field that does not fit is omitted as a whole. */
void quire_log_fields(enum quire_log_level level, const char *module, const struct quire_log_field *fields,
                      size_t n_fields, const char *format, ...) __attribute__((format(printf, 5, 6)));

#endif
