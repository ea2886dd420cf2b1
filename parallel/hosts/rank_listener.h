/* A rank's listener: a listening socket, and connections that have not yet proven membership. All input is bounded: 16
 * connections at once, the oldest of which is dropped first, each with a few hundred bytes and 3 s. One thread. */
#ifndef QUIRE_PARALLEL_HOSTS_RANK_LISTENER_H
#define QUIRE_PARALLEL_HOSTS_RANK_LISTENER_H

#include "parallel/hosts/join_frame.h"

#define RANK_LISTENER_SLOTS 16u
#define RANK_LISTENER_MS 3000u

/* This process, as others see it. */
struct rank_listener_own {
    uint32_t rank, size;
    enum join_carrier carrier;
    const struct key256 *key; /* the caller's */
    bool has_secret; /* false: there is no key, and only loopback addresses are allowed */
    char host[JOIN_HOST_BYTES];
};

struct rank_listener_caller {
    int fd; /* -1: a free slot */
    struct sockaddr_storage address;
    uint64_t until_ms;
    bool has_hello;
    size_t n_in;
    unsigned char hello[JOIN_HELLO_BYTES], challenge[JOIN_CHALLENGE_BYTES], proof[JOIN_PROOF_BYTES];
};

struct rank_listener {
    const struct rank_listener_own *own;
    int fd;
    struct rank_listener_caller callers[RANK_LISTENER_SLOTS];
    struct quire_error refused; /* the last rejected caller, and why; empty: none */
};

struct rank_listener_arrival {
    int fd; /* the receiver's */
    struct join_hello hello;
    struct sockaddr_storage address;
};

/* Listens at an address; port 0 selects a free one. own: the caller's until rank_listener_close(). */
int rank_listener_open(struct rank_listener *d, const struct rank_listener_own *own, const struct sockaddr *address,
                       socklen_t n_address, struct quire_error *err);
void rank_listener_close(struct rank_listener *d);
uint16_t rank_listener_port(const struct rank_listener *d);

/* Waits at most ms. Returns true if a caller has proven membership and waits for the answer. */
bool rank_listener_wait(struct rank_listener *d, int ms, struct rank_listener_arrival *out);
/* Answers with QUIRE_OK, or with an error, which closes the connection. Returns false if the caller has gone; the
 * connection is then closed. */
bool rank_listener_answer(struct rank_listener *d, const struct rank_listener_arrival *arrival, int status,
                          const char *why);
/* Closes without an answer: the caller may retry. */
void rank_listener_hang_up(struct rank_listener *d, const struct rank_listener_arrival *arrival);

/* For the time after the meeting: moves everything out of *from, which is then as after rank_listener_close(), with copies of
 * its `own` and key. NULL: out of memory. */
struct rank_listener *rank_listener_keep(struct rank_listener *from);
void rank_listener_give_up(struct rank_listener *kept); /* closes and frees it; NULL is allowed */

bool rank_listener_is_loopback(const struct sockaddr_storage *address);

#endif
