/* Runs the server of a checked command line until it ends. Main thread. */
#ifndef QUIRE_APP_SERVE_SERVE_H
#define QUIRE_APP_SERVE_SERVE_H

#include "app/serve/serve_flags.h"

struct serve;

/* Returns after a signal or the end of the engine. *exit_code: the status of the process if nothing failed to open. */
int serve_run(struct serve_flags *flags, int *exit_code, struct quire_error *err);

/* The parts of a server (serve_state.h), in order. Within a gateway, s->base and s->tenants are set and stay the
 * gateway's. serve_close() is needed in any case. */
int serve_open(struct serve *s, struct quire_error *err);
void serve_close(struct serve *s);

#endif
