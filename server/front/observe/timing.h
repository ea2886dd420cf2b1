/* "quire_trace": where a request's time went, for whoever asked. Loop's thread. */
#ifndef QUIRE_FRONT_TIMING_H
#define QUIRE_FRONT_TIMING_H

#include "server/front/output/json_out.h"
#include "server/front/tenant/tenants.h"
#include "server/link/completion_source.h"
#include "server/wire/wire.h"

#include <stdbool.h>
#include <stdint.h>

/* The names of the last requests that the engine took, by its id for them: who a blocker was. */
#define BLOCKER_NAMES 1024
struct blocker_names {
    uint64_t ids[BLOCKER_NAMES];
    char names[BLOCKER_NAMES][65];
    uint32_t next;
};
void blocker_name_add(struct blocker_names *names, uint64_t id, const char *name);

/* All of an account's time in the queue. */
uint64_t timing_queue_us(const struct wire_account *account);

struct timing {
    struct wire_account account;
    uint64_t turn_us; /* in the front end, until it was the prompt's turn */
    bool accounted; /* the engine has said where the time went */
    uint64_t n_cached;
    bool differs; /* the first prompt, from those before it; at this token */
    uint32_t differs_at;
    struct completion_lookups lookups; /* of the first prompt */
    uint64_t arrived_us, submitted_us, first_token_us, now_us; /* first_token_us 0: none came */
};
/* When the last lookup was over, and the engine was asked; submitted_us without any. */
uint64_t timing_looked_us(const struct timing *t);
/* Several prompts in one request: the times of the one that waited longest, the counts of all. */
void timing_add(struct timing *t, const struct wire_account *account, uint64_t turn_us, uint32_t n_cached);

/* The object. tenant: who asked; admin: may be told who others are. */
void timing_json(struct buffer *o, const struct timing *t, const struct tenant *tenant, bool admin,
                 const struct tenants *tenants, const struct blocker_names *names);

#endif
