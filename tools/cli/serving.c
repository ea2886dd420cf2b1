#include "tools/cli/serving.h"

#include "base/log.h"
#include "engine/engine.h"
#include "files/model_files.h"
#include "kernels/gemm_form.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- identity ---- */

#define MAX_CONFIG_BYTES ((size_t)16 << 20)

int serving_identity_read(const char *model, struct serving_identity *out, struct quire_error *err)
{
    struct buffer config = {0}, generation = {0};
    snprintf(out->law, sizeof out->law, "law=%d\n", K_LAW_VERSION);
    int status = model_file_read(model, "config.json", MAX_CONFIG_BYTES, &config, err);
    if (status == QUIRE_OK)
        out->config = quire_sha256(config.data, config.n);
    if (status == QUIRE_OK)
        status = model_file_read(model, "generation_config.json", MAX_CONFIG_BYTES, &generation, err);
    if (status == QUIRE_NOT_FOUND && config.n > 0) /* it may be missing, which is another identity than any */
        status = QUIRE_OK;
    if (status == QUIRE_OK)
        out->generation = quire_sha256(generation.data, generation.n);
    buffer_free(&config);
    buffer_free(&generation);
    return status == QUIRE_OK ? quire_text_identity(model, out->text.bytes, err) : status;
}

int serving_check_listen(const char *const *addresses, size_t n, const char *key_file, struct quire_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (strncmp(addresses[i], "tcp:", 4) == 0 && !key_file)
            return quire_fail(err, QUIRE_INVALID,
                              "--listen %s: needs --engine-key-file PATH, a file with a secret shared with front "
                              "ends: head -c 32 /dev/urandom | base64 > PATH; chmod 600 PATH",
                              addresses[i]);
    return QUIRE_OK;
}

/* ---- text, in parallel with the weights ---- */

struct serving_text_load {
    pthread_t thread;
    const char *model_dir;
    struct quire_text *text;
    struct quire_error err;
    int status;
};

static void *load_text(void *context)
{
    struct serving_text_load *load = context;
    load->status = quire_text_open(load->model_dir, &load->text, &load->err);
    return NULL;
}

int serving_text_begin(const char *model_dir, struct serving_text_load **out, struct quire_error *err)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    (*out)->model_dir = model_dir;
    if (pthread_create(&(*out)->thread, NULL, load_text, *out) != 0) {
        free(*out);
        *out = NULL;
        return quire_fail(err, QUIRE_NO_MEMORY, "a thread for the tokenizer could not be started");
    }
    return QUIRE_OK;
}

int serving_text_join(struct serving_text_load *load, struct quire_text **out, struct quire_error *err)
{
    pthread_join(load->thread, NULL);
    int status = load->status;
    *out = load->text;
    if (status != QUIRE_OK && err)
        *err = load->err;
    free(load);
    return status;
}

void serving_allow_descriptors(uint32_t n)
{
    struct rlimit files;
    const rlim_t wanted = (rlim_t)n + 256;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= wanted)
        return;
    files.rlim_cur = wanted < files.rlim_max ? wanted : files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}

/* ---- signals ---- */

#define LAST_WORDS_S 1 /* time for the error replies to leave */
/* The same for an engine that died: with the 4 s until a hung rank is detected, the process ends within 5 s. */
#define DEATH_WORDS_MS 600

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

/* ---- the engine's death ---- */

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

int serving_parse_log_format(const char *text, void *target, struct quire_error *err)
{
    (void)target;
    bool json = strcmp(text, "json") == 0;
    if (!json && strcmp(text, "text") != 0)
        return quire_fail(err, QUIRE_INVALID, "must be text or json, got %s", text);
    quire_log_set_format(json ? QUIRE_LOG_AS_JSON : QUIRE_LOG_AS_TEXT);
    return QUIRE_OK;
}
