/* The two ends of a proxy's benchmark (against_proxies.py): a null upstream server, which answers every request with the
 * same chat of 200 tokens, and a client, which sends the next request after the reply to the last.
 *
 *     relay_bench upstream PORT
 *     relay_bench client PORT CONNECTIONS SECONDS [stream]     prints JSON: requests a second, latencies in microseconds
 *
 * Both are one thread with epoll. The client counts a reply when its framing says that it is whole, and fails on anything
 * but 200, so that a proxy that answers with errors is not fast. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <netinet/tcp.h>
#include <time.h>
#include <unistd.h>

#define N_TOKENS 200
#define MAX_CONNECTIONS 1024
#define BUFFER_BYTES 65536
#define MAX_SAMPLES (1u << 22)

struct connection {
    int fd;
    size_t n;
    double began_us;
    char bytes[BUFFER_BYTES];
};

static char whole[BUFFER_BYTES], stream[BUFFER_BYTES];
static size_t n_whole, n_stream;

static void give_up(const char *what)
{
    fprintf(stderr, "relay_bench: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static struct sockaddr_in loopback(const char *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

static void no_delay(int fd)
{
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* ---- upstream ---- */

static void make_replies(void)
{
    static char body[BUFFER_BYTES];
    size_t n = (size_t)snprintf(
        body, sizeof body,
        "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"null\","
        "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"");
    for (int i = 0; i < N_TOKENS; i++)
        n += (size_t)snprintf(body + n, sizeof body - n, "word ");
    n += (size_t)snprintf(body + n, sizeof body - n,
                          "\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":%d,"
                          "\"total_tokens\":%d}}",
                          N_TOKENS, N_TOKENS + 20);
    n_whole = (size_t)snprintf(whole, sizeof whole,
                               "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", n,
                               body);
    n_stream = (size_t)snprintf(
        stream, sizeof stream,
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i <= N_TOKENS + 1; i++) {
        char event[512];
        int m = i < N_TOKENS
                    ? snprintf(event, sizeof event,
                               "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,"
                               "\"model\":\"null\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word \"},"
                               "\"finish_reason\":null}]}\n\n")
                : i == N_TOKENS
                    ? snprintf(event, sizeof event,
                               "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,"
                               "\"model\":\"null\",\"choices\":[],\"usage\":{\"prompt_tokens\":20,"
                               "\"completion_tokens\":%d,\"total_tokens\":%d}}\n\n",
                               N_TOKENS, N_TOKENS + 20)
                    : snprintf(event, sizeof event, "data: [DONE]\n\n");
        n_stream += (size_t)snprintf(stream + n_stream, sizeof stream - n_stream, "%x\r\n%s\r\n", (unsigned)m, event);
    }
    n_stream += (size_t)snprintf(stream + n_stream, sizeof stream - n_stream, "0\r\n\r\n");
}

static void send_all(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return; /* the proxy has closed it; epoll says so */
        bytes += sent;
        n -= (size_t)sent;
    }
}

/* The length of the request at the beginning of c, or 0. */
static size_t request_length(struct connection *c)
{
    c->bytes[c->n] = '\0';
    const char *end = strstr(c->bytes, "\r\n\r\n"), *length = strcasestr(c->bytes, "content-length:");
    if (!end)
        return 0;
    size_t n = (size_t)(end + 4 - c->bytes) + (length && length < end ? strtoul(length + 15, NULL, 10) : 0);
    return n <= c->n ? n : 0;
}

static void answer(struct connection *c)
{
    for (size_t n; (n = request_length(c)) > 0;) {
        const char saved = c->bytes[n];
        c->bytes[n] = '\0';
        bool streams = strstr(c->bytes, "\"stream\":true") || strstr(c->bytes, "\"stream\": true");
        c->bytes[n] = saved;
        send_all(c->fd, streams ? stream : whole, streams ? n_stream : n_whole);
        memmove(c->bytes, c->bytes + n, c->n - n);
        c->n -= n;
    }
}

static _Noreturn void run_upstream(const char *port)
{
    const struct sockaddr_in where = loopback(port);
    const int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0), loop = epoll_create1(0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (const struct sockaddr *)&where, sizeof where) != 0 || listen(listener, 1024) != 0)
        give_up("listen");
    make_replies();
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(loop, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        struct epoll_event ready[64];
        const int n = epoll_wait(loop, ready, 64, -1);
        for (int i = 0; i < n; i++) {
            struct connection *c = ready[i].data.ptr;
            if (!c) {
                c = calloc(1, sizeof *c);
                if (!c || (c->fd = accept(listener, NULL, NULL)) < 0)
                    give_up("accept");
                no_delay(c->fd);
                event.data.ptr = c;
                epoll_ctl(loop, EPOLL_CTL_ADD, c->fd, &event);
                continue;
            }
            const ssize_t got = recv(c->fd, c->bytes + c->n, sizeof c->bytes - 1 - c->n, 0);
            if (got <= 0) {
                close(c->fd);
                free(c);
                continue;
            }
            c->n += (size_t)got;
            answer(c);
        }
    }
}

