#include "server/link/supervisor.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "server/link/heartbeat.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Gives the child its descriptors: "SOCKET LIFE". */
#define VARIABLE "QUIRE_FRONT"

/* Delay before the first restart, so that the memory of the old process is freed; it doubles with each further restart.
 */
#define FIRST_DELAY_MS 250u
#define MOST_DELAY_MS 30000u
#define SERVED_MS 60000 /* after this time of service, the count of restarts begins again */
#define END_MS 10000 /* time for a serving engine to write its files */
#define LOST_MS 1000 /* for a failed engine */
#define ENDING_MS 50 /* from the end of a process's connections to its own end */
#define LOOK_MS 100

struct supervisor {
    struct event_base *base;
    char *const *argv;
    uint32_t tries;
    struct supervisor_calls calls;

    pid_t process; /* 0: none */
    int pidfd, life, front; /* -1: not open; front: until it is passed on */
    struct event *ended, *spoke; /* NULL: not pending */
    struct event *start, *end; /* timers */
    struct heartbeat *heartbeat;
    bool is_up, was_up, is_stopping;
    uint32_t n_in_a_row;
    char how[160]; /* how the last process ended; empty: one is running */
    uint64_t started_ms, up_ms, load_ms;
};

/* ---- the child ---- */

/* In the child of a process with threads: only system calls are allowed. */
static void become_engine(char *const *argv, char *const *environment, const int fds[2], pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent && fcntl(fds[0], F_SETFD, 0) == 0 && fcntl(fds[1], F_SETFD, 0) == 0)
        execve("/proc/self/exe", argv, environment);
    _exit(127);
}

/* This process's environment without its own variables, plus `place`. The caller frees it; NULL: out of memory. */
static char **environment_with(char *place)
{
    size_t n = 0, kept = 0;
    while (environ[n])
        n++;
    char **made = malloc((n + 2) * sizeof *made);
    for (size_t i = 0; made && i < n; i++)
        if (strncmp(environ[i], VARIABLE "=", sizeof VARIABLE) != 0 && strncmp(environ[i], "NOTIFY_SOCKET=", 14) != 0)
            made[kept++] = environ[i];
    if (!made)
        return NULL;
    made[kept] = place;
    made[kept + 1] = NULL;
    return made;
}

static int fork_engine(struct supervisor *k, const int fds[2], struct quire_error *err)
{
    char place[64];
    snprintf(place, sizeof place, VARIABLE "=%d %d", fds[0], fds[1]);
    char **environment = environment_with(place);
    const pid_t parent = getpid();
    if (!environment)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    k->process = fork();
    if (k->process == 0)
        become_engine(k->argv, environment, fds, parent);
    const int why = errno;
    free(environment);
    if (k->process < 0) {
        k->process = 0;
        return quire_fail(err, QUIRE_IO, "starting the engine: %s", strerror(why));
    }
    k->pidfd = (int)syscall(SYS_pidfd_open, k->process, 0);
    if (k->pidfd < 0)
        return quire_fail(err, QUIRE_IO, "watching the engine: %s (pidfd_open needs Linux 5.3)", strerror(errno));
    return QUIRE_OK;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void forget_event(struct event **event)
{
    if (*event)
        event_free(*event);
    *event = NULL;
}

static void on_ended(evutil_socket_t fd, short what, void *context);
static void on_spoke(evutil_socket_t fd, short what, void *context);

static int start(struct supervisor *k, struct quire_error *err)
{
    int front[2] = {-1, -1}, life[2] = {-1, -1};
    int status = QUIRE_OK;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, front) != 0 || pipe2(life, O_CLOEXEC) != 0)
        status = quire_fail(err, QUIRE_IO, "starting the engine: %s", strerror(errno));
    if (status == QUIRE_OK)
        status = fork_engine(k, (const int[]){front[1], life[0]}, err);
    close_fd(&front[1]);
    close_fd(&life[0]);
    k->front = front[0];
    k->life = life[1];
    k->is_up = false;
    k->how[0] = '\0';
    k->started_ms = quire_now_ms();
    if (status != QUIRE_OK)
        return status;
    heartbeat_begin(k->heartbeat);
    k->ended = event_new(k->base, k->pidfd, EV_READ, on_ended, k);
    k->spoke = event_new(k->base, k->front, EV_READ, on_spoke, k);
    if (!k->ended || !k->spoke || event_add(k->ended, NULL) != 0 || event_add(k->spoke, NULL) != 0)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    return QUIRE_OK;
}

