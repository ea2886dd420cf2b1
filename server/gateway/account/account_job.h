/* A request that waits for the ledger's file. Loop's thread, but for job.work. */
#ifndef QUIRE_GATEWAY_ACCOUNT_JOB_H
#define QUIRE_GATEWAY_ACCOUNT_JOB_H

#include "base/buffer.h"
#include "server/gateway/account/ledger_internal.h"
#include "server/http/http.h"

#include <time.h>

#define ACCOUNT_KEY_BYTES 64 /* a key's text: "sk-quire-" and 48 hexadecimal digits */

struct account_job {
    struct ledger_job job; /* first member */
    struct ledger *ledger;
    struct http_exchange *x; /* NULL: its client has gone */
    struct ledger_key_row row;
    char text[ACCOUNT_KEY_BYTES];
    enum payer_kind kind; /* of a budget */
    char name[PAYER_MAX_NAME + 1];
    bool sets_budget, has_budget;
    uint64_t budget;
    /* Of usage. */
    struct ledger_question question;
    bool is_csv;
    struct buffer reply;
};

/* NULL: no memory; the exchange has been answered. */
struct account_job *account_job_new(struct ledger *l, struct http_exchange *x);
/* Runs it on the thread; `done` ends with account_job_free(). */
void account_job_run(struct account_job *j, int (*work)(struct ledger_db *db, struct ledger_job *job),
                     void (*done)(struct ledger_job *job, int code));
void account_job_free(struct account_job *j);
/* Whether it was done. Otherwise the client receives a 503. */
bool account_job_succeeded(struct account_job *j, int code);

static inline int64_t account_now_s(void)
{
    return (int64_t)time(NULL);
}

/* ---- the routes of each file ---- */

void account_list_keys(struct ledger *l, struct http_exchange *x);
void account_issue_key(struct ledger *l, struct http_exchange *x);
void account_rotate_key(struct ledger *l, struct http_exchange *x, struct ledger_key *key);
void account_revoke_key(struct ledger *l, struct http_exchange *x, struct ledger_key *key);
void account_list_budgets(struct ledger *l, struct http_exchange *x);
void account_set_budget(struct ledger *l, struct http_exchange *x, const char *kind, const char *name);
/* own: the caller's account; NULL: an admin sees all. */
void account_usage(struct ledger *l, struct http_exchange *x, const struct ledger_account *own);

#endif
