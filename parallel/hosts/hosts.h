/* A group of ranks on several hosts, each started by somebody else: they find each other at rank 0's address, prove that they have
 * the group's secret, and are then connected each with each. What they are connected by is a collective like any other.
 *
 * The secret is QUIRE_GROUP_SECRET of the environment; without one only loopback addresses are spoken to. mpirun's ranks need none:
 * MPI hands round one that rank 0 made up. Connections are neither encrypted nor, once they are proven, authenticated: the network
 * between the hosts is trusted not to change what it carries. */
#ifndef QUIRE_PARALLEL_HOSTS_H
#define QUIRE_PARALLEL_HOSTS_H

#include "parallel/collective.h"
#include "parallel/hosts/place.h"

#define HOSTS_JOIN_MS (10u * 60 * 1000)

struct hosts_options {
    const struct place *place; /* with a launcher */
    enum place_transport transport; /* auto: MPI for mpirun's ranks where its module is there, else TCP */
    uint32_t timeout_ms; /* as collective_join_shared() has it */
    void (*over)(
        void); /* NULL, or called once, by any thread, when the group ends before its time: this rank may hang itself */
    uint32_t join_ms; /* how long the ranks may take to find each other; 0: HOSTS_JOIN_MS */
};

/* What messages take at most at each of the place's ranks: those that came too early, those that a call holds, and with MPI those that
 * go. */
size_t hosts_message_bytes(const struct place *place, enum place_transport transport);

/* Waits until all ranks have come. Logs whom it waits for, and at last by what they are connected.
 * QUIRE_INVALID: options or secrets that do not fit; QUIRE_UNAVAILABLE: somebody did not come. */
int hosts_join(const struct hosts_options *options, struct collective **out, struct quire_error *err);

#endif
