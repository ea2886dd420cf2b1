/* The option --log-format. Main thread. */
#ifndef QUIRE_APP_COMMAND_LOG_FORMAT_H
#define QUIRE_APP_COMMAND_LOG_FORMAT_H

#include "app/command/cli.h"

/* Parser of the option --log-format text|json. Sets the format of the process; target is not used. */
int serving_parse_log_format(const char *text, void *target, struct quire_error *err);
#define SERVING_LOG_FORMAT_OPTION \
    {.names = "log-format", \
     .kind = CLI_PARSED, \
     .parse = serving_parse_log_format, \
     .value = "text|json", \
     .help = \
         "Format of the log on standard error. json: one object per line (docs/guides/operating.md). Default text."}

#endif
