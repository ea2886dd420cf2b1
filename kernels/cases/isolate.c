#include "kernels/cases/isolate.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define VARIABLE "QUIRE_CASES"
#define POLL_MS 20
#define SANITIZER_LIMIT_S 90
#define EXPLAIN_LIMIT_S 30
#define N_LINES_SHOWN 40
#define SKIPPED 77

/* Written by the child, read by the parent. */
struct progress {
    volatile uint64_t n_entered; /* 0: no case has begun */
    volatile uint64_t index;
    char name[256];
};

static struct progress *child_progress;

static struct progress *map_progress(int fd)
{
    void *p = mmap(NULL, sizeof(struct progress), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

struct isolate_range isolate_range(size_t n)
{
    struct isolate_range range = {false, 0, n};
    const char *text = getenv(VARIABLE);
    size_t first, end;
    int fd;
    if (!text || sscanf(text, "%d:%zu:%zu", &fd, &first, &end) != 3)
        return range;
    child_progress = map_progress(fd);
    range.is_child = true;
    range.first = first < n ? first : n;
    range.end = end < n ? end : n;
    return range;
}

void isolate_enter(size_t i, const char *name)
{
    if (!child_progress)
        return;
    snprintf(child_progress->name, sizeof child_progress->name, "%s", name);
    child_progress->index = i;
    child_progress->n_entered++;
}

/* ---- the parent ------------------------------------------------------------------------------ */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#define MAX_ARGUMENTS 64

struct self {
    char file[512], text[8192];
    char *argv[MAX_ARGUMENTS];
    size_t n;
};

struct child {
    int fd; /* of the shared progress */
    struct progress *progress;
    pid_t pid;
    bool is_hung;
    int how; /* as returned by waitpid() */
    struct self *self;
};

/* Reads the command that starts this program again: its file and its arguments as it was started, which may begin
 * with a loader's. */
static bool read_self(struct self *s)
{
    ssize_t length = readlink("/proc/self/exe", s->file, sizeof s->file - 1);
    FILE *file = fopen("/proc/self/cmdline", "r");
    size_t n_bytes = file ? fread(s->text, 1, sizeof s->text - 1, file) : 0;
    if (file)
        fclose(file);
    if (length < 0 || n_bytes == 0)
        return false;
    s->file[length] = '\0';
    s->text[n_bytes] = '\0';
    s->n = 0;
    for (char *at = s->text; at < s->text + n_bytes && s->n < MAX_ARGUMENTS; at += strlen(at) + 1)
        s->argv[s->n++] = at;
    return true;
}

/* Starts a child. Its output goes to `out` unless that is negative. tool: a program and its arguments that runs this
 * one. */
static bool start(struct child *c, struct self *self, char *const *tool, size_t first, size_t end, int out)
{
    char *whole[MAX_ARGUMENTS + 16], text[64];
    size_t n = 0;
    for (; tool && tool[n] && n < 15; n++)
        whole[n] = tool[n];
    memcpy(whole + n, self->argv, self->n * sizeof *whole);
    if (tool)
        whole[n] = self->file;
    whole[n + self->n] = NULL;
    c->progress->n_entered = 0;
    c->is_hung = false;
    snprintf(text, sizeof text, "%d:%zu:%zu", c->fd, first, end);
    fflush(NULL);
    c->pid = fork();
    if (c->pid != 0)
        return c->pid > 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv(VARIABLE, text, 1);
    if (out >= 0) {
        dup2(out, 1);
        dup2(out, 2);
        setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    }
    execv(tool ? tool[0] : self->file, whole);
    _exit(127);
}

/* Waits for the child's end, and kills it if one case takes longer than limit_s. */
static void watch(struct child *c, uint32_t limit_s)
{
    uint64_t seen = 0;
    double since = now_s();
    for (;;) {
        pid_t ended = waitpid(c->pid, &c->how, WNOHANG);
        if (ended == c->pid || (ended < 0 && errno != EINTR))
            return;
        if (c->progress->n_entered != seen) {
            seen = c->progress->n_entered;
            since = now_s();
        }
        if (!c->is_hung && now_s() - since > limit_s) {
            c->is_hung = true;
            kill(c->pid, SIGKILL);
        }
        nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000}, NULL);
    }
}

static void describe_end(const struct child *c, uint32_t limit_s, char *out, size_t size)
{
    if (c->is_hung)
        snprintf(out, size, "it hung: killed after %u s", limit_s);
    else if (WIFSIGNALED(c->how))
        snprintf(out, size, "signal %d (%s)", WTERMSIG(c->how), strsignal(WTERMSIG(c->how)));
    else
        snprintf(out, size, "exit status %d", WEXITSTATUS(c->how));
}

