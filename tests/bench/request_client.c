/* The client of bench_requests, in a process of its own: connections that send the next request after the reply to the
 * last. Only the length and status of replies are checked. */
#include "tests/bench/host_bench.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_REPLY 8192

struct connection {
    int fd;
    size_t n;
    char reply[MAX_REPLY];
};

static void give_up(const char *what)
{
    perror(what);
    _exit(1);
}

static void ask(const struct connection *c, uint32_t index, uint32_t n_words)
{
    char body[4096], request[4608];
    int n_body = snprintf(body, sizeof body,
                          "{\"model\": \"bench\", \"max_tokens\": 1, \"temperature\": 0, \"prompt\": \"%u", index);
    for (uint32_t i = 0; i < n_words && (size_t)n_body < sizeof body - 16; i++)
        n_body += snprintf(body + n_body, sizeof body - (size_t)n_body, " %s", i % 2 ? "little" : "the");
    n_body += snprintf(body + n_body, sizeof body - (size_t)n_body, "\"}");
    int n = snprintf(request, sizeof request,
                     "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     "User-Agent: host_bench\r\nContent-Length: %d\r\n\r\n%s",
                     n_body, body);
    if (send(c->fd, request, (size_t)n, 0) != n)
        give_up("host_bench: client: send");
}

/* Returns whether the whole reply has arrived. */
static bool take(struct connection *c)
{
    ssize_t n = recv(c->fd, c->reply + c->n, sizeof c->reply - 1 - c->n, 0);
    if (n <= 0)
        give_up("host_bench: client: recv");
    c->n += (size_t)n;
    c->reply[c->n] = '\0';
    const char *end = strstr(c->reply, "\r\n\r\n"), *length = strstr(c->reply, "Content-Length: ");
    if (!end || !length || c->n < (size_t)(end + 4 - c->reply) + strtoul(length + 16, NULL, 10))
        return false;
    if (strncmp(c->reply, "HTTP/1.1 200 ", 13) != 0) {
        fprintf(stderr, "host_bench: client: %s\n", c->reply);
        _exit(1);
    }
    c->n = 0;
    return true;
}

static int run(const void *context, int port_fd)
{
    const struct request_client *client = context;
    uint16_t port;
    struct connection *connections = calloc(client->n_connections, sizeof *connections);
    int poll = epoll_create1(EPOLL_CLOEXEC);
    if (!connections || poll < 0)
        give_up("host_bench: client");
    if (read(port_fd, &port, sizeof port) != sizeof port)
        return 1; /* the server did not start and has reported why */
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    uint32_t n_asked = 0, n_had = 0;
    for (uint32_t i = 0; i < client->n_connections; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.u32 = i};
        connections[i].fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connections[i].fd < 0 || connect(connections[i].fd, (const struct sockaddr *)&at, sizeof at) ||
            epoll_ctl(poll, EPOLL_CTL_ADD, connections[i].fd, &e))
            give_up("host_bench: client: connect");
        ask(&connections[i], n_asked++, client->n_words);
    }
    while (n_had < client->n_requests) {
        struct epoll_event events[256];
        int n = epoll_wait(poll, events, 256, -1);
        for (int i = 0; i < n; i++) {
            struct connection *c = &connections[events[i].data.u32];
            if (!take(c))
                continue;
            n_had++;
            if (n_asked < client->n_requests)
                ask(c, n_asked++, client->n_words);
        }
    }
    return 0;
}

int request_client_start(const struct request_client *c, int *port_fd)
{
    return client_process_start(run, c, port_fd);
}
