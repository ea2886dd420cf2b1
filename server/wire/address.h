/* Parses "unix:PATH" and "tcp:HOST:PORT" into socket addresses. Any thread. */
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

/* HOST may be a name, an IPv4 address or [an IPv6 address]. A name may be resolved, which blocks. *n_out >= 1
 * addresses in the order in which to try them. Returns QUIRE_INVALID for a malformed address and QUIRE_NOT_FOUND if
 * the host has no address. */
int wire_address_parse(const char *text, struct wire_address out[WIRE_MAX_ADDRESSES], size_t *n_out,
                       struct quire_error *err);

/* Writes the address in the same form for people. The port is the one that a bound socket got. */
void wire_address_text(const struct wire_address *address, char *out, size_t n);

#endif
