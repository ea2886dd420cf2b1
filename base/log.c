#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

void quire_log(enum quire_log_level level, const char *room, const char *format, ...)
{
    static const char *const names[] = {"error", "warn ", "info "};
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);

    char line[2048];
    size_t n = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &utc);
    n += (size_t)snprintf(line + n, sizeof line - n, ".%03ldZ %s %.32s: ", now.tv_nsec / 1000000,
                          names[level], room);
    va_list args;
    va_start(args, format);
    int m = vsnprintf(line + n, sizeof line - n - 1, format, args);
    va_end(args);
    size_t end = m < 0 ? n : n + (size_t)m;
    if (end > sizeof line - 2)
        end = sizeof line - 2;
    for (size_t i = n; i < end; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?';
    line[end++] = '\n';
    if (write(STDERR_FILENO, line, end) < 0) {
        /* nobody is left to tell */
    }
}
