#include "parallel/group.h"

#include "base/clock.h"
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Variable that lets a worker join: "DESCRIPTOR RANK TIMEOUT_MS". */
#define VARIABLE "QUIRE_GROUP"

/* Time from the first sign of a group's end until its processes are killed: they can report the reason and free
 * resources. */
#define GRACE_MS 500

#define NOT_STARTED 127
#define NOT_STARTED_TEXT ": this program could not be started again through /proc/self/exe"

struct worker {
    pid_t process; /* 0: not started, or reaped */
    int pidfd;
};

struct group {
    struct collective *collective;
    struct worker workers[COLLECTIVE_MAX_RANKS]; /* by rank; used by the watcher thread only */
    uint32_t n_ranks, timeout_ms;
    int fd, stop_fd;
    char *const *argv;

    pthread_t watcher;
    sem_t started;
    int start_status; /* with start_error: written before `started` */
    struct quire_error start_error;

    pthread_mutex_t lock; /* protects the two below, and calls on `collective` by the watcher */
    bool is_stopping;
    char ended[QUIRE_ERROR_BYTES]; /* the worker that ended unexpectedly, and how; empty: none */
};

/* ---- starting ---- */

static void free_environment(char **environment, size_t n_shared)
{
    free(environment[n_shared]);
    free(environment);
}

/* This process's environment, plus the worker's variable as element *n_shared; the caller frees both. */
static char **environment_of(const struct group *g, uint32_t rank, size_t *n_shared)
{
    char place[64];
    size_t n = 0, kept = 0;
    while (environ[n])
        n++;
    char **made = malloc((n + 2) * sizeof *made);
    if (!made)
        return NULL;
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], VARIABLE "=", sizeof VARIABLE) != 0)
            made[kept++] = environ[i];
    snprintf(place, sizeof place, VARIABLE "=%d %u %u", g->fd, rank, g->timeout_ms);
    made[kept] = strdup(place);
    made[kept + 1] = NULL;
    *n_shared = kept;
    if (made[kept])
        return made;
    free(made);
    return NULL;
}

/* In the child of a process with threads: only system calls are allowed. */
static void become_worker(const struct group *g, pid_t parent, char *const *environment)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent && fcntl(g->fd, F_SETFD, 0) == 0)
        execve("/proc/self/exe", g->argv, environment);
    _exit(NOT_STARTED);
}

static int start_worker(struct group *g, uint32_t rank)
{
    size_t n_shared;
    pid_t parent = getpid();
    char **environment = environment_of(g, rank, &n_shared);
    if (!environment)
        return quire_fail(&g->start_error, QUIRE_NO_MEMORY, "out of memory");
    pid_t process = fork();
    if (process == 0)
        become_worker(g, parent, environment);
    int why = errno;
    free_environment(environment, n_shared);
    if (process < 0)
        return quire_fail(&g->start_error, QUIRE_IO, "starting rank %u: %s", rank, strerror(why));
    g->workers[rank].process = process;
    g->workers[rank].pidfd = (int)syscall(SYS_pidfd_open, process, 0);
    if (g->workers[rank].pidfd < 0)
        return quire_fail(&g->start_error, QUIRE_IO, "rank %u cannot be watched: %s (pidfd_open needs Linux 5.3)", rank,
                          strerror(errno));
    return QUIRE_OK;
}

/* ---- watching ---- */

/* A worker has ended with the wait status `how`. Status 0 is an intended end: ranks that still wait for it get the
 * error from their collective. A worker that gave up because of another one reports the first cause. */
static void note_end(struct group *g, uint32_t rank, int how)
{
    const int process = (int)g->workers[rank].process;
    struct quire_error err, before = {.text = ""};
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0)
        return;
    pthread_mutex_lock(&g->lock);
    if (!g->is_stopping && !g->ended[0]) {
        bool is_first = collective_check(g->collective, &before) == QUIRE_OK;
        if (WIFSIGNALED(how))
            quire_fail(&err, QUIRE_UNAVAILABLE, "rank %u (process %d) was ended by signal %d (%s)", rank, process,
                       WTERMSIG(how), strsignal(WTERMSIG(how)));
        else
            quire_fail(&err, QUIRE_UNAVAILABLE, "rank %u (process %d) ended with status %d%s", rank, process,
                       WEXITSTATUS(how), WEXITSTATUS(how) == NOT_STARTED ? NOT_STARTED_TEXT : "");
        collective_abort(g->collective, err.text);
        snprintf(g->ended, sizeof g->ended, "%.160s%s%.320s", err.text, is_first ? "" : "; before that ", before.text);
    }
    pthread_mutex_unlock(&g->lock);
}

/* Reaps the worker, whose process has ended. */
static void reap(struct group *g, uint32_t rank)
{
    struct worker *w = &g->workers[rank];
    int how = 0;
    while (waitpid(w->process, &how, 0) < 0 && errno == EINTR)
        ;
    note_end(g, rank, how);
    w->process = 0;
    if (w->pidfd >= 0)
        close(w->pidfd);
    w->pidfd = -1;
}

static uint32_t count_workers(const struct group *g)
{
    uint32_t n = 0;
    for (uint32_t r = 1; r < g->n_ranks; r++)
        n += g->workers[r].process != 0;
    return n;
}

/* Waits until a worker has ended, the group must stop, or ms have passed (-1: never). Reaps ended workers. */
static void watch(struct group *g, int ms)
{
    struct pollfd fds[COLLECTIVE_MAX_RANKS];
    fds[0] = (struct pollfd){.fd = ms < 0 ? g->stop_fd : -1, .events = POLLIN};
    for (uint32_t r = 1; r < g->n_ranks; r++)
        fds[r] = (struct pollfd){.fd = g->workers[r].process ? g->workers[r].pidfd : -1, .events = POLLIN};
    if (poll(fds, g->n_ranks, ms) <= 0)
        return;
    for (uint32_t r = 1; r < g->n_ranks; r++)
        if (fds[r].revents)
            reap(g, r);
}

