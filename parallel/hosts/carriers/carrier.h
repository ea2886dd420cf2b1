/* Moves messages between the ranks of a group: a small table, implemented by TCP and MPI. Only sleep() waits. One
 * thread. */
#ifndef QUIRE_PARALLEL_HOSTS_CARRIER_H
#define QUIRE_PARALLEL_HOSTS_CARRIER_H

#include "parallel/hosts/inbox.h"

#define CARRIER_EVERYBODY UINT32_MAX

struct carrier {
    /* Starts to send, with a head, or continues with head NULL. *done: payload may be reused. A peer that cannot be
     * reached is marked as closed in the inbox, which also counts as done. */
    int (*send)(void *state, uint32_t peer, const struct message_head *head, const void *payload, bool *done,
                struct quire_error *err);
    /* Puts received messages of one peer, or of all, into the inbox while it has free slots. QUIRE_INVALID: an invalid
     * message arrived. */
    int (*receive)(void *state, uint32_t peer, struct quire_error *err);
    /* Sleeps at most ms, until data arrives, wake_fd is readable, or `to` can send more (CARRIER_EVERYBODY: no pending
     * send). */
    void (*sleep)(void *state, uint32_t to, int wake_fd, uint32_t ms);
    /* is_well: the group ends normally. Frees state. */
    void (*close)(void *state, bool is_well);
};

#endif
