#include "parallel/hosts/carriers/tcp_carrier.h"

#include "base/clock.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define FAREWELL_MS 200 /* for the last data to reach the peers */

struct line {
    int fd; /* -1: not connected, or closed */
    unsigned char in[MESSAGE_HEAD_BYTES]; /* the incoming message, and how much of it has arrived */
    size_t n_in;
    struct inbox_message *coming; /* set after its head has arrived */
    unsigned char out[MESSAGE_HEAD_BYTES];
    const unsigned char *payload; /* of the outgoing message */
    size_t n_payload, n_out; /* bytes sent of the payload, including the head */
    bool is_sending;
};

struct tcp {
    struct line lines[COLLECTIVE_MAX_RANKS];
    uint32_t size;
    struct inbox *inbox;
};

int tcp_carrier_open(uint32_t size, const struct peer_link *links, struct inbox *inbox, void **state,
                     struct quire_error *err)
{
    struct tcp *t = calloc(1, sizeof *t);
    for (uint32_t r = 0; r < size; r++)
        if (t)
            t->lines[r].fd = links[r].data;
        else if (links[r].data >= 0)
            close(links[r].data);
    if (!t)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    t->size = size;
    t->inbox = inbox;
    *state = t;
    return QUIRE_OK;
}

/* Closes the connection: nothing is sent or received any more. */
static void end_line(struct tcp *t, uint32_t peer)
{
    struct line *l = &t->lines[peer];
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
    l->is_sending = false;
    t->inbox->peers[peer].is_closed = true;
}

/* ---- sending ---- */

static int send_message(void *state, uint32_t peer, const struct message_head *head, const void *payload, bool *done,
                        struct quire_error *err)
{
    struct tcp *t = state;
    struct line *l = &t->lines[peer];
    (void)err;
    if (head) {
        message_write(head, l->out);
        l->payload = payload;
        l->n_payload = head->n_payload;
        l->n_out = 0;
        l->is_sending = l->fd >= 0;
    }
    while (l->is_sending) {
        const size_t n_head = l->n_out < MESSAGE_HEAD_BYTES ? MESSAGE_HEAD_BYTES - l->n_out : 0;
        const size_t at = n_head ? 0 : l->n_out - MESSAGE_HEAD_BYTES;
        struct iovec parts[2] = {{l->out + MESSAGE_HEAD_BYTES - n_head, n_head}, {NULL, 0}};
        if (l->n_payload > at)
            parts[1] = (struct iovec){(void *)(uintptr_t)(l->payload + at), l->n_payload - at};
        const struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        ssize_t sent = sendmsg(l->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno == EAGAIN)
            break;
        if (sent < 0) /* earlier data may still be read */
            l->is_sending = false;
        else if ((l->n_out += (size_t)sent) == MESSAGE_HEAD_BYTES + l->n_payload)
            l->is_sending = false;
    }
    *done = !l->is_sending;
    return QUIRE_OK;
}

/* ---- receiving ---- */

/* Reads the next bytes of a message. Returns false if no bytes have arrived, or the connection has ended. */
static bool read_some(struct tcp *t, uint32_t peer, unsigned char *to, size_t n, size_t *n_read)
{
    struct line *l = &t->lines[peer];
    ssize_t got = recv(l->fd, to, n, MSG_DONTWAIT);
    if (got > 0) {
        *n_read += (size_t)got;
        return true;
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR))
        end_line(t, peer);
    return false;
}

static int begin_message(struct tcp *t, struct line *l, struct quire_error *err)
{
    struct message_head head;
    int status = message_read(l->in, &head, err);
    if (status != QUIRE_OK)
        return status;
    l->coming = inbox_new(t->inbox);
    if (!l->coming)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    l->coming->head = head;
    return QUIRE_OK;
}

static int receive_from(struct tcp *t, uint32_t peer, struct quire_error *err)
{
    struct line *l = &t->lines[peer];
    while (l->fd >= 0 && inbox_has_place(t->inbox, peer)) {
        if (l->n_in < MESSAGE_HEAD_BYTES &&
            !read_some(t, peer, l->in + l->n_in, MESSAGE_HEAD_BYTES - l->n_in, &l->n_in))
            break;
        if (l->n_in < MESSAGE_HEAD_BYTES)
            continue;
        if (!l->coming) {
            int status = begin_message(t, l, err);
            if (status != QUIRE_OK)
                return status;
        }
        const size_t n = l->n_in - MESSAGE_HEAD_BYTES, n_left = l->coming->head.n_payload - n;
        if (n_left > 0 && !read_some(t, peer, l->coming->payload + n, n_left, &l->n_in))
            break;
        if (l->n_in < MESSAGE_HEAD_BYTES + l->coming->head.n_payload)
            continue;
        inbox_put(t->inbox, peer, l->coming);
        l->coming = NULL;
        l->n_in = 0;
    }
    return QUIRE_OK;
}

static int receive(void *state, uint32_t peer, struct quire_error *err)
{
    struct tcp *t = state;
    int status = QUIRE_OK;
    if (peer != CARRIER_EVERYBODY)
        return receive_from(t, peer, err);
    for (uint32_t r = 0; r < t->size && status == QUIRE_OK; r++)
        status = receive_from(t, r, err);
    return status;
}

static void wait_for_something(void *state, uint32_t to, int wake_fd, uint32_t ms)
{
    struct tcp *t = state;
    struct pollfd fds[COLLECTIVE_MAX_RANKS + 1];
    for (uint32_t r = 0; r < t->size; r++)
        fds[r] = (struct pollfd){.fd = t->lines[r].fd,
                                 .events = (short)((inbox_has_place(t->inbox, r) ? POLLIN : 0) |
                                                   (r == to && t->lines[r].is_sending ? POLLOUT : 0))};
    for (uint32_t r = 0; r < t->size; r++)
        if (!fds[r].events) /* poll() would report its end again and again */
            fds[r].fd = -1;
    fds[t->size] = (struct pollfd){.fd = wake_fd, .events = POLLIN};
    poll(fds, t->size + 1, (int)ms);
}

static void close_all(void *state, bool is_well)
{
    struct tcp *t = state;
    const uint64_t until_ms = quire_now_ms() + (is_well ? FAREWELL_MS : 0);
    for (uint32_t r = 0; r < t->size; r++) {
        int n_left = 0;
        struct line *l = &t->lines[r];
        while (l->fd >= 0 && ioctl(l->fd, SIOCOUTQ, &n_left) == 0 && n_left > 0 && quire_now_ms() < until_ms)
            poll(NULL, 0, 1);
        if (l->coming)
            inbox_give_back(t->inbox, l->coming);
        if (l->fd >= 0)
            close(l->fd);
    }
    free(t);
}

const struct carrier tcp_carrier = {
    .send = send_message,
    .receive = receive,
    .sleep = wait_for_something,
    .close = close_all,
};
