#include "server/cache/redis/link.h"

#include "base/clock.h"
#include "base/hash.h"
#include "server/cache/redis/resolve.h"
#include "server/cache/redis/socket.h"

#include <event2/event_struct.h>
#include <hiredis/hiredis.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define MS UINT64_C(1000000) /* ns */
#define CONNECT_MS 1000 /* to one address, with TLS and greeting */
#define SILENT_MS 1000
#define SLOW_MS 10000
#define TICK_MS 250
#define MIN_PAUSE_MS 100u
#define MAX_PAUSE_MS 5000u
#define LIVED_MS 5000 /* one that lasted so long was no bad one */
#define CHUNK ((size_t)64 << 10)
#define CHUNKS_A_TURN 4 /* then others on the loop have theirs */
#define LATER_IN_FLIGHT \
    ((size_t)1 << 20) /* limit of commands in flight that are not urgent, so that an urgent
                                           * command waits for no more than this */

enum state { RESTING, RESOLVING, CONNECTING, GREETING, READY };

struct command {
    TAILQ_ENTRY(command) link;
    char *bytes;
    size_t n, n_copied;
    uint64_t sent_ns;
    enum redis_urgency urgency;
    redis_answered answered;
    void *context;
};
TAILQ_HEAD(commands, command);

struct redis_link {
    struct event_base *base;
    struct redis_url url;
    struct redis_link_events events;
    SSL_CTX *tls; /* NULL: without */
    enum state state;
    struct redis_resolve *resolving;
    struct addrinfo *addresses, *address; /* all, and the one that is tried */
    struct redis_socket socket;
    struct redis_replies *replies;
    struct event on_readable, on_writable, timer;
    bool is_watching; /* the first two are of this socket */
    struct commands queues[2]; /* by urgency: not sent yet */
    struct commands sent; /* in the order of their answers */
    size_t later_in_flight; /* bytes of REDIS_LATER in sent */
    unsigned n_greetings; /* not answered yet */
    uint64_t begun_ns /* of the state */, heard_ns;
    uint32_t pause_ms;
    bool is_refused; /* a greeting was */
    char trouble[160];
    size_t out_begin, out_end;
    char out[CHUNK], in[CHUNK];
};

static void pump(struct redis_link *l);

/* ---- words ---------------------------------------------------------------------------------- */

/* Text of other processes is shown without characters that could control a terminal. */
static void set_trouble(struct redis_link *l, const char *what, const char *why)
{
    snprintf(l->trouble, sizeof l->trouble, "%.48s: %.100s", what, why);
    for (char *c = l->trouble; *c; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c >= 127)
            *c = '?';
}

void redis_link_note(struct redis_link *l, const char *what, const char *why)
{
    set_trouble(l, what, why);
}

const char *redis_link_trouble(const struct redis_link *l)
{
    return l->trouble;
}

bool redis_link_is_ready(const struct redis_link *l)
{
    return l->state == READY;
}

static void set_timer(struct redis_link *l, uint32_t ms)
{
    const struct timeval wait = {.tv_sec = ms / 1000, .tv_usec = (suseconds_t)(ms % 1000) * 1000};
    evtimer_add(&l->timer, &wait);
}

static void enter(struct redis_link *l, enum state state)
{
    l->state = state;
    l->begun_ns = quire_now_ns();
}

/* ---- commands ------------------------------------------------------------------------------- */

static void command_free(struct command *c)
{
    if (c->bytes)
        redisFreeCommand(c->bytes);
    free(c);
}

/* NULL: out of memory. */
static struct command *command_new(int n, const char *const *arguments, const size_t *n_bytes)
{
    struct command *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    const long long length = redisFormatCommandArgv(&c->bytes, n, (const char **)arguments, n_bytes);
    if (length <= 0) {
        c->bytes = NULL;
        command_free(c);
        return NULL;
    }
    c->n = (size_t)length;
    return c;
}

static bool ask(struct redis_link *l, enum redis_urgency urgency, int n, const char *const *arguments,
                const size_t *n_bytes, redis_answered answered, void *context)
{
    struct command *c = command_new(n, arguments, n_bytes);
    if (!c)
        return false;
    c->urgency = urgency;
    c->answered = answered;
    c->context = context;
    TAILQ_INSERT_TAIL(&l->queues[urgency], c, link);
    event_active(&l->on_writable, EV_WRITE, 0); /* commands of one turn of the loop are sent together */
    return true;
}

bool redis_link_ask(struct redis_link *l, enum redis_urgency urgency, int n, const char *const *arguments,
                    const size_t *n_bytes, redis_answered answered, void *context)
{
    return l->state == READY && ask(l, urgency, n, arguments, n_bytes, answered, context);
}

