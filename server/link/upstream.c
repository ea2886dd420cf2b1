#include "server/link/upstream.h"

#include "base/clock.h"
#include "base/log.h"
#include "server/link/engine_client.h"
#include "server/link/heartbeat.h"
#include "server/link/supervisor.h"
#include "server/wire/frame.h"
#include "server/wire/key.h"

#include <stdlib.h>
#include <string.h>

#define CONNECT_TIMEOUT_MS 5000
#define RECONNECT_TIMEOUT_MS 200 /* the loop blocks while it connects */
#define RECONNECT_EVERY_S 1
#define SAY_EVERY_S 10

struct upstream {
    struct event_base *base;
    const struct upstream_user *user;
    void *user_context;
    struct upstream_identity identity;
    struct upstream_owner owner;

    enum upstream_state state;
    struct engine_client *client; /* NULL: not connected yet; a lost client stays until the next is attached */
    bool is_connected, was_ready;
    bool is_draining; /* this front end */
    bool hangs; /* FAILED, and the loop is left in a moment */
    uint64_t returns_ms;
    uint32_t n_restarts;

    const char *address; /* NULL: not connected by address */
    struct event *reconnect; /* with an address */
    struct heartbeat *heartbeat; /* likewise, only with an address */
    double said_waiting; /* time of the last message about waiting for the first engine; 0: never */
    struct supervisor *supervisor; /* NULL: the engine is not a child process */
};

/* ---- events for the owner ---- */

static void lost(struct upstream *u, const char *what, const char *why)
{
    if (u->owner.lost)
        u->owner.lost(u->owner.context, what, why);
}

/* Only for the first engine, at intervals. */
static void say_waiting(struct upstream *u, const char *why)
{
    size_t n = strlen(u->address);
    if (strncmp(why, u->address, n) == 0 && why[n] == ':') /* the log line already has the address */
        why += n + 1 + strspn(why + n + 1, " ");
    if (u->was_ready || (u->said_waiting > 0 && quire_now_s() - u->said_waiting < SAY_EVERY_S))
        return;
    u->said_waiting = quire_now_s();
    if (u->owner.waiting)
        u->owner.waiting(u->owner.context, why);
}

/* Tries again to connect to the engine after a delay. */
static void wait_for_it(struct upstream *u, const char *why)
{
    const struct timeval soon = {.tv_sec = RECONNECT_EVERY_S};
    say_waiting(u, why);
    event_add(u->reconnect, &soon);
}

/* ---- the connection ------------------------------------------------------------------------- */

static void on_ready(void *context, const struct wire_hello *hello)
{
    struct upstream *u = context;
    const bool is_first = !u->was_ready;
    if (!u->user->on_ready(u->user_context, hello)) {
        engine_client_give_up(u->client, "out of memory for the facts of the engine's model");
        return;
    }
    u->is_connected = u->was_ready = true;
    u->returns_ms = 0;
    if (u->state != UPSTREAM_FAILED)
        u->state = UPSTREAM_READY;
    if (u->owner.ready)
        u->owner.ready(u->owner.context, is_first);
    if (u->heartbeat)
        heartbeat_begin(u->heartbeat);
}

static void on_stats(void *context, const struct wire_stats *stats)
{
    struct upstream *u = context;
    u->user->on_stats(u->user_context, stats);
}

static void on_control(void *context, const struct wire_refuse *refuse)
{
    struct upstream *u = context;
    u->user->on_control(u->user_context, refuse);
}

static void on_drain(void *context)
{
    struct upstream *u = context;
    if (u->state == UPSTREAM_READY)
        u->state = UPSTREAM_DRAINING;
}

static void not_connected(struct upstream *u)
{
    u->is_connected = false;
    if (u->state == UPSTREAM_READY || u->state == UPSTREAM_DRAINING)
        u->state = u->returns_ms > 0 ? UPSTREAM_RESTARTING : UPSTREAM_GONE;
}

