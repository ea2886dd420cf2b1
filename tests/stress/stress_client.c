/* Many clients of one server at 127.0.0.1, on one thread: each sends a request, and takes its reply or leaves.
 *
 *     stress_client --port N --mix cancel|soak|garbage [--requests N] [--clients N] [--seed N]
 *
 * Prints one JSON object: the requests and their results. Status 1: a client that stayed got no whole reply, or
 * equal requests got unequal answers. tests/stress/stress.py starts it and checks the server. */
#include "base/clock.h"
#include "tests/stress/stress_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define REPLY_BYTES 262144
#define LATER_MS 50
#define PATIENCE_MS 120000
#define KINDS (2 * 8)

struct client {
    int fd;
    enum ask ask;
    enum moment moment;
    enum manner manner;
    bool half_closed;
    uint64_t until_ms;      /* when it leaves, or times out */
    size_t n_request, sent; /* n_request: bytes of the request to send */
    size_t n_reply, leave_at;
    unsigned variant;
    char request[REQUEST_BYTES];
    char reply[REPLY_BYTES];
};

static struct {
    const struct mix *mix;
    uint64_t state, n_wanted, n_begun, n_over;
    uint64_t n_asked[N_ASKS], n_left[N_MOMENTS][N_MANNERS], n_status[6];
    uint64_t n_unequal, n_cut_short, n_impatient, n_compared, n_connections;
    uint16_t port;
    unsigned n_clients;
    int poll;
    char *expected[KINDS]; /* answers of each plain request, and each chat */
    struct client *clients;
} all;