static bool any_unsent(const struct redis_link *l)
{
    return l->out_begin < l->out_end || !TAILQ_EMPTY(&l->queues[REDIS_URGENT]) ||
           (!TAILQ_EMPTY(&l->queues[REDIS_LATER]) && l->later_in_flight < LATER_IN_FLIGHT);
}

/* One that is half in `out` goes on first; it is the first of its queue. */
static struct command *next_to_copy(struct redis_link *l)
{
    struct command *urgent = TAILQ_FIRST(&l->queues[REDIS_URGENT]), *later = TAILQ_FIRST(&l->queues[REDIS_LATER]);
    if (later && later->n_copied > 0)
        return later;
    if (urgent)
        return urgent;
    return l->later_in_flight < LATER_IN_FLIGHT ? later : NULL;
}

static void fill_out(struct redis_link *l)
{
    struct command *c;
    if (l->out_begin < l->out_end)
        return;
    l->out_begin = l->out_end = 0;
    while (l->out_end < CHUNK && (c = next_to_copy(l))) {
        const size_t room = CHUNK - l->out_end, left = c->n - c->n_copied, n = left < room ? left : room;
        memcpy(l->out + l->out_end, c->bytes + c->n_copied, n);
        l->out_end += n;
        c->n_copied += n;
        if (c->n_copied < c->n)
            return;
        TAILQ_REMOVE(&l->queues[c->urgency], c, link);
        TAILQ_INSERT_TAIL(&l->sent, c, link);
        c->sent_ns = quire_now_ns();
        if (c->urgency == REDIS_LATER)
            l->later_in_flight += c->n;
        redisFreeCommand(c->bytes);
        c->bytes = NULL;
    }
}

/* Fails every command that will not receive a reply. */
static void lose(struct commands *from)
{
    struct command *c;
    while ((c = TAILQ_FIRST(from))) {
        TAILQ_REMOVE(from, c, link);
        if (c->answered)
            c->answered(c->context, NULL);
        command_free(c);
    }
}

/* ---- coming and going ----------------------------------------------------------------------- */

static void hang_up(struct redis_link *l)
{
    if (l->is_watching) {
        event_del(&l->on_readable);
        event_del(&l->on_writable);
    }
    l->is_watching = false;
    redis_socket_close(&l->socket);
    redis_replies_free(l->replies);
    l->replies = NULL;
    l->out_begin = l->out_end = 0;
    l->later_in_flight = 0;
    l->n_greetings = 0;
    l->is_refused = false;
    l->state = RESTING;
    lose(&l->sent);
    lose(&l->queues[REDIS_URGENT]);
    lose(&l->queues[REDIS_LATER]);
}

static void forget_addresses(struct redis_link *l)
{
    if (l->addresses)
        freeaddrinfo(l->addresses);
    l->addresses = l->address = NULL;
}

/* Several servers that lost the same Redis do not come back in step. */
static void rest(struct redis_link *l)
{
    uint8_t chance = 0;
    quire_random(&chance, sizeof chance);
    forget_addresses(l);
    enter(l, RESTING);
    set_timer(l, l->pause_ms * (192u + chance / 2) / 256);
    l->pause_ms = l->pause_ms * 2 < MAX_PAUSE_MS ? l->pause_ms * 2 : MAX_PAUSE_MS;
}

static void try_addresses(struct redis_link *l);

static void give_up(struct redis_link *l)
{
    rest(l);
    l->events.on_change(l->events.context, false);
}

/* set_trouble() was called. */
static void over(struct redis_link *l)
{
    const bool lived = l->state == READY && quire_now_ns() - l->begun_ns > LIVED_MS * MS;
    const bool is_next = l->state != READY && l->address && l->address->ai_next;
    hang_up(l);
    if (lived)
        l->pause_ms = MIN_PAUSE_MS;
    if (is_next) {
        l->address = l->address->ai_next;
        try_addresses(l);
    } else {
        give_up(l);
    }
}

static void on_socket(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    pump(context);
}

static int try_address(struct redis_link *l, struct quire_error *err)
{
    const struct addrinfo *a = l->address;
    l->replies = redis_replies_new();
    if (!l->replies)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    int status = redis_socket_open(&l->socket, a->ai_addr, a->ai_addrlen, l->tls, l->url.host, err);
    if (status != QUIRE_OK)
        return status;
    event_assign(&l->on_readable, l->base, l->socket.fd, EV_READ | EV_PERSIST, on_socket, l);
    event_assign(&l->on_writable, l->base, l->socket.fd, EV_WRITE, on_socket, l);
    l->is_watching = true;
    if (event_add(&l->on_readable, NULL) != 0 || event_add(&l->on_writable, NULL) != 0)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    return QUIRE_OK;
}