static void on_closed(void *context, const char *why)
{
    struct upstream *u = context;
    not_connected(u);
    u->user->on_closed(u->user_context);
    if (u->heartbeat)
        heartbeat_end(u->heartbeat);
    if (u->hangs)
        return;
    if (u->is_draining) {
        if (u->supervisor) /* with the process; the death of an in-process engine logs it itself */
            lost(u, "the engine is unavailable", why);
    } else if (u->address && !engine_client_spoke(u->client)) { /* the engine is absent or still stopped */
        wait_for_it(u, why);
    } else if (u->supervisor) {
        quire_log(QUIRE_LOG_ERROR, "server", "the engine is unavailable: %s", why);
        supervisor_lost(u->supervisor);
    } else if (u->address && u->was_ready) {
        quire_log(QUIRE_LOG_ERROR, "server", "the engine is unavailable: %s", why);
        wait_for_it(u, why);
    } else { /* the engine rejected us, or lived in this process: the server cannot continue */
        lost(u, "the engine is unavailable", why);
    }
}

/* A stopped engine at an address: its system still accepts connections, which would pile up there. */
static bool on_silent(void *context)
{
    struct upstream *u = context;
    if (!u->address)
        return false;
    say_waiting(u, "it accepts connections but sends no data");
    return true;
}

static const char *why_ended(void *context)
{
    const struct upstream *u = context;
    return u->supervisor ? supervisor_how_ended(u->supervisor) : NULL;
}

int upstream_attach(struct upstream *u, struct wire_stream *stream, struct quire_error *err)
{
    static const struct engine_client_events events = {on_ready,  on_stats,  on_control, on_drain,
                                                       on_closed, on_silent, why_ended};
    const struct upstream_identity *identity = &u->identity;
    const struct wire_hello ours = {
        .version = WIRE_VERSION,
        .identity_text = identity->text,
        .identity_config = identity->config,
        .identity_generation = identity->generation,
        .model = identity->model,
        .n_model = strlen(identity->model),
        .arithmetic = identity->arithmetic,
        .n_arithmetic = identity->arithmetic ? strlen(identity->arithmetic) : 0,
    };
    u->user->on_replace(u->user_context);
    engine_client_close(u->client);
    u->client = NULL;
    not_connected(u);
    int status = engine_client_open(u->base, stream, &ours, u->address ? identity->key_file : NULL, &events, u,
                                    &u->client, err);
    u->user->on_replaced(u->user_context);
    return status;
}

/* ---- at an address -------------------------------------------------------------------------- */

/* Connects to the engine at the address. An absent engine is waited for, also the first time, so that the two may be
 * started in any order. Errors that waiting cannot fix fail: an invalid address, or a key that cannot be read. */
static int look_for_it(struct upstream *u, int timeout_ms, struct quire_error *err)
{
    struct quire_error why;
    int fd;
    int status = engine_client_connect(u->address, timeout_ms, &fd, &why);
    if (status == QUIRE_OK)
        return upstream_attach(u, wire_stream_of_socket(u->base, fd), err);
    if (status != QUIRE_IO && status != QUIRE_NOT_FOUND) {
        if (err)
            *err = why;
        return status;
    }
    wait_for_it(u, why.text);
    return QUIRE_OK;
}

static void on_reconnect(evutil_socket_t fd, short what, void *context)
{
    struct upstream *u = context;
    struct quire_error err;
    (void)fd;
    (void)what;
    if (u->is_draining || look_for_it(u, RECONNECT_TIMEOUT_MS, &err) == QUIRE_OK)
        return;
    if (u->was_ready)
        wait_for_it(u, err.text);
    else
        lost(u, err.text, "");
}

static bool answers(void *context)
{
    struct upstream *u = context;
    const bool moved = !u->is_connected || engine_client_moved(u->client);
    u->user->ask(u->user_context);
    return moved;
}

static void give_up(struct upstream *u, const char *why)
{
    if (u->client)
        engine_client_give_up(u->client, why);
}

static void on_no_heartbeat(void *context)
{
    give_up(context, HEARTBEAT_LOST);
}

