/* Log lines on standard error, as text or, one object a line, as JSON:
 *     2026-01-31T12:00:00.123Z info  engine: text key=value
 *     {"ts":"2026-01-31T12:00:00.123Z","level":"info","room":"engine","key":"value","msg":"text"}
 * Any thread; one write(2) a line, so lines of different threads never mix.
 * Libraries log only what an operator must see (start, plan, fatal); errors travel as statuses.
 */
#ifndef QUIRE_BASE_LOG_H
#define QUIRE_BASE_LOG_H

#include <stddef.h>

enum quire_log_level { QUIRE_LOG_ERROR, QUIRE_LOG_WARN, QUIRE_LOG_INFO };
enum quire_log_format { QUIRE_LOG_AS_TEXT, QUIRE_LOG_AS_JSON };

/* Text until it is called; of the process, before it has threads. */
void quire_log_set_format(enum quire_log_format format);
enum quire_log_format quire_log_format(void);

/* room: "engine", "server", ... A line longer than 4,096 bytes is cut, at the end of its message. What a client sent can
 * never forge a line, a field or a terminal sequence: in text, control bytes are replaced by '?'; JSON stays valid and
 * UTF-8 whatever it holds. */
void quire_log(enum quire_log_level level, const char *room, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* What a line says besides its message. */
struct quire_log_field {
    const char *key;
    const char *text; /* at most 200 bytes of it; NULL: the number */
    double number;
};
/* A field that has no room is left out whole. */
void quire_log_fields(enum quire_log_level level, const char *room, const struct quire_log_field *fields,
                      size_t n_fields, const char *format, ...) __attribute__((format(printf, 5, 6)));

#endif
