#include "app/command/log_format.h"

#include "base/log.h"

#include <string.h>

int serving_parse_log_format(const char *text, void *target, struct quire_error *err)
{
    (void)target;
    bool json = strcmp(text, "json") == 0;
    if (!json && strcmp(text, "text") != 0)
        return quire_fail(err, QUIRE_INVALID, "must be text or json, got %s", text);
    quire_log_set_format(json ? QUIRE_LOG_AS_JSON : QUIRE_LOG_AS_TEXT);
    return QUIRE_OK;
}
