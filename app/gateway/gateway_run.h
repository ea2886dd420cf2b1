/* Runs a gateway until it ends. Main thread. */
#ifndef QUIRE_APP_GATEWAY_GATEWAY_RUN_H
#define QUIRE_APP_GATEWAY_GATEWAY_RUN_H

#include "app/serve/serve_flags.h"

struct gateway_flags {
    struct http_settings http;
    struct serve_settings says; /* of it: models_file, keys, tenants, log_requests, shutdown_timeout_s */
    struct serve_flags serve;   /* http and says only */
    const char *ledger_file;    /* NULL: in memory */
    uint32_t upstream_timeout_s;
};

/* Returns after a signal or the end of an engine in this process. *exit_code: the status of the process if nothing failed
 * to open. */
int gateway_run(struct gateway_flags *flags, int *exit_code, struct quire_error *err);

#endif
