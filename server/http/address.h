/* Where a connection comes from, and networks to compare it with. Pure; any thread. */
#ifndef QUIRE_HTTP_ADDRESS_H
#define QUIRE_HTTP_ADDRESS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* IPv4 addresses are in it as ::ffff:a.b.c.d. */
struct http_address {
    uint8_t bytes[16];
};
struct http_network {
    struct http_address base;
    unsigned n_bits; /* of 128 */
};

/* All zero for what is neither IPv4 nor IPv6. */
struct http_address http_address_of(const struct sockaddr *from);
/* "127.0.0.1", "::1"; "" for what is all zero. */
#define HTTP_ADDRESS_BYTES 46
void http_address_text(const struct http_address *address, char out[HTTP_ADDRESS_BYTES]);
/* "127.0.0.1", "::1". False: it is no address. */
bool http_address_parse(const char *text, struct http_address *out);
bool http_address_is_loopback(const struct http_address *address);
/* The range of addresses that belongs to one client: an IPv4 address, or the first 64 bits of an IPv6 address. */
struct http_address http_address_client(const struct http_address *address);

/* "10.0.0.0/8,::1": networks and addresses with commas between. Adds to out[*n], which has room for n_slots.
 * QUIRE_INVALID names the one that is wrong. */
int http_networks_parse(const char *list, struct http_network *out, size_t n_slots, size_t *n, struct quire_error *err);
bool http_network_has(const struct http_network *network, const struct http_address *address);

#endif
