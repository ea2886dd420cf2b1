/* Where a rank is called by others: a socket that listens, and connections that have not proven themselves yet. Whatever comes
 * there is bounded: 16 connections at once, the oldest of which gives way, each with a few hundred bytes and 3 s. One thread. */
#ifndef QUIRE_PARALLEL_HOSTS_DOOR_H
#define QUIRE_PARALLEL_HOSTS_DOOR_H

#include "parallel/hosts/join_frame.h"

#define DOOR_PLACES 16u
#define DOOR_MS 3000u

/* Who this process is, to others. */
struct door_own {
    uint32_t rank, size;
    enum join_carrier carrier;
    const struct key256 *key; /* the caller's */
    bool has_secret; /* false: the key is none, and only loopback addresses are spoken to */
    char host[JOIN_HOST_BYTES];
};

struct door_caller {
    int fd; /* -1: a free place */
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
    struct quire_error refused; /* the last one, and why; empty: nobody was */
};

struct door_arrival {
    int fd; /* the receiver's */
    struct join_hello hello;
    struct sockaddr_storage address;
};

/* Listens at an address; its port 0: a free one. own: the caller's until door_close(). */
int door_open(struct door *d, const struct door_own *own, const struct sockaddr *address, socklen_t n_address,
              struct quire_error *err);
void door_close(struct door *d);
uint16_t door_port(const struct door *d);

/* Waits at most ms. True: somebody has proven that it is a rank of this group, and is yet to be answered. */
bool door_wait(struct door *d, int ms, struct door_arrival *out);
/* Answers: QUIRE_OK, or why not (the connection is then closed). False: it has gone meanwhile, and is closed. */
bool door_answer(struct door *d, const struct door_arrival *arrival, int status, const char *why);
/* Without an answer: it may try again. */
void door_hang_up(struct door *d, const struct door_arrival *arrival);

/* For after the meeting: takes all of *from, which is then as after door_close(), and copies of its `own` and key. NULL: no memory. */
struct door *door_keep(struct door *from);
void door_give_up(struct door *kept); /* closes and frees it; NULL is fine */

bool door_is_loopback(const struct sockaddr_storage *address);

#endif