/* ---- client ---- */

static bool asks_stream;
static float *samples;
static uint32_t n_samples;

static void ask(struct connection *c)
{
    static const char body[] =
        "{\"model\":\"null\",\"messages\":[{\"role\":\"user\",\"content\":\"Tell me about the sea and the "
        "ships that sail on it, please.\"}],\"max_tokens\":200";
    char request[1024];
    const char *end = asks_stream ? ",\"stream\":true}" : "}";
    const int n = snprintf(request, sizeof request,
                           "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                           "Authorization: Bearer key\r\nContent-Length: %zu\r\n\r\n%s%s",
                           sizeof body - 1 + strlen(end), body, end);
    c->n = 0;
    c->began_us = now_us();
    if (send(c->fd, request, (size_t)n, MSG_NOSIGNAL) != n)
        give_up("send");
}

static bool is_whole(struct connection *c)
{
    c->bytes[c->n] = '\0';
    const char *end = strstr(c->bytes, "\r\n\r\n");
    if (!end)
        return false;
    if (strncmp(c->bytes, "HTTP/1.1 200", 12) != 0) {
        fprintf(stderr, "relay_bench: the reply is not 200: %.400s\n", c->bytes);
        exit(1);
    }
    const char *length = strcasestr(c->bytes, "content-length:");
    if (length && length < end)
        return c->n >= (size_t)(end + 4 - c->bytes) + strtoul(length + 15, NULL, 10);
    return c->n >= 5 && memcmp(c->bytes + c->n - 5, "0\r\n\r\n", 5) == 0;
}

static void take(struct connection *c)
{
    const ssize_t got = recv(c->fd, c->bytes + c->n, sizeof c->bytes - 1 - c->n, 0);
    if (got <= 0)
        give_up("the connection has ended");
    c->n += (size_t)got;
    if (!is_whole(c))
        return;
    if (n_samples < MAX_SAMPLES)
        samples[n_samples++] = (float)(now_us() - c->began_us);
    ask(c);
}

static int compare(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

static int run_client(const char *port, int n_connections, double seconds)
{
    const struct sockaddr_in where = loopback(port);
    const int loop = epoll_create1(0);
    samples = malloc(MAX_SAMPLES * sizeof *samples);
    struct connection *all = calloc((size_t)n_connections, sizeof *all);
    if (!samples || !all)
        give_up("memory");
    for (int i = 0; i < n_connections; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &all[i]};
        all[i].fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(all[i].fd, (const struct sockaddr *)&where, sizeof where) != 0)
            give_up("connect");
        no_delay(all[i].fd);
        epoll_ctl(loop, EPOLL_CTL_ADD, all[i].fd, &event);
        ask(&all[i]);
    }
    double begun = now_us();
    bool is_warm = false;
    while (now_us() - begun < seconds * 1e6) {
        struct epoll_event ready[64];
        const int n = epoll_wait(loop, ready, 64, 1000);
        for (int i = 0; i < n; i++)
            take(ready[i].data.ptr);
        if (!is_warm && now_us() - begun > 5e5) { /* connections of the proxy, caches */
            is_warm = true;
            n_samples = 0;
            begun = now_us();
        }
    }
    const double took_s = (now_us() - begun) / 1e6;
    qsort(samples, n_samples, sizeof *samples, compare);
    if (n_samples == 0)
        give_up("no reply");
    printf(
        "{\"requests_per_s\": %.1f, \"n\": %u, \"p50_us\": %.1f, \"p90_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}\n",
        n_samples / took_s, n_samples, (double)samples[n_samples / 2], (double)samples[(uint64_t)n_samples * 90 / 100],
        (double)samples[(uint64_t)n_samples * 99 / 100], (double)samples[n_samples - 1]);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "upstream") == 0)
        run_upstream(argv[2]);
    if (argc >= 5 && strcmp(argv[1], "client") == 0 && atoi(argv[3]) > 0 && atoi(argv[3]) <= MAX_CONNECTIONS) {
        asks_stream = argc > 5 && strcmp(argv[5], "stream") == 0;
        return run_client(argv[2], atoi(argv[3]), atof(argv[4]));
    }
    fprintf(stderr, "usage: relay_bench upstream PORT\n       relay_bench client PORT CONNECTIONS SECONDS [stream]\n");
    return 2;
}
