/* One client request through the gateway: from its body to the end of its reply, over as many attempts as its first token
 * takes. Loop's thread. relay.c follows the attempts; the other files of this folder each do one step:
 *
 *     body        reads model, stream, prompt and limits from the body; writes the body for a target
 *     candidates  the models that may answer, in order
 *     attempt     one call to one target
 *     events      splits and reads the target's stream
 *     verdict     what a reply means: another target, or an error for the client
 *     client      the reply to the client, in pieces or whole, and errors in the form of its API
 *     bill        limits, cost, metrics and the log's line of a request that has ended
 *
 * A target that failed before anything was sent to the client is followed by another one, within the retry budget. After
 * the first token the reply ends with an error event, or is cut where it is no stream.
 */
#ifndef QUIRE_GATEWAY_RELAY_H
#define QUIRE_GATEWAY_RELAY_H

#include <stdbool.h>
#include <stdint.h>

struct gateway;
struct http_exchange;
struct ledger_account;
struct tenant;

/* Whether POST requests to the path are relayed. */
bool relay_has_path(const char *path);
/* Takes over the exchange, whose path is one of relay_has_path(). account: who pays. tenant: whose limits apply. */
void relay_begin(struct gateway *g, struct http_exchange *x, struct ledger_account *account, struct tenant *tenant);
/* Pings silent streams and resumes paused ones. Returns milliseconds until it must be called again; 0: never. */
uint32_t relay_tick(struct gateway *g);
/* Ends every relay with an error. */
void relay_end_all(struct gateway *g, const char *why);
/* Frees the attempts that have ended. From the loop, outside all events. */
void relay_bury(struct gateway *g);

#endif
