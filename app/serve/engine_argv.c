#include "app/serve/engine_argv.h"

#include "base/log.h"

#include <stdlib.h>

int engine_argv_make(const struct serve_settings *says, const struct cli_command *command, int argc, char **argv,
                     const struct cli_option *rows, size_t n_rows, char ***out, struct quire_error *err)
{
    static char quire[] = "quire", engine[] = "engine", listen[] = "--listen", key[] = "--engine-key-file",
                tenants[] = "--tenants", silent[] = "--disable-log-stats", json[] = "--log-format=json", end[] = "--";
    char **to = *out = calloc((size_t)argc + 2 * says->listen.n + 16, sizeof *to);
    if (!to)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    *to++ = quire;
    *to++ = engine;
    to += cli_pick(command, argc, argv, rows, n_rows, to);
    for (size_t i = 0; i < says->listen.n; i++) {
        *to++ = listen;
        *to++ = (char *)(uintptr_t)says->listen.items[i];
    }
    if (says->key_file) {
        *to++ = key;
        *to++ = (char *)(uintptr_t)says->key_file;
    }
    if (says->tenants_file) {
        *to++ = tenants;
        *to++ = (char *)(uintptr_t)says->tenants_file;
    }
    if (says->disable_log_stats)
        *to++ = silent;
    if (quire_log_format() == QUIRE_LOG_AS_JSON)
        *to++ = json;
    *to++ = end;
    *to = (char *)(uintptr_t)says->given;
    return QUIRE_OK;
}
