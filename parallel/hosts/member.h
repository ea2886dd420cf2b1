/* One rank in a group across hosts, or in a part of one: it tells its peers what it is about, waits for what they send, compares
 * it with what it is about itself, and notices who is late. One thread, but for _check() and _end(). */
#ifndef QUIRE_PARALLEL_HOSTS_MEMBER_H
#define QUIRE_PARALLEL_HOSTS_MEMBER_H

#include "parallel/hosts/carrier.h"
#include "parallel/hosts/peers.h"

/* Calls that are remembered: a root learns by the calls after it that another rank was about something else. */
#define MEMBER_CALLS 64u

/* What the group and its parts have in common. */
struct member_ways {
    struct peers *peers;
    const struct carrier *carrier;
    void *carrier_state;
    struct inbox inbox;
    uint32_t n_cpus;
    uint64_t *waited_ns; /* [COLLECTIVE_MAX_RANKS]; the caller's */
    uint32_t parts; /* bits: those that are open */
};

struct member {
    struct member_ways *ways;
    uint32_t group; /* 0, or 1 + the part */
    uint32_t rank, n_ranks;
    uint32_t names[COLLECTIVE_MAX_RANKS]; /* what the ranks of a part are in the group */
    uint32_t n_calls;
    struct message_call calls[MEMBER_CALLS]; /* by number */
    uint32_t timeout_ms;
    bool is_lenient; /* who computes is not late */
};

/* The next call. */
int member_begin(struct member *m, enum message_operation operation, uint32_t root, size_t n_bytes,
                 struct quire_error *err);
/* n bytes of what the call is about, to rank `to` of this group. Waits until they may be written again. */
int member_send(struct member *m, uint32_t to, const void *bytes, size_t n, struct quire_error *err);
/* The next message of rank `from`, which is about this call and has n bytes; the caller gives it back to the inbox.
 * patient: without a time-out. */
int member_receive(struct member *m, uint32_t from, size_t n, bool patient, struct inbox_message **out,
                   struct quire_error *err);
void member_give_back(struct member *m, struct inbox_message *message);

int member_check(const struct member *m, struct quire_error *err);
void member_end(struct member *m, const char *why);

#endif