static void say_how(struct supervisor *k, const siginfo_t *end)
{
    if (end->si_code == CLD_EXITED)
        snprintf(k->how, sizeof k->how, "the engine's process %d exited with status %d", (int)k->process,
                 end->si_status);
    else
        snprintf(k->how, sizeof k->how, "the engine's process %d was ended by signal %d (%s)", (int)k->process,
                 end->si_status, strsignal(end->si_status));
}

/* Reaps a process that has ended, or kills it. Writes k->how. Returns true for status 0. */
static bool reap(struct supervisor *k)
{
    siginfo_t end = {0};
    forget_event(&k->ended);
    forget_event(&k->spoke);
    heartbeat_end(k->heartbeat);
    event_del(k->end);
    if (k->process) {
        kill(k->process, SIGKILL);
        while (waitid(P_PID, (id_t)k->process, &end, WEXITED) < 0 && errno == EINTR)
            ;
        say_how(k, &end);
    }
    k->process = 0;
    close_fd(&k->pidfd);
    close_fd(&k->front);
    close_fd(&k->life);
    return end.si_code == CLD_EXITED && end.si_status == 0;
}

/* ---- again ---- */

static void set_timer(struct event *timer, uint32_t ms)
{
    const struct timeval time = {.tv_sec = ms / 1000, .tv_usec = (int)(ms % 1000) * 1000};
    event_add(timer, &time);
}

static uint32_t delay_ms(uint32_t n_in_a_row)
{
    const uint32_t doubled = FIRST_DELAY_MS << (n_in_a_row < 8 ? n_in_a_row - 1 : 7);
    return doubled < MOST_DELAY_MS ? doubled : MOST_DELAY_MS;
}

static void start_again(struct supervisor *k, const char *why)
{
    const uint64_t now_ms = quire_now_ms();
    k->n_in_a_row = k->is_up && now_ms - k->up_ms >= SERVED_MS ? 1 : k->n_in_a_row + 1;
    k->is_up = false;
    if (!k->was_up || k->n_in_a_row > k->tries) {
        k->calls.given_up(k->calls.context, why);
        return;
    }
    const uint32_t delay = delay_ms(k->n_in_a_row);
    quire_log(QUIRE_LOG_WARN, "server", "the engine restarts in %.1f s (start %u of %u in a row): %s", delay / 1e3,
              k->n_in_a_row, k->tries, why);
    k->calls.down(k->calls.context, delay + (uint32_t)(k->load_ms < 3600000 ? k->load_ms : 3600000), why);
    set_timer(k->start, delay);
}

static void on_ended(evutil_socket_t fd, short what, void *context)
{
    struct supervisor *k = context;
    (void)fd;
    (void)what;
    reap(k);
    if (!k->is_stopping)
        start_again(k, k->how);
}

static void on_start(evutil_socket_t fd, short what, void *context)
{
    struct supervisor *k = context;
    struct quire_error err;
    (void)fd;
    (void)what;
    if (k->is_stopping || start(k, &err) == QUIRE_OK)
        return;
    reap(k);
    start_again(k, err.text);
}

/* ---- signs of life ---- */

