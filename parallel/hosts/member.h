/* One rank in a group across hosts, or in a part of one: sends its calls to its peers, waits for their messages,
 * compares them with its own calls, and detects late ranks. One thread, except for member_check() and member_end(). */
#ifndef QUIRE_PARALLEL_HOSTS_MEMBER_H
#define QUIRE_PARALLEL_HOSTS_MEMBER_H

#include "parallel/hosts/carriers/carrier.h"
#include "parallel/hosts/peers.h"

/* Number of remembered calls: a root detects a different call of another rank from the calls after it. */
#define MEMBER_CALLS 64u

/* Shared by the group and its parts. */
struct member_ways {
    struct peers *peers;
    const struct carrier *carrier;
    void *carrier_state;
    struct inbox inbox;
    uint32_t n_cpus;
    uint64_t *waited_ns; /* [COLLECTIVE_MAX_RANKS]; the caller's */
    uint32_t parts; /* bits of the open parts */
};

struct member {
    struct member_ways *ways;
    uint32_t group; /* 0, or 1 + the part */
    uint32_t rank, n_ranks;
    uint32_t names[COLLECTIVE_MAX_RANKS]; /* numbers of a part's ranks in the whole group */
    uint32_t n_calls;
    struct message_call calls[MEMBER_CALLS]; /* by number */
    uint32_t timeout_ms;
    bool is_patient; /* a computing rank is not late */
};

/* Starts the next call. */
int member_begin(struct member *m, enum message_operation operation, uint32_t root, size_t n_bytes,
                 struct quire_error *err);
/* Sends n bytes of the call to rank `to` of this group. Waits until the bytes may be overwritten. */
int member_send(struct member *m, uint32_t to, const void *bytes, size_t n, struct quire_error *err);
/* Receives the next message of rank `from`, which must belong to this call and have n bytes. The caller returns it to
 * the inbox. patient: without a time-out. */
int member_receive(struct member *m, uint32_t from, size_t n, bool patient, struct inbox_message **out,
                   struct quire_error *err);
void member_give_back(struct member *m, struct inbox_message *message);

int member_check(const struct member *m, struct quire_error *err);
void member_end(struct member *m, const char *why);

#endif