/* One that is stopped does not end by itself. */
static void kill_stopped(struct group *g)
{
    for (uint32_t r = 1; r < g->n_ranks; r++) {
        struct quire_process_look look;
        if (g->workers[r].process && quire_process_look(g->workers[r].process, 0, &look) && look.is_stopped)
            kill(g->workers[r].process, SIGKILL);
    }
}

static void end_workers(struct group *g)
{
    uint64_t until = quire_now_ms() + GRACE_MS;
    kill_stopped(g);
    for (uint64_t now = quire_now_ms(); count_workers(g) > 0 && now < until; now = quire_now_ms())
        watch(g, (int)(until - now));
    for (uint32_t r = 1; r < g->n_ranks; r++)
        if (g->workers[r].process) {
            kill(g->workers[r].process, SIGKILL);
            reap(g, r);
        }
}

/* Returns whether there is nothing left to wait for: stop requested, a worker failed, or none is left. */
static bool is_over(struct group *g)
{
    pthread_mutex_lock(&g->lock);
    bool over = g->is_stopping || g->ended[0] || count_workers(g) == 0;
    pthread_mutex_unlock(&g->lock);
    return over;
}

/* The thread that starts the workers must outlive them, because the kernel treats its end as the parent's. */
static void *run_watcher(void *group)
{
    struct group *g = group;
    for (uint32_t r = 1; r < g->n_ranks && g->start_status == QUIRE_OK; r++)
        g->start_status = start_worker(g, r);
    bool is_started = g->start_status == QUIRE_OK;
    sem_post(&g->started);
    while (is_started && !is_over(g))
        watch(g, -1);
    end_workers(g);
    return NULL;
}

static int start_watcher(struct group *g, struct quire_error *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are handled by the caller's threads */
    int why = pthread_create(&g->watcher, NULL, run_watcher, g);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (why != 0)
        return quire_fail(err, QUIRE_IO, "starting a thread: %s", strerror(why));
    while (sem_wait(&g->started) != 0)
        ;
    if (g->start_status == QUIRE_OK)
        return QUIRE_OK;
    pthread_join(g->watcher, NULL);
    return quire_fail(err, g->start_status, "%s", g->start_error.text);
}

/* ---- public functions ---- */

static void free_group(struct group *g)
{
    collective_leave(g->collective);
    if (g->stop_fd >= 0)
        close(g->stop_fd);
    pthread_mutex_destroy(&g->lock);
    sem_destroy(&g->started);
    free(g);
}

int group_start(const struct group_options *options, struct group **out, struct quire_error *err)
{
    struct group *g = calloc(1, sizeof *g);
    if (!g)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    g->n_ranks = options->n_ranks;
    g->timeout_ms = options->timeout_ms;
    g->argv = options->argv;
    g->stop_fd = -1;
    pthread_mutex_init(&g->lock, NULL);
    sem_init(&g->started, 0, 0);
    int status = collective_create_shared(g->n_ranks, &g->fd, err);
    if (status == QUIRE_OK) {
        status = collective_join_shared(g->fd, 0, g->timeout_ms, &g->collective, err);
        g->stop_fd = eventfd(0, EFD_CLOEXEC);
        if (status == QUIRE_OK && g->stop_fd < 0)
            status = quire_fail(err, QUIRE_IO, "eventfd: %s", strerror(errno));
        if (status == QUIRE_OK)
            status = start_watcher(g, err);
        close(g->fd);
    }
    if (status != QUIRE_OK) {
        free_group(g);
        return status;
    }
    *out = g;
    return QUIRE_OK;
}

struct collective *group_collective(struct group *g)
{
    return g->collective;
}

int group_check(struct group *g, struct quire_error *err)
{
    int status = QUIRE_OK;
    pthread_mutex_lock(&g->lock);
    if (g->ended[0])
        status = quire_fail(err, QUIRE_UNAVAILABLE, "%s", g->ended);
    pthread_mutex_unlock(&g->lock);
    return status;
}

void group_stop(struct group *g)
{
    if (!g)
        return;
    pthread_mutex_lock(&g->lock);
    g->is_stopping = true;
    pthread_mutex_unlock(&g->lock);
    collective_leave(g->collective);
    g->collective = NULL;
    eventfd_write(g->stop_fd, 1);
    pthread_join(g->watcher, NULL);
    free_group(g);
}

/* ---- in a worker ---- */

bool group_is_worker(void)
{
    return getenv(VARIABLE) != NULL;
}

int group_join(struct collective **out, struct quire_error *err)
{
    unsigned fd, rank, timeout_ms;
    int n_read = 0;
    const char *place = getenv(VARIABLE);
    if (!place)
        return quire_fail(err, QUIRE_NOT_FOUND, "this process was not started as a rank of a group");
    if (strspn(place, "0123456789 ") != strlen(place) || strlen(place) > 32 ||
        sscanf(place, "%9u %9u %9u%n", &fd, &rank, &timeout_ms, &n_read) != 3 || place[n_read] != 0)
        return quire_fail(err, QUIRE_INVALID, VARIABLE ": \"%.40s\" is not \"DESCRIPTOR RANK TIMEOUT_MS\"", place);
    int status = collective_join_shared((int)fd, rank, timeout_ms, out, err);
    if (status != QUIRE_OK) {
        quire_error_prefix(err, VARIABLE);
        return status;
    }
    close((int)fd);
    unsetenv(VARIABLE); /* processes that this one starts are not ranks */
    return QUIRE_OK;
}
