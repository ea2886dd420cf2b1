/* A rank's listener: a listening socket, and connections that have not yet proven membership. All input is bounded: 16
 * connections at once, the oldest of which is dropped first, each with a few hundred bytes and 3 s. One thread. */
#ifndef QUIRE_PARALLEL_HOSTS_DOOR_H
#define QUIRE_PARALLEL_HOSTS_DOOR_H

#include "parallel/hosts/join_frame.h"

#define DOOR_PLACES 16u
#define DOOR_MS 3000u

/* This process, as others see it. */
struct door_own {
    uint32_t rank, size;
    enum join_carrier carrier;
    const struct key256 *key; /* the caller's */
    bool has_secret; /* false: there is no key, and only loopback addresses are allowed */
    char host[JOIN_HOST_BYTES];
};

struct door_caller {
    int fd; /* -1: a free slot */
    struct sockaddr_storage address;
    uint64_t until_ms;
    bool has_hello;
    size_t n_in;
    unsigned char hello[JOIN_HELLO_BYTES], challenge[JOIN_CHALLENGE_BYTES], proof[JOIN_PROOF_BYTES];
};

struct door {
    const struct door_own *own;
    int fd;
    struct door_caller callers[DOOR_PLACES];
    struct quire_error refused; /* the last rejected caller, and why; empty: none */
};

struct door_arrival {
    int fd; /* the receiver's */
    struct join_hello hello;
    struct sockaddr_storage address;
};

/* Listens at an address; port 0 selects a free one. own: the caller's until door_close(). */
int door_open(struct door *d, const struct door_own *own, const struct sockaddr *address, socklen_t n_address,
              struct quire_error *err);
void door_close(struct door *d);
uint16_t door_port(const struct door *d);

/* Waits at most ms. Returns true if a caller has proven membership and waits for the answer. */
bool door_wait(struct door *d, int ms, struct door_arrival *out);
/* Answers with QUIRE_OK, or with an error, which closes the connection. Returns false if the caller has gone; the
 * connection is then closed. */
bool door_answer(struct door *d, const struct door_arrival *arrival, int status, const char *why);
/* Closes without an answer: the caller may retry. */
void door_hang_up(struct door *d, const struct door_arrival *arrival);

/* For the time after the meeting: moves everything out of *from, which is then as after door_close(), with copies of
 * its `own` and key. NULL: out of memory. */
struct door *door_keep(struct door *from);
void door_give_up(struct door *kept); /* closes and frees it; NULL is allowed */

bool door_is_loopback(const struct sockaddr_storage *address);

#endif
