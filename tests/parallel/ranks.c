#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "parallel/hosts/hosts.h"
#include "ranks.h"

#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define JOIN_MS 120000u /* for ranks that all come */

/* Two sockets that reuse addresses may be bound to one port, and one of them may listen. */
uint16_t hold_port(int *fd)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    const int yes = 1;
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(*fd >= 0 && setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
                bind(*fd, (struct sockaddr *)&at, n) == 0 && getsockname(*fd, (struct sockaddr *)&at, &n) == 0);
    return ntohs(at.sin_port);
}

#ifdef TEST_HOSTS
static int make_group(struct ranks *ranks)
{
    ranks->fd = -1;
    ranks->port = hold_port(&ranks->port_fd);
    return QUIRE_OK;
}

static int join(const struct ranks *ranks, uint32_t rank, struct collective **out, struct quire_error *err)
{
    const struct position position = {
        .launcher = "a test", .rank = rank, .size = ranks->n, .address = "127.0.0.1", .port = ranks->port};
    const struct hosts_options options = {.position = &position, .timeout_ms = ranks->timeout_ms, .join_ms = JOIN_MS};
    unsetenv("QUIRE_GROUP_SECRET");
    return hosts_join(&options, out, err);
}
#else
static int make_group(struct ranks *ranks)
{
    return collective_create_shared(ranks->n, &ranks->fd, NULL);
}

static int join(const struct ranks *ranks, uint32_t rank, struct collective **out, struct quire_error *err)
{
    return collective_join_shared(ranks->fd, rank, ranks->timeout_ms, out, err);
}
#endif

static void run(struct ranks *ranks, uint32_t rank, rank_fn fn, const void *argument)
{
    struct outcome *mine = &ranks->outcomes[rank];
    struct quire_error err = {.text = ""};
    struct collective *c = NULL;
    int status = join(ranks, rank, &c, &err);
    if (status == QUIRE_OK)
        status = fn(c, argument, mine, &err);
    mine->failed_ns = quire_now_ns();
    mine->status = status;
    memcpy(mine->text, err.text, sizeof mine->text);
    atomic_store(&mine->is_done, true);
    collective_leave(c);
    _exit(0);
}

void ranks_start(struct ranks *ranks, uint32_t n, uint32_t timeout_ms, rank_fn fn, const void *argument)
{
    *ranks = (struct ranks){.n = n, .timeout_ms = timeout_ms, .port_fd = -1};
    ranks->outcomes = mmap(NULL, n * sizeof *ranks->outcomes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                           0);
    assert_true(ranks->outcomes != MAP_FAILED);
    assert_int_equal(make_group(ranks), QUIRE_OK);
    pid_t parent = getpid();
    for (uint32_t r = 0; r < n; r++) {
        ranks->processes[r] = fork();
        assert_true(ranks->processes[r] >= 0);
        if (ranks->processes[r] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent)
                _exit(1);
            run(ranks, r, fn, argument);
        }
    }
    if (ranks->fd >= 0)
        close(ranks->fd);
}

void ranks_await(const struct ranks *ranks, uint32_t rank, int progress)
{
    const struct outcome *o = &ranks->outcomes[rank];
    while (atomic_load(&o->progress) < progress && !atomic_load(&o->is_done))
        sched_yield();
}

void ranks_join(struct ranks *ranks)
{
    for (uint32_t r = 0; r < ranks->n; r++)
        assert_int_equal(waitpid(ranks->processes[r], NULL, 0), ranks->processes[r]);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

void ranks_free(struct ranks *ranks)
{
    munmap(ranks->outcomes, ranks->n * sizeof *ranks->outcomes);
    if (ranks->port_fd >= 0)
        close(ranks->port_fd);
}

static uint32_t count_names(const char *folder, const char *prefix)
{
    uint32_t n = 0;
    DIR *dir = opendir(folder);
    if (!dir)
        return 0;
    for (struct dirent *entry; (entry = readdir(dir));)
        n += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    closedir(dir);
    return n;
}

uint32_t count_descriptors(void)
{
    return count_names("/proc/self/fd", "");
}

uint32_t count_shared_memory(void)
{
    return count_names("/dev/shm", "quire");
}
