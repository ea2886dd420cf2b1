/* "quire_trace": the time that a request spent in each phase, in its reply. Loop's thread. */
#ifndef QUIRE_FRONT_TIMING_H
#define QUIRE_FRONT_TIMING_H

#include "server/front/output/json_out.h"
#include "server/front/tenant/tenants.h"
#include "server/link/completion_source.h"
#include "server/wire/records.h"

#include <stdbool.h>
#include <stdint.h>

/* The names of the last requests that the engine accepted, by its id for them: used to name a blocker. */
#define BLOCKER_NAMES 1024
struct blocker_names {
    uint64_t ids[BLOCKER_NAMES];
    char names[BLOCKER_NAMES][65];
    uint32_t next;
};
void blocker_name_add(struct blocker_names *names, uint64_t id, const char *name);

/* The total time of an account in the queue. */
uint64_t timing_queue_us(const struct wire_account *account);

struct timing {
    struct wire_account account;
    uint64_t turn_us; /* in the front end, until the prompt's turn */
    bool accounted; /* the engine has sent the account */
    uint64_t n_cached;
    bool differs; /* the first prompt differs from earlier ones, at this token */
    uint32_t differs_at;
    struct completion_lookups lookups; /* of the first prompt */
    uint64_t arrived_us, submitted_us, first_token_us, now_us; /* first_token_us 0: no token came */
};
/* Returns when the last lookup ended and the engine got the request; submitted_us without lookups. */
uint64_t timing_looked_us(const struct timing *t);
/* For several prompts in one request: the times of the prompt that waited longest, the counts of all. */
void timing_add(struct timing *t, const struct wire_account *account, uint64_t turn_us, uint32_t n_cached);

/* Writes the object. tenant: the client's; admin: the client may see other tenants' names. */
void timing_json(struct buffer *o, const struct timing *t, const struct tenant *tenant, bool admin,
                 const struct tenants *tenants, const struct blocker_names *names);

#endif