/* From l->address on, the first that can be begun with. */
static void try_addresses(struct redis_link *l)
{
    struct quire_error err;
    for (; l->address; l->address = l->address->ai_next) {
        if (try_address(l, &err) == QUIRE_OK) {
            enter(l, CONNECTING);
            set_timer(l, CONNECT_MS);
            return;
        }
        set_trouble(l, "connecting", err.text);
        hang_up(l);
    }
    give_up(l);
}

static void on_resolved(void *context, struct addrinfo *found, const char *why)
{
    struct redis_link *l = context;
    l->resolving = NULL;
    if (!found) {
        set_trouble(l, l->url.host, why);
        give_up(l);
        return;
    }
    l->addresses = l->address = found;
    try_addresses(l);
}

static void begin(struct redis_link *l)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    if (getaddrinfo(l->url.host, l->url.port, &hints, &l->addresses) == 0) {
        l->address = l->addresses;
        try_addresses(l);
        return;
    }
    l->addresses = NULL;
    enter(l, RESOLVING);
    l->resolving = redis_resolve_start(l->base, l->url.host, l->url.port, on_resolved, l);
    if (!l->resolving) {
        set_trouble(l, l->url.host, "out of memory or threads");
        give_up(l);
    }
}

/* ---- greeting ------------------------------------------------------------------------------- */

/* Shows only the first word of an error, if it is an error code of Redis, because some errors repeat their
 * arguments, including the password. */
static void refused(struct redis_link *l, const struct redis_reply *reply)
{
    char word[24];
    const char *text = reply->type == REDIS_ERROR ? reply->text : "";
    const size_t n = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    const bool is_word = n > 0 && n < sizeof word && (text[n] == ' ' || text[n] == '\0');
    snprintf(word, sizeof word, "%.*s", is_word ? (int)n : 0, text);
    set_trouble(l, "AUTH, SELECT or PING is rejected", is_word ? word : "with a text that is not shown");
    l->is_refused = true;
}

static void greeted(void *context, const struct redis_reply *reply)
{
    struct redis_link *l = context;
    if (!reply || l->is_refused)
        return;
    if (reply->type != REDIS_STATUS) {
        refused(l, reply);
        return;
    }
    if (--l->n_greetings > 0)
        return;
    enter(l, READY);
    set_timer(l, TICK_MS);
    l->events.on_change(l->events.context, true);
}

static bool greet_by(struct redis_link *l, int n, const char *const *words)
{
    size_t lengths[3];
    for (int i = 0; i < n; i++)
        lengths[i] = strlen(words[i]);
    l->n_greetings++;
    return ask(l, REDIS_URGENT, n, words, lengths, greeted, l);
}

