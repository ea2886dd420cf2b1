/* The certificate of an HTTPS listener: what OpenSSL needs to accept a connection.
 *
 * TLS 1.2 with forward secrecy and authenticated encryption, or 1.3; ALPN says http/1.1. The loop's
 * thread only.
 */
#ifndef QUIRE_HTTP_TLS_H
#define QUIRE_HTTP_TLS_H

#include "base/status.h"

#include <openssl/types.h>

struct tls;

/* PEM files: the certificate with its chain, and its key, which may not be encrypted. key_file NULL:
 * the key is in cert_file too. QUIRE_IO, QUIRE_INVALID: names the file and says why. A certificate
 * that has expired is logged as a warning. */
int tls_open(const char *cert_file, const char *key_file, struct tls **out, struct quire_error *err);
/* Reads the files again, for the connections to come. On failure everything is as it was. */
int tls_reload(struct tls *t, struct quire_error *err);
/* Connections go on. */
void tls_free(struct tls *t);

/* For one connection, the caller's. NULL: out of memory. */
SSL *tls_accepting(const struct tls *t);
/* Sends close_notify, so that the client knows that the data is complete. Never waits. */
void tls_say_goodbye(SSL *session);

#endif
