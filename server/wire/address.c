#include "server/wire/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

static int parse_unix(const char *path, struct wire_address *out, struct quire_error *err)
{
    struct sockaddr_un *un = (struct sockaddr_un *)&out->socket;
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof un->sun_path)
        return quire_fail(err, QUIRE_INVALID, "unix:%s: the path must have 1 to %zu bytes", path,
                          sizeof un->sun_path - 1);
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path, path, n + 1);
    out->n_socket = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + 1);
    out->is_unix = true;
    return QUIRE_OK;
}

static bool valid_port(const char *text)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    unsigned long port = strtoul(text, &end, 10);
    return *end == '\0' && port <= UINT16_MAX;
}

static int parse_tcp(const char *text, struct wire_address out[WIRE_MAX_ADDRESSES], size_t *n_out,
                     struct quire_error *err)
{
    char host[256];
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;
    if (n == 0 || n >= sizeof host || !valid_port(colon + 1))
        return quire_fail(err, QUIRE_INVALID, "tcp:%s: must be tcp:HOST:PORT", text);
    if (text[0] == '[' && text[n - 1] == ']') {
        text++;
        n -= 2;
    } else if (memchr(text, ':', n)) {
        return quire_fail(err, QUIRE_INVALID, "tcp:%s: an IPv6 address goes into [ ]", text);
    }
    memcpy(host, text, n);
    host[n] = '\0';
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int code = getaddrinfo(host, colon + 1, &hints, &found);
    if (code != 0)
        return quire_fail(err, QUIRE_NOT_FOUND, "tcp:%s:%s: %s", host, colon + 1, gai_strerror(code));
    *n_out = 0;
    for (struct addrinfo *a = found; a && *n_out < WIRE_MAX_ADDRESSES; a = a->ai_next) {
        memcpy(&out[*n_out].socket, a->ai_addr, a->ai_addrlen);
        out[*n_out].n_socket = a->ai_addrlen;
        (*n_out)++;
    }
    freeaddrinfo(found);
    return QUIRE_OK;
}

int wire_address_parse(const char *text, struct wire_address out[WIRE_MAX_ADDRESSES], size_t *n_out,
                       struct quire_error *err)
{
    memset(out, 0, WIRE_MAX_ADDRESSES * sizeof *out);
    *n_out = 1;
    if (strncmp(text, "unix:", 5) == 0)
        return parse_unix(text + 5, out, err);
    if (strncmp(text, "tcp:", 4) == 0)
        return parse_tcp(text + 4, out, n_out, err);
    return quire_fail(err, QUIRE_INVALID, "%s: must be unix:PATH or tcp:HOST:PORT", text);
}

void wire_address_text(const struct wire_address *address, char *out, size_t n)
{
    char host[128], port[16];
    if (address->is_unix) {
        snprintf(out, n, "unix:%s", ((const struct sockaddr_un *)&address->socket)->sun_path);
        return;
    }
    if (getnameinfo((const struct sockaddr *)&address->socket, address->n_socket, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        snprintf(out, n, "tcp");
        return;
    }
    bool v6 = address->socket.ss_family == AF_INET6;
    snprintf(out, n, "tcp:%s%s%s:%s", v6 ? "[" : "", host, v6 ? "]" : "", port);
}
