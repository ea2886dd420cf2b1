/* Runs the server of a checked command line until it ends. Main thread. */
#ifndef QUIRE_APP_SERVE_SERVE_H
#define QUIRE_APP_SERVE_SERVE_H

#include "app/serve/serve_flags.h"

/* Returns after a signal or the end of the engine. *exit_code: the status of the process if nothing failed to open. */
int serve_run(struct serve_flags *flags, int *exit_code, struct quire_error *err);

#endif
