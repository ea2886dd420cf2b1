#include "tests/bench/host_bench.h"

#include <sys/wait.h>
#include <unistd.h>

int client_process_start(int (*run)(const void *client, int port_fd), const void *client, int *port_fd)
{
    int fds[2];
    if (pipe(fds))
        bench_die("pipe: %m");
    pid_t child = fork();
    if (child < 0)
        bench_die("fork: %m");
    if (child == 0) {
        close(fds[1]);
        _exit(run(client, fds[0]));
    }
    close(fds[0]);
    *port_fd = fds[1];
    return child;
}

void client_process_end(int child)
{
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        bench_die("the clients did not get all they asked for");
}
