/* What moves messages between the ranks of a group: a small table, of TCP or of MPI. Nothing here waits but sleep(). One thread. */
#ifndef QUIRE_PARALLEL_HOSTS_CARRIER_H
#define QUIRE_PARALLEL_HOSTS_CARRIER_H

#include "parallel/hosts/inbox.h"

#define CARRIER_EVERYBODY UINT32_MAX

struct carrier {
    /* Begins to send, with a head; goes on with what it began, without one (NULL). *done: payload may be used again. A peer that
     * cannot be reached is marked as closed in the inbox, and then it is done, too. */
    int (*send)(void *state, uint32_t peer, const struct message_head *head, const void *payload, bool *done,
                struct quire_error *err);
    /* Puts into the inbox what has come from a peer, or from everybody, as it has places. QUIRE_INVALID: what came is no message. */
    int (*receive)(void *state, uint32_t peer, struct quire_error *err);
    /* At most ms, until something comes, wake_fd is readable, or `to` (of what was begun; or CARRIER_EVERYBODY: nobody) takes
     * more. */
    void (*sleep)(void *state, uint32_t to, int wake_fd, uint32_t ms);
    /* is_well: the group ends as it should. Frees state. */
    void (*close)(void *state, bool is_well);
};

#endif