static bool greet(struct redis_link *l)
{
    char db[16];
    snprintf(db, sizeof db, "%u", l->url.db);
    const char *const as_user[] = {"AUTH", l->url.user, l->url.password}, *const as_any[] = {"AUTH", l->url.password},
                      *const in[] = {"SELECT", db}, *const ping[] = {"PING"};
    enter(l, GREETING);
    return (!l->url.password[0] || (l->url.user[0] ? greet_by(l, 3, as_user) : greet_by(l, 2, as_any))) &&
           (l->url.db == 0 || greet_by(l, 2, in)) && greet_by(l, 1, ping);
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static int write_out(struct redis_link *l, struct quire_error *err)
{
    for (int turn = 0; turn < CHUNKS_A_TURN; turn++) {
        size_t n = 0;
        fill_out(l);
        if (l->out_begin == l->out_end)
            break;
        int status = redis_socket_write(&l->socket, l->out + l->out_begin, l->out_end - l->out_begin, &n, err);
        if (status != QUIRE_OK || n == 0)
            return status;
        l->out_begin += n;
    }
    return QUIRE_OK;
}

static int take_replies(struct redis_link *l, struct quire_error *err)
{
    for (;;) {
        struct redis_reply *reply;
        int status = redis_replies_next(l->replies, &reply, err);
        if (status != QUIRE_OK || !reply)
            return status;
        struct command *c = TAILQ_FIRST(&l->sent);
        if (!c) {
            redis_reply_free(reply);
            return quire_fail(err, QUIRE_INVALID, "a reply without a command");
        }
        TAILQ_REMOVE(&l->sent, c, link);
        if (c->urgency == REDIS_LATER)
            l->later_in_flight -= c->n;
        if (c->answered)
            c->answered(c->context, reply);
        redis_reply_free(reply);
        command_free(c);
        if (l->is_refused)
            return QUIRE_OK;
    }
}

static int read_in(struct redis_link *l, struct quire_error *err)
{
    for (int turn = 0; turn < CHUNKS_A_TURN; turn++) {
        size_t n = 0;
        int status = redis_socket_read(&l->socket, l->in, sizeof l->in, &n, err);
        if (status != QUIRE_OK || n == 0)
            return status;
        l->heard_ns = quire_now_ns();
        status = redis_replies_feed(l->replies, l->in, n, err);
        if (status == QUIRE_OK)
            status = take_replies(l, err);
        if (status != QUIRE_OK || l->is_refused)
            return status;
    }
    event_active(&l->on_readable, EV_READ, 0); /* more may lie in TLS, where the loop does not see it */
    return QUIRE_OK;
}

/* As far as it gets. */
static void pump(struct redis_link *l)
{
    struct quire_error err;
    int status = QUIRE_OK;
    if (l->state == CONNECTING) {
        status = redis_socket_advance(&l->socket, &err);
        if (status == QUIRE_OK && l->socket.is_ready && !greet(l))
            status = quire_fail(&err, QUIRE_NO_MEMORY, "out of memory");
    }
    bool waits_for_read = false;
    if (status == QUIRE_OK && l->state >= GREETING) {
        status = write_out(l, &err);
        waits_for_read = l->out_begin < l->out_end && !l->socket.wants_write;
        if (status == QUIRE_OK)
            status = read_in(l, &err);
    }
    if (status != QUIRE_OK)
        set_trouble(l, l->state == READY ? "it was there" : "connecting", err.text);
    if (status != QUIRE_OK || l->is_refused)
        over(l);
    else if (l->socket.wants_write || (any_unsent(l) && !waits_for_read))
        event_add(&l->on_writable, NULL);
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    struct redis_link *l = context;
    const uint64_t now = quire_now_ns();
    (void)fd, (void)what;
    if (l->state == RESTING) {
        begin(l);
        return;
    }
    if (l->state != READY) {
        set_trouble(l, "connecting", "it does not answer");
        over(l);
        return;
    }
    const struct command *first = TAILQ_FIRST(&l->sent);
    const uint64_t since = first && first->sent_ns > l->heard_ns ? first->sent_ns : l->heard_ns;
    if (first && (now - since > SILENT_MS * MS || now - first->sent_ns > SLOW_MS * MS)) {
        set_trouble(l, "it was there", "it does not answer");
        over(l);
        return;
    }
    set_timer(l, TICK_MS);
}

/* ---- opening and closing -------------------------------------------------------------------- */

int redis_link_open(struct event_base *base, const struct redis_url *url, struct redis_link_events events,
                    struct redis_link **out, struct quire_error *err)
{
    struct redis_link *l = calloc(1, sizeof *l);
    *out = NULL;
    if (!l)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    l->base = base;
    l->url = *url;
    l->events = events;
    l->socket.fd = -1;
    l->pause_ms = MIN_PAUSE_MS;
    TAILQ_INIT(&l->queues[REDIS_URGENT]);
    TAILQ_INIT(&l->queues[REDIS_LATER]);
    TAILQ_INIT(&l->sent);
    evtimer_assign(&l->timer, base, on_timer, l);
    int status = url->tls ? redis_tls_open(&l->tls, err) : QUIRE_OK;
    if (status != QUIRE_OK) {
        redis_link_close(l);
        return status;
    }
    set_timer(l, 0); /* no callback runs before the caller holds the link */
    *out = l;
    return QUIRE_OK;
}

void redis_link_close(struct redis_link *l)
{
    redis_resolve_stop(l->resolving);
    hang_up(l);
    forget_addresses(l);
    event_del(&l->timer);
    SSL_CTX_free(l->tls);
    free(l);
}

void redis_link_drain(struct redis_link *l, uint64_t until_ns)
{
    for (;;) {
        const uint64_t now = quire_now_ns();
        if (l->state == READY)
            pump(l);
        if (l->state != READY || !(any_unsent(l) || !TAILQ_EMPTY(&l->sent)) || now >= until_ns)
            return;
        struct pollfd p = {.fd = l->socket.fd, .events = (short)(POLLIN | (any_unsent(l) ? POLLOUT : 0))};
        poll(&p, 1, (int)((until_ns - now) / MS) + 1);
    }
}
