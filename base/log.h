/* Log lines on standard error: "2026-01-31T12:00:00.123Z info  engine: text".
 * Any thread; one write(2) a line, so lines of different threads never mix.
 * Libraries log only what an operator must see (start, plan, fatal); errors travel as statuses.
 */
#ifndef QUIRE_BASE_LOG_H
#define QUIRE_BASE_LOG_H

enum quire_log_level { QUIRE_LOG_ERROR, QUIRE_LOG_WARN, QUIRE_LOG_INFO };

/* room: "engine", "server", ... A line longer than 2,000 bytes is cut; control bytes are
 * replaced by '?', so that what a client sent can never forge a line or a terminal sequence. */
void quire_log(enum quire_log_level level, const char *room, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
