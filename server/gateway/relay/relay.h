/* One client request through the gateway: from its body to the end of its reply, over as many attempts as its first token
 * takes. Loop's thread. relay.c follows an attempt; the other files of this folder each do one step:
 *
 *     body      reads model, stream, prompt and limits from the body; writes the body for a target
 *     attempt   one call to one target
 *     events    follows the target's reply: the first token, usage, errors, the end
 *     dialect   translates Anthropic's routes for targets that speak OpenAI's only (messages/)
 *
 * A target that failed before anything was sent to the client is followed by another one, within the retry budget. After
 * the first token the reply ends with an error event, or is cut where it is no stream.
 */
#ifndef QUIRE_GATEWAY_RELAY_H
#define QUIRE_GATEWAY_RELAY_H

struct gateway;
struct http_exchange;
struct ledger_account;

/* Takes over the exchange, whose path is one of relay_has_path(). account: who pays. */
void relay_begin(struct gateway *g, struct http_exchange *x, struct ledger_account *account);

#endif
