#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int quire_fail(struct quire_error *err, enum quire_status status, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
        err->parameter = NULL;
    }
    return (int)status;
}

int quire_fail_for(struct quire_error *err, enum quire_status status, const char *parameter, const char *format, ...)
{
    if (err) {
        va_list args;
        size_t n = strlen(parameter) + 2;
        snprintf(err->text, sizeof err->text, "%s: ", parameter);
        va_start(args, format);
        if (n < sizeof err->text)
            vsnprintf(err->text + n, sizeof err->text - n, format, args);
        va_end(args);
        err->parameter = parameter;
    }
    return (int)status;
}

void quire_error_prefix(struct quire_error *err, const char *format, ...)
{
    if (!err)
        return;
    char old[QUIRE_ERROR_BYTES];
    memcpy(old, err->text, sizeof old);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof err->text)
        snprintf(err->text + n, sizeof err->text - (size_t)n, ": %.*s", (int)(sizeof err->text - (size_t)n), old);
}

const char *quire_status_name(int status)
{
    switch ((enum quire_status)status) {
    case QUIRE_OK: return "ok";
    case QUIRE_INVALID: return "invalid";
    case QUIRE_NOT_FOUND: return "not found";
    case QUIRE_UNSUPPORTED: return "unsupported";
    case QUIRE_EXHAUSTED: return "exhausted";
    case QUIRE_NO_MEMORY: return "out of memory";
    case QUIRE_IO: return "i/o error";
    case QUIRE_INTERNAL: return "internal error";
    case QUIRE_UNAVAILABLE: return "unavailable";
    }
    return "unknown status";
}
