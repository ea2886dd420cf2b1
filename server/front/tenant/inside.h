/* Requests of this process to its own front door: the lines of batches. The name of their tenant is in a header that
 * counts on connections of this process only, so that no client can send it. Any code that passes a client's request on
 * over such a connection must not copy this header. Loop's thread.
 */
#ifndef QUIRE_FRONT_TENANT_INSIDE_H
#define QUIRE_FRONT_TENANT_INSIDE_H

#define INSIDE_TENANT_HEADER "x-quire-tenant"
#define INSIDE_ACCOUNT_HEADER "x-quire-account"

struct http_exchange;

/* The tenant for which a line of a batch runs; NULL: a client's request. Such a request runs in the background, and the
 * limits of its tenant's live requests do not apply to it. */
const char *inside_tenant(const struct http_exchange *x);
/* The id of the gateway's key that pays for it; NULL: its tenant alone. */
const char *inside_account(const struct http_exchange *x);

#endif