static void report_lines(const struct isolate_job *job, FILE *file)
{
    char line[512], text[sizeof line + 8];
    rewind(file);
    for (int n = 0; n < N_LINES_SHOWN && fgets(line, sizeof line, file); n++) {
        line[strcspn(line, "\n")] = '\0';
        snprintf(text, sizeof text, "  | %s", line);
        job->explained(job->context, text);
    }
}

/* Runs one case by itself and reports its output. */
static void explain_by(struct child *c, const struct isolate_job *job, char *const *tool, size_t i, uint32_t limit_s,
                       const char *what)
{
    char end[96], text[192];
    FILE *file = tmpfile();
    if (!file)
        return;
    if (start(c, c->self, tool, i, i + 1, fileno(file))) {
        watch(c, limit_s);
        describe_end(c, limit_s, end, sizeof end);
        snprintf(text, sizeof text, "  again %s: %s", what, end);
        job->explained(job->context, text);
        report_lines(job, file);
    }
    fclose(file);
}

static void explain(struct child *c, const struct isolate_job *job, size_t i)
{
    char *sanitizer = getenv("QUIRE_COMPUTE_SANITIZER");
    explain_by(c, job, NULL, i, EXPLAIN_LIMIT_S, "with CUDA_LAUNCH_BLOCKING=1");
    if (sanitizer && *sanitizer) {
        char *const tool[] = {sanitizer, (char *)"--tool", (char *)"memcheck", (char *)"--print-limit", (char *)"5",
                              NULL};
        explain_by(c, job, tool, i, SANITIZER_LIMIT_S, "under compute-sanitizer");
    }
}

static void lose(struct child *c, const struct isolate_job *job, size_t i)
{
    char how[96], name[sizeof c->progress->name];
    const bool was_hung = c->is_hung;
    describe_end(c, job->limit_s, how, sizeof how);
    memcpy(name, c->progress->name, sizeof name);
    job->lost(job->context, i, name, how);
    if (job->explained && !was_hung)
        explain(c, job, i);
}

/* Returns whether a case was lost, and not only wrong: the remaining cases need another process. */
static bool was_lost(const struct child *c)
{
    return c->is_hung || WIFSIGNALED(c->how) ||
           (WIFEXITED(c->how) && (WEXITSTATUS(c->how) == ISOLATE_BROKEN || WEXITSTATUS(c->how) == 134));
}

static int run_all(struct child *c, const struct isolate_job *job)
{
    int worst = 0;
    for (size_t first = 0; first <= job->n;) {
        size_t end = job->one_each ? first + 1 : job->n;
        if (job->one_each && first == job->n)
            break;
        if (!start(c, c->self, NULL, first, end, -1))
            return 1;
        watch(c, job->limit_s);
        if (was_lost(c)) {
            const bool had_begun = c->progress->n_entered > 0;
            size_t i = had_begun ? c->progress->index : first;
            if (!had_begun)
                snprintf(c->progress->name, sizeof c->progress->name, "(before case %zu)", first);
            lose(c, job, i);
            worst = 1;
            if (!had_begun && !job->one_each)
                return worst; /* for example, the device cannot be opened: another process would fail too */
            first = i + 1;
            continue;
        }
        const int status = WEXITSTATUS(c->how);
        worst = worst ? worst : status;
        if (job->one_each && job->explained && status != 0 && status != SKIPPED)
            explain(c, job, first);
        first = end;
        if (!job->one_each)
            break;
    }
    return worst;
}

int isolate_run(const struct isolate_job *job, int *exit_status, struct quire_error *err)
{
    static struct self self;
    struct child c = {.fd = memfd_create("quire-cases", 0), .self = &self};
    if (!read_self(&self) || c.fd < 0 || ftruncate(c.fd, sizeof *c.progress) != 0 ||
        !(c.progress = map_progress(c.fd))) {
        const int why = errno;
        if (c.fd >= 0)
            close(c.fd);
        return quire_fail(err, QUIRE_IO, "cannot prepare a child process: %s", strerror(why));
    }
    struct isolate_job limited = *job;
    const char *limit = getenv("QUIRE_ISOLATE_LIMIT_S"); /* for the test of this file: a hang takes a minute */
    if (limit && atoi(limit) > 0)
        limited.limit_s = (uint32_t)atoi(limit);
    *exit_status = run_all(&c, &limited);
    munmap(c.progress, sizeof *c.progress);
    close(c.fd);
    return QUIRE_OK;
}
