/* The end of the server: SIGTERM and SIGINT finish the running requests. Main thread, on the loop. */
#ifndef QUIRE_APP_SERVE_SERVE_DRAIN_H
#define QUIRE_APP_SERVE_SERVE_DRAIN_H

#include "app/serve/serve_state.h"

/* Sets s->signals. */
int serve_drain_begin(struct serve *s, struct quire_error *err);

#endif
