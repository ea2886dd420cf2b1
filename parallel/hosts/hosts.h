/* A group of ranks on several hosts that were started by a launcher. They find each other at rank 0's address, prove
 * that they have the group's secret, and are then connected pairwise. The result is a collective like any other.
 *
 * The secret is QUIRE_GROUP_SECRET in the environment; without it, only loopback addresses are allowed. mpirun's ranks
 * need none: MPI distributes one that rank 0 creates. Connections are not encrypted, and data on them is not
 * authenticated after the handshake: the network between the hosts is trusted not to change data.
 *
 * One thread joins; hosts_message_bytes() is pure.
 */
#ifndef QUIRE_PARALLEL_HOSTS_H
#define QUIRE_PARALLEL_HOSTS_H

#include "parallel/collective.h"
#include "parallel/hosts/rank_position.h"

#define HOSTS_JOIN_MS (10u * 60 * 1000)

struct hosts_options {
    const struct position *position; /* with a launcher */
    enum rank_transport transport; /* auto: MPI for mpirun's ranks if its module is available, otherwise TCP */
    uint32_t timeout_ms; /* as in collective_join_shared() */
    void (*over)(void); /* NULL, or called once, by any thread, when the group ends early: this rank may hang itself */
    uint32_t join_ms; /* time limit for the ranks to find each other; 0: HOSTS_JOIN_MS */
};

/* Maximum memory for messages at each rank: early messages, those held by a call, and with MPI outgoing ones. */
size_t hosts_message_bytes(const struct position *position, enum rank_transport transport);

/* Waits until all ranks have come. Logs the missing ranks and, at the end, the transport. QUIRE_INVALID: options or
 * secrets that do not match; QUIRE_UNAVAILABLE: a rank did not come. */
int hosts_join(const struct hosts_options *options, struct collective **out, struct quire_error *err);

#endif
