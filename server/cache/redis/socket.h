/* A TCP connection to a Redis, with TLS or without, that never waits: each call goes as far as it gets.
 *
 * Not libevent's bufferevents: they move bytes only while their loop runs, and a server that stops waits for what it put
 * to be acknowledged when its loop is over. One thread.
 */
#ifndef QUIRE_CACHE_REDIS_SOCKET_H
#define QUIRE_CACHE_REDIS_SOCKET_H

#include "base/status.h"

#include <openssl/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

struct redis_socket { /* zero it and set fd to -1: closed */
    int fd;
    SSL *session; /* NULL: no TLS */
    bool is_connected, is_ready;
    bool wants_write; /* the last call that did not get on waits until it may write; else until it may read */
};

/* Certificates are checked against the system's store (or SSL_CERT_FILE, SSL_CERT_DIR). TLS 1.2 or later. The caller's:
 * SSL_CTX_free(). */
int redis_tls_open(SSL_CTX **out, struct quire_error *err);

/* tls: NULL connects without TLS. host: the name or address that the certificate must contain. */
int redis_socket_open(struct redis_socket *s, const struct sockaddr *to, socklen_t n_to, SSL_CTX *tls, const char *host,
                      struct quire_error *err);
void redis_socket_close(struct redis_socket *s);
/* Connects and shakes hands: is_ready when that is done. */
int redis_socket_advance(struct redis_socket *s, struct quire_error *err);
/* Call it when the socket is ready. *n_done is 0 if no data was available or the buffer was full. If TLS did not
 * take the data, the next call must pass the same data; more may follow it. */
int redis_socket_read(struct redis_socket *s, void *bytes, size_t n, size_t *n_done, struct quire_error *err);
int redis_socket_write(struct redis_socket *s, const void *bytes, size_t n, size_t *n_done, struct quire_error *err);

#endif
