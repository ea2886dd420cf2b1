/* "unix:PATH" and "tcp:HOST:PORT" as socket addresses. */
#ifndef QUIRE_SERVER_WIRE_ADDRESS_H
#define QUIRE_SERVER_WIRE_ADDRESS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

struct wire_address {
    struct sockaddr_storage socket;
    socklen_t n_socket;
    bool is_unix;
};

#define WIRE_MAX_ADDRESSES 8

/* HOST may be a name, an IPv4 address or [an IPv6 address]; a name may ask the resolver, and blocks
 * while it does. *n_out >= 1 addresses, in the order to be tried. QUIRE_INVALID; QUIRE_NOT_FOUND
 * when the host has none. */
int wire_address_parse(const char *text, struct wire_address out[WIRE_MAX_ADDRESSES], size_t *n_out,
                       struct quire_error *err);

/* For people: the same form, with the port that a bound socket got. */
void wire_address_text(const struct wire_address *address, char *out, size_t n);

#endif
