#include "app/serving/signals.h"

#include "base/log.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define LAST_WORDS_S 1 /* time for the error replies to leave */

struct serving_signals {
    struct event_base *base;
    struct event *events[2], *expired;
    struct serving_drain drain;
    bool draining;
};

struct cli_option serving_shutdown_option(uint32_t *timeout_s)
{
    *timeout_s = SERVING_SHUTDOWN_TIMEOUT_S;
    return (struct cli_option){
        .names = "shutdown-timeout",
        .kind = CLI_U32,
        .target = timeout_s,
        .max = 86400,
        .value = "SECONDS",
        .help = "Time limit for running requests after SIGTERM. They then end with an error. Default 30."};
}

static void on_expired(evutil_socket_t fd, short what, void *context)
{
    struct serving_signals *signals = context;
    const struct timeval soon = {.tv_sec = LAST_WORDS_S};
    (void)fd;
    (void)what;
    quire_log(QUIRE_LOG_WARN, "quire", "after %u s (--shutdown-timeout), the remaining requests are cancelled",
              signals->drain.timeout_s);
    signals->drain.give_up(signals->drain.context);
    event_base_loopexit(signals->base, &soon);
}

static void on_signal(evutil_socket_t number, short what, void *context)
{
    struct serving_signals *signals = context;
    (void)what;
    if (signals->draining) {
        /* The kernel frees the process's resources and closes its sockets. The second signal gives up running requests.
         */
        quire_log(QUIRE_LOG_WARN, "quire", "second signal %d: exiting now", (int)number);
        _exit(130);
    }
    signals->draining = true;
    quire_log(QUIRE_LOG_INFO, "quire", "signal %d: finishing running requests; a second signal exits at once",
              (int)number);
    const struct timeval deadline = {.tv_sec = (time_t)signals->drain.timeout_s};
    event_add(signals->expired, &deadline);
    signals->drain.drain(signals->drain.context);
}

int serving_signals_begin(struct event_base *base, const struct serving_drain *drain, struct serving_signals **out,
                          struct quire_error *err)
{
    static const int numbers[2] = {SIGTERM, SIGINT};
    struct serving_signals *signals = calloc(1, sizeof *signals);
    *out = signals;
    if (!signals)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    signals->base = base;
    signals->drain = *drain;
    signals->expired = evtimer_new(base, on_expired, signals);
    if (!signals->expired)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    for (int i = 0; i < 2; i++) {
        signals->events[i] = evsignal_new(base, numbers[i], on_signal, signals);
        if (!signals->events[i] || evsignal_add(signals->events[i], NULL) != 0)
            return quire_fail(err, QUIRE_INTERNAL, "signals cannot be watched");
    }
    return QUIRE_OK;
}

void serving_signals_end(struct serving_signals *signals)
{
    if (!signals)
        return;
    for (int i = 0; i < 2; i++)
        if (signals->events[i])
            event_free(signals->events[i]);
    if (signals->expired)
        event_free(signals->expired);
    free(signals);
}
