#include "app/serving/death.h"

#include "base/log.h"
#include "engine/engine.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct serving_death {
    struct engine_watch watch;
    void (*died)(void *context, const char *why);
    void *context;
    struct event_base *base;
    struct event *told, *leave, *look; /* look: NULL before serving_death_mind() */
    int fd;
    atomic_bool is_said;
    char said[QUIRE_ERROR_BYTES]; /* written by the thread that set it; read after fd is readable */
    const struct engine *engine;
    uint32_t n_over; /* consecutive looks */
    bool is_hung;
    struct quire_error why;
};

/* Time for the error replies to leave: with the 4 s until a hung rank is detected, the process ends within 5 s. */
#define DEATH_WORDS_MS 600
/* The engine notices the end of its group within a fifth of a second, unless it computes. */
#define LOOK_EVERY_MS 125
#define MOST_OVER 4

static void say(struct serving_death *death, const char *reason)
{
    const uint64_t one = 1;
    if (atomic_exchange(&death->is_said, true))
        return;
    snprintf(death->said, sizeof death->said, "%s", reason);
    quire_log(QUIRE_LOG_ERROR, "quire", "the engine has stopped (%s): exiting with status 1", reason);
    if (write(death->fd, &one, sizeof one) != sizeof one)
        quire_log(QUIRE_LOG_ERROR, "quire", "the event loop could not be notified: %m");
}

/* On the engine's thread. */
static void on_died(void *context, const char *reason)
{
    say(context, reason);
}

static void on_look(evutil_socket_t fd, short what, void *context)
{
    struct serving_death *death = context;
    const struct timeval soon = {.tv_usec = LOOK_EVERY_MS * 1000};
    (void)fd;
    (void)what;
    if (atomic_load(&death->is_said))
        return;
    death->n_over = engine_check(death->engine, &death->why) == QUIRE_OK ? 0 : death->n_over + 1;
    if (death->n_over < MOST_OVER) {
        event_add(death->look, &soon);
        return;
    }
    death->is_hung = true;
    say(death, death->why.text);
}

static void on_told(evutil_socket_t fd, short what, void *context)
{
    struct serving_death *death = context;
    const struct timeval soon = {.tv_usec = DEATH_WORDS_MS * 1000};
    (void)fd;
    (void)what;
    if (death->died)
        death->died(death->context, death->said);
    event_add(death->leave, &soon);
}

static void on_leave(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    event_base_loopbreak(((struct serving_death *)context)->base);
}

int serving_death_begin(struct event_base *base, void (*died)(void *context, const char *why), void *context,
                        struct serving_death **out, struct quire_error *err)
{
    struct serving_death *death = calloc(1, sizeof *death);
    *out = death;
    if (!death)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    death->watch = (struct engine_watch){.context = death, .died = on_died};
    death->base = base;
    death->died = died;
    death->context = context;
    death->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (death->fd >= 0)
        death->told = event_new(base, death->fd, EV_READ, on_told, death);
    death->leave = evtimer_new(base, on_leave, death);
    if (!death->told || !death->leave || event_add(death->told, NULL) != 0)
        return quire_fail(err, QUIRE_INTERNAL, "the engine cannot be watched");
    return QUIRE_OK;
}

int serving_death_mind(struct serving_death *death, const struct engine *engine, struct quire_error *err)
{
    death->engine = engine;
    death->look = evtimer_new(death->base, on_look, death);
    if (!death->look)
        return quire_fail(err, QUIRE_INTERNAL, "the engine cannot be watched");
    on_look(-1, 0, death);
    return QUIRE_OK;
}

const char *serving_death_hangs(const struct serving_death *death)
{
    return death && death->is_hung ? death->why.text : NULL;
}

void serving_death_leave(const struct serving_death *death)
{
    if (serving_death_hangs(death))
        _exit(1);
}

const struct engine_watch *serving_death_watch(struct serving_death *death)
{
    return &death->watch;
}

bool serving_death_was(const struct serving_death *death)
{
    return death && poll(&(struct pollfd){.fd = death->fd, .events = POLLIN}, 1, 0) == 1;
}

void serving_death_end(struct serving_death *death)
{
    if (!death)
        return;
    if (death->told)
        event_free(death->told);
    if (death->leave)
        event_free(death->leave);
    if (death->look)
        event_free(death->look);
    if (death->fd >= 0)
        close(death->fd);
    free(death);
}
