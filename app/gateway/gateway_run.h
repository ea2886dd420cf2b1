/* Runs a gateway until it ends. Main thread. */
#ifndef QUIRE_APP_GATEWAY_GATEWAY_RUN_H
#define QUIRE_APP_GATEWAY_GATEWAY_RUN_H

#include "app/serve/serve_flags.h"

struct gateway_flags {
    struct serve_flags
        *serve; /* of it: http, bulk, and models_file, keys, tenants, log_requests and shutdown_timeout_s of says */
    const char *ledger_file; /* NULL: in memory */
    uint32_t upstream_timeout_s;
};

/* Returns after a signal or the end of an engine in this process. *exit_code: the status of the process if nothing failed
 * to open. */
int gateway_run(struct gateway_flags *flags, int *exit_code, struct quire_error *err);

#endif