static void die(const char *what)
{
    fprintf(stderr, "stress_client: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- connecting ---- */

/* From one of 250 addresses of this machine: a single address would run out of ports while closed connections
 * linger. */
static void connect_it(struct client *c)
{
    const int yes = 1;
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(0x7F000002u + draw_below(&all.state, 250))};
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(all.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        die("socket");
    setsockopt(c->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof yes);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (bind(c->fd, (struct sockaddr *)&from, sizeof from) != 0)
        die("bind");
    if (connect(c->fd, (struct sockaddr *)&to, sizeof to) != 0)
        die("connect");
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(all.poll, EPOLL_CTL_ADD, c->fd, &e) != 0)
        die("epoll_ctl");
    all.n_connections++;
}

static void leave(struct client *c);
static void hang_up(struct client *c);

/* Sends the next request; the client ends if there are no more. */
static void ask(struct client *c)
{
    if (all.n_begun == all.n_wanted) {
        hang_up(c);
        return;
    }
    all.n_begun++;
    if (c->fd < 0)
        connect_it(c);
    const struct mix *mix = all.mix;
    c->ask = (enum ask)draw_weighted(&all.state, mix->asks, N_ASKS);
    c->moment = (enum moment)draw_weighted(&all.state, mix->moments, N_MOMENTS);
    c->manner = (enum manner)draw_weighted(&all.state, mix->manners, N_MANNERS);
    bool is_long = c->ask == ASK_LONG || c->ask == ASK_LONG_PROMPT;
    if ((is_long && c->moment == MOMENT_REPLYING) || (c->ask == ASK_LONG_STREAM && c->moment == MOMENT_NEVER))
        c->moment = MOMENT_LATER; /* a reply without streaming comes at the end: the client does not wait for it */
    c->n_request = request_make(c->ask, &all.state, c->request, &c->variant);
    c->sent = c->n_reply = 0;
    c->half_closed = false;
    c->until_ms = quire_now_ms() + (c->moment == MOMENT_LATER ? draw_below(&all.state, LATER_MS) : PATIENCE_MS);
    c->leave_at = 1 + draw_below(&all.state, 2000);
    if (c->moment == MOMENT_UNSENT)
        c->n_request = draw_below(&all.state, (unsigned)c->n_request);
    all.n_asked[c->ask]++;
    /* Requests are small: if a socket accepts less, its peer has closed. */
    if (c->n_request > 0)
        (void)!send(c->fd, c->request, c->n_request, MSG_NOSIGNAL);
    /* Only this tells the server that no more bytes will come. */
    if (c->ask == ASK_GARBAGE && c->variant == VARIANT_NO_HTTP)
        shutdown(c->fd, SHUT_WR);
    if (c->moment == MOMENT_UNSENT || c->moment == MOMENT_SENT)
        leave(c);
}

/* ---- leaving ---- */

static void hang_up(struct client *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

/* The request has ended. */
static void over(struct client *c, bool keep)
{
    all.n_over++;
    if (!keep)
        hang_up(c);
    ask(c);
}

static void leave(struct client *c)
{
    const struct linger now = {.l_onoff = 1};
    all.n_left[c->moment][c->manner]++;
    if (c->manner == MANNER_HALF_CLOSE) { /* and reads the rest */
        shutdown(c->fd, SHUT_WR);
        c->half_closed = true;
        c->until_ms = quire_now_ms() + PATIENCE_MS;
        return;
    }
    if (c->manner == MANNER_RESET)
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    over(c, false);
}

/* ---- replies ---- */

/* Returns the number of bytes of a whole reply at the beginning of the buffer; 0: it is incomplete. */
static size_t reply_whole(const struct client *c)
{
    const char *end = memmem(c->reply, c->n_reply, "\r\n\r\n", 4);
    if (!end)
        return 0;
    size_t n_head = (size_t)(end - c->reply) + 4;
    const char *length = memmem(c->reply, n_head, "Content-Length: ", 16);
    if (length) {
        size_t n = n_head + strtoul(length + 16, NULL, 10);
        return c->n_reply >= n ? n : 0;
    }
    return c->n_reply > n_head + 5 && memcmp(c->reply + c->n_reply - 7, "\r\n0\r\n\r\n", 7) == 0 ? c->n_reply : 0;
}

/* Compares everything but ids, dates and the number of cached tokens. */
static void compare(struct client *c)
{
    unsigned kind = (c->ask == ASK_CHAT) * (KINDS / 2) + c->variant;
    c->reply[c->n_reply] = '\0';
    char *begin = strstr(c->reply, "\"choices\":"), *end = begin ? strstr(begin, "\"usage\":") : NULL;
    if (!end) {
        all.n_cut_short++;
        return;
    }
    *end = '\0';
    all.n_compared++;
    if (!all.expected[kind])
        all.expected[kind] = strdup(begin);
    else if (strcmp(all.expected[kind], begin) != 0)
        all.n_unequal++;
}

/* Counts the first digit of the status. */
static int count_status(const struct client *c)
{
    int status = c->n_reply > 12 && memcmp(c->reply, "HTTP/1.", 7) == 0 ? c->reply[9] - '0' : 0;
    all.n_status[status > 0 && status < 6 ? status : 0]++;
    return status;
}

static void take_reply(struct client *c)
{
    int status = count_status(c);
    if (status == 2 && (c->ask == ASK_PLAIN || c->ask == ASK_CHAT))
        compare(c);
    bool closes = memmem(c->reply, c->n_reply, "Connection: close", 17) != NULL;
    over(c, !closes && draw_below(&all.state, 100) < all.mix->keep_alive_percent);
}

static void on_readable(struct client *c)
{
    if (c->n_reply + 1 >= REPLY_BYTES)
        c->n_reply = 0; /* the rest of a long reply is not compared */
    ssize_t n = recv(c->fd, c->reply + c->n_reply, REPLY_BYTES - 1 - c->n_reply, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return; /* the event belonged to the previous connection */
    if (n <= 0) {
        bool no_http = c->ask == ASK_GARBAGE && c->variant == VARIANT_NO_HTTP;
        all.n_cut_short += c->moment == MOMENT_NEVER && !no_http && !c->half_closed;
        count_status(c);
        over(c, false);
        return;
    }
    c->n_reply += (size_t)n;
    if (c->half_closed || (c->ask == ASK_GARBAGE && c->variant == VARIANT_NO_HTTP))
        return; /* the reply ends with the connection */
    if (c->moment == MOMENT_REPLYING && c->n_reply >= c->leave_at)
        leave(c);
    else if (reply_whole(c) > 0)
        take_reply(c);
}

static void look_at_clocks(void)
{
    uint64_t now = quire_now_ms();
    for (unsigned i = 0; i < all.n_clients; i++) {
        struct client *c = &all.clients[i];
        if (c->fd < 0 || now < c->until_ms)
            continue;
        if (c->moment == MOMENT_LATER && !c->half_closed) {
            leave(c);
        } else {
            all.n_impatient++;
            over(c, false);
        }
    }
}

/* ---- main loop ---- */

static void run(void)
{
    struct epoll_event events[256];
    all.poll = epoll_create1(EPOLL_CLOEXEC);
    all.clients = calloc(all.n_clients, sizeof *all.clients);
    if (all.poll < 0 || !all.clients)
        die("memory");
    for (unsigned i = 0; i < all.n_clients; i++)
        all.clients[i].fd = -1;
    for (unsigned i = 0; i < all.n_clients; i++)
        ask(&all.clients[i]);
    while (all.n_over < all.n_wanted) {
        int n = epoll_wait(all.poll, events, 256, 5);
        for (int i = 0; i < n; i++) {
            struct client *c = events[i].data.ptr;
            if (c->fd >= 0)
                on_readable(c);
        }
        look_at_clocks();
    }
    for (unsigned i = 0; i < all.n_clients; i++)
        hang_up(&all.clients[i]);
}

static void report(double seconds)
{
    printf("{\"mix\": \"%s\", \"requests\": %llu, \"connections\": %llu, \"seconds\": %.1f, \"asked\": {",
           all.mix->name, (unsigned long long)all.n_over, (unsigned long long)all.n_connections, seconds);
    for (int i = 0, n = 0; i < N_ASKS; i++)
        if (all.n_asked[i])
            printf("%s\"%s\": %llu", n++ ? ", " : "", ask_names[i], (unsigned long long)all.n_asked[i]);
    printf("}, \"left\": {");
    for (int i = 0, n = 0; i < N_MOMENTS; i++)
        for (int j = 0; j < N_MANNERS; j++)
            if (all.n_left[i][j])
                printf("%s\"%s, %s\": %llu", n++ ? ", " : "", moment_names[i], manner_names[j],
                       (unsigned long long)all.n_left[i][j]);
    printf("}, \"replies\": {");
    for (int i = 2; i < 6; i++)
        printf("%s\"%dxx\": %llu", i > 2 ? ", " : "", i, (unsigned long long)all.n_status[i]);
    printf("}, \"compared\": %llu, \"unequal\": %llu, \"cut_short\": %llu, \"impatient\": %llu}\n",
           (unsigned long long)all.n_compared, (unsigned long long)all.n_unequal, (unsigned long long)all.n_cut_short,
           (unsigned long long)all.n_impatient);
}

int main(int argc, char **argv)
{
    static const struct option names[] = {
        {"port", required_argument, NULL, 'p'},     {"mix", required_argument, NULL, 'm'},
        {"requests", required_argument, NULL, 'r'}, {"clients", required_argument, NULL, 'c'},
        {"seed", required_argument, NULL, 's'},     {NULL, 0, NULL, 0}};
    int letter;
    all.n_wanted = 1000;
    all.n_clients = 64;
    all.state = 1;
    while ((letter = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (letter) {
        case 'p': all.port = (uint16_t)strtoul(optarg, NULL, 10); break;
        case 'r': all.n_wanted = strtoull(optarg, NULL, 10); break;
        case 'c': all.n_clients = (unsigned)strtoul(optarg, NULL, 10); break;
        case 's': all.state = strtoull(optarg, NULL, 10); break;
        case 'm':
            for (size_t i = 0; i < n_mixes; i++)
                if (strcmp(mixes[i].name, optarg) == 0)
                    all.mix = &mixes[i];
            break;
        default: return 2;
        }
    }
    if (!all.port || !all.mix || all.n_clients == 0) {
        fprintf(stderr,
                "usage: stress_client --port N --mix cancel|soak|garbage [--requests N] [--clients N] [--seed N]\n");
        return 2;
    }
    uint64_t began = quire_now_ms();
    run();
    report((double)(quire_now_ms() - began) / 1000);
    return all.n_unequal || all.n_cut_short || all.n_impatient;
}
