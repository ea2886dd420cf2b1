/* The state of a relay, for the files of this folder that do a step of it. */
#ifndef QUIRE_GATEWAY_RELAY_INTERNAL_H
#define QUIRE_GATEWAY_RELAY_INTERNAL_H

#include "server/front/tenant/tenants.h"
#include "server/gateway/experiment/trial.h"
#include "server/gateway/gateway_internal.h"
#include "server/gateway/relay/attempt.h"
#include "server/gateway/relay/body.h"

#define RELAY_MAX_CANDIDATES (2 * GATEWAY_MAX_FALLBACKS + 1)

/* The models that may answer, the first one first. */
struct candidates {
    uint32_t models[RELAY_MAX_CANDIDATES]; /* indices, with targets */
    uint32_t n, at;
    char why[96]; /* why the first one was chosen */
};

/* The request's part in an experiment. */
struct relay_part {
    const struct pool_model *experiment; /* of the relay's pool */
    uint32_t arm, bucket; /* route.h */
};

/* The attempt that runs: its place at the target. */
struct relay_try {
    struct attempt *attempt; /* NULL: none runs */
    struct pool_target *target;
    uint64_t tokens, begun_ms;
    bool is_trial;
};

/* What was sent to the client. */
struct relay_reply {
    bool has_begun; /* the headers of a stream */
    bool has_text;  /* more than comments: no other target may follow */
    bool is_paused; /* the client reads slowly */
    uint64_t first_us; /* when the first token came; 0: not yet */
    uint64_t wrote_ms;
    int status;
};

struct relay {
    struct gateway *g;
    struct http_exchange *x;
    struct pool *pool; /* held */
    struct ledger_account *account;
    struct tenant *tenant;
    bool is_limited; /* counted by the tenant's limits */
    bool is_over_budget;
    char path[64];
    char request_id[72];
    char client[HTTP_ADDRESS_BYTES]; /* for the log */
    struct relay_body *body; /* owned */
    struct candidates candidates;
    struct relay_part *part; /* owned; NULL: it belongs to no experiment */
    uint64_t tried; /* of the current candidate's targets */
    struct relay_try now;
    struct relay_reply reply;
    uint32_t n_attempts;
    struct api_error last; /* of the last attempt */
    char budget_warning[256];
    const struct gateway_target *shown; /* the target in x-quire-route */
    uint64_t begun_us;
    TAILQ_ENTRY(relay) link;
};

/* ---- unit.c ---- */
/* Who asks, for experiments by user: n bytes; *n is 0 if nobody is known. */
const char *unit_of(const struct relay *r, size_t *n);

/* ---- candidates.c ---- */
/* Fills r->candidates and r->part. Returns false with an error: of an unknown model, a 404 that lists the models. */
bool candidates_find(struct relay *r, struct api_error *e);
struct pool_model *candidates_model(const struct relay *r);
/* Whether the payer may use the current model: one whose budget is used up may use those without a price. */
bool candidates_may(const struct relay *r);
/* The next model that the payer may use, if there is one. why: "error", "overload", … */
bool candidates_next(struct relay *r, const char *why);

/* ---- client.c ---- */
void client_text(struct relay *r, const char *bytes, size_t n);
void client_ping(struct relay *r, uint64_t now_ms);
/* Ends the exchange: a stream that has ended; a whole reply, whose bytes it takes; an error. */
void client_end_stream(struct relay *r);
void client_whole(struct relay *r, int status, struct buffer *body);
void client_error(struct relay *r, const struct api_error *e);

/* ---- bill.c ---- */
/* Before an attempt: limits of the tenant. Returns false with a 429. */
bool bill_limits(struct relay *r, struct api_error *e);
/* The budgets; a model without a price may still be used. Returns false with a 429. */
bool bill_admit(struct relay *r, struct api_error *e);
/* At the end. a: the last attempt, or NULL. status 0: the client has gone. e: the error, or NULL. */
void bill_end(struct relay *r, const struct attempt *a, int status, const struct api_error *e);

#endif
