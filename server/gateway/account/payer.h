/* A payer: a key, its tenant, or the tenant's organisation. Each may have a budget for a day of UTC. Pure: the caller
 * provides the time. Loop's thread.
 */
#ifndef QUIRE_GATEWAY_PAYER_H
#define QUIRE_GATEWAY_PAYER_H

#include "server/front/api/api_error.h"

#include <stdbool.h>
#include <stdint.h>

#define PAYER_MAX_NAME 128
#define PAYER_DAY_S 86400

enum payer_kind { PAYER_KEY, PAYER_TENANT, PAYER_ORGANISATION, PAYER_KINDS };

struct payer {
    enum payer_kind kind;
    char name[PAYER_MAX_NAME + 1]; /* constant; a key's name is its id */
    struct payer *above;           /* NULL: an organisation */
    bool has_budget;
    uint64_t budget; /* picodollars a day */
    int64_t day;     /* days since 1970: that of spent */
    uint64_t spent;
    bool is_warned, is_refused; /* on this day, in the log */
};

/* "key", "tenant" or "organisation". */
const char *payer_kind_name(enum payer_kind kind);

/* Returns the sum of the charges on the day of now_s. */
uint64_t payer_spent(struct payer *p, int64_t now_s);
void payer_charge(struct payer *p, uint64_t cost, int64_t now_s);
/* Whether its budget is not used up. False: a 429 in e with the time of renewal. */
bool payer_admit(struct payer *p, int64_t now_s, struct api_error *e);
/* Whether 80 % of its budget are used. Writes a sentence that says how much. */
bool payer_warns(struct payer *p, int64_t now_s, char *out, size_t n);

#endif
