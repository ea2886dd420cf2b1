/* The clients of bench_stream, in a process of their own: n streams of /v1/completions, whose events are counted but
 * not parsed. */
#include "tests/bench/host_bench.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

struct stream {
    int fd;
    uint32_t n_events;
    char last; /* byte */
};

static void give_up(const char *what)
{
    perror(what);
    _exit(1);
}

static int connect_to(uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at))
        give_up("host_bench: client: connect");
    return fd;
}

static void ask(const struct stream *s, uint32_t index, uint32_t n_tokens)
{
    char body[256], request[512];
    int n_body = snprintf(body, sizeof body,
                          "{\"prompt\": \"%u Once upon a time\", \"max_tokens\": %u,"
                          " \"ignore_eos\": true, \"stream\": true}",
                          index, n_tokens);
    int n = snprintf(request, sizeof request,
                     "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                     "Content-Length: %d\r\n\r\n%s",
                     n_body, body);
    if (send(s->fd, request, (size_t)n, 0) != n)
        give_up("host_bench: client: send");
}

/* An event ends with an empty line, which occurs neither in the head nor in the framing of chunks. Returns false at the
 * end of the stream. */
static bool take(struct stream *s)
{
    static char bytes[65536];
    ssize_t n = recv(s->fd, bytes, sizeof bytes, 0);
    if (n <= 0)
        return false;
    for (ssize_t i = 0; i < n; i++) {
        s->n_events += bytes[i] == '\n' && s->last == '\n';
        s->last = bytes[i];
    }
    return true;
}

static int run(const void *context, int port_fd)
{
    const struct stream_client *c = context;
    uint16_t port;
    struct stream *streams = calloc(c->n_streams, sizeof *streams);
    int poll = epoll_create1(EPOLL_CLOEXEC);
    if (!streams || poll < 0)
        give_up("host_bench: client");
    if (read(port_fd, &port, sizeof port) != sizeof port)
        return 1; /* the server did not start and has reported why */
    for (uint32_t i = 0; i < c->n_streams; i++) {
        streams[i].fd = connect_to(port);
        struct epoll_event e = {.events = EPOLLIN, .data.u32 = i};
        if (epoll_ctl(poll, EPOLL_CTL_ADD, streams[i].fd, &e))
            give_up("host_bench: client: epoll");
    }
    for (uint32_t i = 0; i < c->n_streams; i++)
        ask(&streams[i], i, c->n_tokens);
    uint32_t n_open = c->n_streams;
    uint32_t n_events = c->n_tokens + 2; /* the finish and [DONE], and perhaps a held-back character */
    while (n_open > 0) {
        struct epoll_event events[256];
        int n = epoll_wait(poll, events, 256, -1);
        for (int i = 0; i < n; i++) {
            struct stream *s = &streams[events[i].data.u32];
            if (take(s))
                continue;
            if (s->n_events < n_events) {
                fprintf(stderr, "host_bench: client: a stream ended after %u of %u events\n", s->n_events, n_events);
                return 1;
            }
            close(s->fd);
            n_open--;
        }
    }
    return 0;
}

int stream_client_start(const struct stream_client *c, int *port_fd)
{
    return client_process_start(run, c, port_fd);
}