int upstream_connect(struct upstream *u, const char *address, struct quire_error *err)
{
    struct key256 key;
    /* Reports an unreadable key before it waits for an engine. */
    int status = u->identity.key_file ? wire_key_read(u->identity.key_file, &key, err) : QUIRE_OK;
    explicit_bzero(&key, sizeof key);
    if (status != QUIRE_OK)
        return status;
    u->address = address;
    u->reconnect = evtimer_new(u->base, on_reconnect, u);
    u->heartbeat = heartbeat_new(u->base,
                                 &(struct heartbeat_calls){.lives = answers, .lost = on_no_heartbeat, .context = u});
    if (!u->reconnect || !u->heartbeat)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    return look_for_it(u, CONNECT_TIMEOUT_MS, err);
}

/* ---- a child -------------------------------------------------------------------------------- */

static void on_up(void *context, int fd)
{
    struct upstream *u = context;
    struct quire_error err;
    if (upstream_attach(u, wire_stream_of_socket(u->base, fd), &err) == QUIRE_OK)
        return;
    quire_log(QUIRE_LOG_ERROR, "server", "%s", err.text);
    supervisor_lost(u->supervisor);
}

static void on_down(void *context, uint32_t retry_ms, const char *why)
{
    struct upstream *u = context;
    (void)why;
    u->returns_ms = quire_now_ms() + retry_ms;
    u->n_restarts++;
    if (u->state == UPSTREAM_STARTING || u->state == UPSTREAM_GONE)
        u->state = UPSTREAM_RESTARTING;
}

/* Pending requests get the reason, not only the fact that the connection ended. */
static void on_child_lost(void *context, const char *why)
{
    give_up(context, why);
}

static void on_given_up(void *context, const char *why)
{
    lost(context, "the engine is not restarted", why);
}

int upstream_supervise(struct upstream *u, char *const *argv, uint32_t tries, struct quire_error *err)
{
    const struct supervisor_calls calls = {
        .up = on_up, .down = on_down, .answers = answers, .lost = on_child_lost, .given_up = on_given_up, .context = u};
    return supervisor_begin(u->base, argv, tries, &calls, &u->supervisor, err);
}

/* ---- queries and commands ---- */

enum upstream_state upstream_state(const struct upstream *u)
{
    return u->state;
}

bool upstream_is_connected(const struct upstream *u)
{
    return u->is_connected;
}

bool upstream_was_ready(const struct upstream *u)
{
    return u->was_ready;
}

uint64_t upstream_returns_ms(const struct upstream *u)
{
    return u->returns_ms;
}

uint32_t upstream_n_restarts(const struct upstream *u)
{
    return u->n_restarts;
}

struct completion_source upstream_source(const struct upstream *u)
{
    return engine_client_source(u->client);
}

int upstream_ask_stats(struct upstream *u, uint32_t n_tenants)
{
    return u->is_connected ? engine_client_ask_stats(u->client, n_tenants) : QUIRE_IO;
}

int upstream_control(struct upstream *u, const char *command)
{
    return u->client ? engine_client_control(u->client, command) : QUIRE_IO;
}

/* ---- opening and closing -------------------------------------------------------------------- */

int upstream_open(struct event_base *base, const struct upstream_user *user, void *user_context, struct upstream **out,
                  struct quire_error *err)
{
    struct upstream *u = *out = calloc(1, sizeof *u);
    if (!u)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    u->base = base;
    u->user = user;
    u->user_context = user_context;
    return QUIRE_OK;
}

void upstream_set_identity(struct upstream *u, const struct upstream_identity *identity,
                           const struct upstream_owner *owner)
{
    u->identity = *identity;
    u->owner = owner ? *owner : (struct upstream_owner){.context = NULL};
}

void upstream_drain(struct upstream *u)
{
    u->is_draining = true;
    supervisor_drain(u->supervisor);
}

void upstream_fail(struct upstream *u, const char *hangs)
{
    u->state = UPSTREAM_FAILED;
    u->hangs = hangs != NULL;
    if (hangs) /* the hanging engine will not report it itself */
        give_up(u, hangs);
}

void upstream_close(struct upstream *u)
{
    if (!u)
        return;
    engine_client_close(u->client);
    if (!supervisor_end(u->supervisor) && u->owner.ended_badly)
        u->owner.ended_badly(u->owner.context);
    heartbeat_free(u->heartbeat);
    if (u->reconnect)
        event_free(u->reconnect);
    free(u);
}