/* The first bytes, or the end, in which case on_ended() runs, too. */
static void on_spoke(evutil_socket_t fd, short what, void *context)
{
    struct supervisor *k = context;
    char byte;
    (void)what;
    if (recv((int)fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 1)
        return;
    k->is_up = k->was_up = true;
    k->up_ms = quire_now_ms();
    k->load_ms = k->up_ms - k->started_ms;
    k->front = -1;
    heartbeat_begin(k->heartbeat);
    k->calls.up(k->calls.context, (int)fd);
}

/* A loading engine, which may take any time, cannot answer yet. The kernel reports whether it is stopped. */
static bool lives(void *context)
{
    struct supervisor *k = context;
    struct quire_process_look look;
    if (k->is_up)
        return k->calls.answers(k->calls.context);
    quire_process_look(k->process, 0, &look);
    return !look.is_stopped;
}

static void on_lost(void *context)
{
    struct supervisor *k = context;
    quire_log(QUIRE_LOG_ERROR, "server", "process %d: %s", (int)k->process,
              k->is_up ? HEARTBEAT_LOST : "the engine has been stopped for 3.5 s while it loads");
    if (k->is_up)
        k->calls.lost(k->calls.context, HEARTBEAT_LOST);
    kill(k->process, SIGKILL);
}

static void on_end(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    kill(((struct supervisor *)context)->process, SIGKILL);
}

void supervisor_lost(struct supervisor *k)
{
    heartbeat_end(k->heartbeat);
    if (k->process)
        set_timer(k->end, LOST_MS);
}

const char *supervisor_how_ended(struct supervisor *k)
{
    siginfo_t end = {0};
    if (k->process && poll(&(struct pollfd){.fd = k->pidfd, .events = POLLIN}, 1, ENDING_MS) == 1 &&
        waitid(P_PID, (id_t)k->process, &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid != 0)
        say_how(k, &end);
    return k->how[0] ? k->how : NULL;
}

/* ---- public functions ---- */

int supervisor_begin(struct event_base *base, char *const *argv, uint32_t tries, const struct supervisor_calls *calls,
                     struct supervisor **out, struct quire_error *err)
{
    struct supervisor *k = *out = calloc(1, sizeof *k);
    if (!k)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    k->base = base;
    k->argv = argv;
    k->tries = tries;
    k->calls = *calls;
    k->pidfd = k->life = k->front = -1;
    k->start = evtimer_new(base, on_start, k);
    k->heartbeat = heartbeat_new(base, &(struct heartbeat_calls){.lives = lives, .lost = on_lost, .context = k});
    k->end = evtimer_new(base, on_end, k);
    return k->start && k->heartbeat && k->end ? start(k, err) : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
}

void supervisor_drain(struct supervisor *k)
{
    if (k)
        k->is_stopping = true;
}

/* For an engine that serves. A stopped one gets no more time than one that does not respond. */
static bool ends_in_time(const struct supervisor *k)
{
    const uint64_t began_ms = quire_now_ms();
    uint64_t ran_ms = began_ms;
    for (uint64_t now_ms = began_ms; now_ms - began_ms < END_MS && now_ms - ran_ms < HEARTBEAT_LOST_MS;
         now_ms = quire_now_ms()) {
        struct quire_process_look look;
        if (poll(&(struct pollfd){.fd = k->pidfd, .events = POLLIN}, 1, LOOK_MS) == 1)
            return true;
        quire_process_look(k->process, 0, &look);
        ran_ms = look.is_stopped ? ran_ms : quire_now_ms();
    }
    return false;
}

bool supervisor_end(struct supervisor *k)
{
    if (!k)
        return true;
    k->is_stopping = true;
    close_fd(&k->life); /* which notifies the child */
    const bool serves = k->process && k->is_up;
    bool is_well = !serves || (heartbeat_is_felt(k->heartbeat) && ends_in_time(k));
    if (!is_well)
        quire_log(QUIRE_LOG_ERROR, "server", "the engine does not exit and is killed: process %d", (int)k->process);
    if (k->end && k->heartbeat && !reap(k) && serves)
        is_well = false;
    forget_event(&k->start);
    forget_event(&k->end);
    heartbeat_free(k->heartbeat);
    free(k);
    return is_well;
}

/* ---- in the child ---- */

bool supervisor_is_child(void)
{
    return getenv(VARIABLE) != NULL;
}

int supervisor_join(int *front_fd, int *life_fd, struct quire_error *err)
{
    const char *place = getenv(VARIABLE);
    int n_read = 0;
    if (!place || strspn(place, "0123456789 ") != strlen(place) ||
        sscanf(place, "%9d %9d%n", front_fd, life_fd, &n_read) != 2 || place[n_read] != 0 ||
        fcntl(*front_fd, F_SETFD, FD_CLOEXEC) != 0 || fcntl(*life_fd, F_SETFD, FD_CLOEXEC) != 0)
        return quire_fail(err, QUIRE_INVALID, VARIABLE ": \"%.40s\" is not \"SOCKET LIFE\", two open descriptors",
                          place ? place : "");
    unsetenv(VARIABLE); /* processes that this one starts are not engines of this front end */
    return QUIRE_OK;
}
