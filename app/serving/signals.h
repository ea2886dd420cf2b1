/* The two signals that end a server. Main thread, on the loop. */
#ifndef QUIRE_APP_SERVING_SIGNALS_H
#define QUIRE_APP_SERVING_SIGNALS_H

#include "app/command/cli.h"
#include "base/status.h"

#include <event2/event.h>

/* The first SIGTERM or SIGINT calls drain(context) on the loop. timeout_s later, give_up(context) is called, and one
 * second after that the loop ends, whatever still runs. A second signal ends the process at once with status 130. */
struct serving_signals;
struct serving_drain {
    void (*drain)(void *context), (*give_up)(void *context);
    void *context;
    uint32_t timeout_s;
};
int serving_signals_begin(struct event_base *base, const struct serving_drain *drain, struct serving_signals **out,
                          struct quire_error *err);
#define SERVING_SHUTDOWN_TIMEOUT_S 30
/* --shutdown-timeout */
struct cli_option serving_shutdown_option(uint32_t *timeout_s);
void serving_signals_end(struct serving_signals *signals);

#endif
