#include "server/http/tls.h"

#include "base/log.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tls {
    char *cert_file, *key_file;
    SSL_CTX *context;
};

/* ---- the handshake's terms ------------------------------------------------------------------ */

static int choose_protocol(SSL *session, const unsigned char **out, unsigned char *n_out, const unsigned char *offered,
                           unsigned n_offered, void *context)
{
    static const unsigned char http_1_1[] = "\x08http/1.1";
    unsigned char *chosen;
    (void)session;
    (void)context;
    if (SSL_select_next_proto(&chosen, n_out, http_1_1, sizeof http_1_1 - 1, offered, n_offered) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL; /* rejects clients that speak only h2 */
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static SSL_CTX *new_context(void)
{
    SSL_CTX *c = SSL_CTX_new(TLS_server_method());
    if (!c)
        return NULL;
    SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    /* Sessions are resumed by tickets, which cost the server nothing to keep. */
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
    /* 34 KiB less for each connection that is idle; and libevent may move what waits to be written. */
    SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_alpn_select_cb(c, choose_protocol, NULL);
    /* The list is TLS 1.2's; every suite of 1.3 is of this kind. */
    if (SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION) == 1 &&
        SSL_CTX_set_cipher_list(c, "ECDHE+AESGCM:ECDHE+CHACHA20") == 1)
        return c;
    SSL_CTX_free(c);
    return NULL;
}

/* ---- the files ------------------------------------------------------------------------------ */

/* OpenSSL would prompt on the terminal, which a service does not have. */
static int no_password(char *out, int n_out, int writing, void *context)
{
    (void)out;
    (void)n_out;
    (void)writing;
    *(bool *)context = true;
    return -1;
}

static int check_readable(const char *option, const char *path, struct quire_error *err)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return quire_fail(err, QUIRE_IO, "%s: %s: %s", option, path, strerror(errno));
    fclose(file);
    return QUIRE_OK;
}

static int refuse(const char *option, const char *path, const char *what, struct quire_error *err)
{
    const char *why = ERR_reason_error_string(ERR_peek_error());
    return quire_fail(err, QUIRE_INVALID, "%s: %s: %s (%s)", option, path, what, why ? why : "no reason given");
}

static int read_cert(SSL_CTX *c, const char *path, struct quire_error *err)
{
    int status = check_readable("--ssl-certfile", path, err);
    if (status != QUIRE_OK)
        return status;
    if (SSL_CTX_use_certificate_chain_file(c, path) != 1)
        return refuse("--ssl-certfile", path, "is not a usable certificate chain in PEM", err);
    return QUIRE_OK;
}

static int read_key(SSL_CTX *c, const struct tls *t, struct quire_error *err)
{
    const char *path = t->key_file ? t->key_file : t->cert_file;
    bool encrypted = false;
    int status = check_readable("--ssl-keyfile", path, err);
    if (status != QUIRE_OK)
        return status;
    SSL_CTX_set_default_passwd_cb(c, no_password);
    SSL_CTX_set_default_passwd_cb_userdata(c, &encrypted);
    int good = SSL_CTX_use_PrivateKey_file(c, path, SSL_FILETYPE_PEM);
    SSL_CTX_set_default_passwd_cb(c, NULL);
    SSL_CTX_set_default_passwd_cb_userdata(c, NULL);
    if (good == 1)
        return QUIRE_OK;
    if (encrypted)
        return quire_fail(
            err, QUIRE_INVALID,
            "--ssl-keyfile: %s: is encrypted: decrypt it (openssl pkey) and restrict access with its file "
            "mode",
            path);
    if (ERR_GET_REASON(ERR_peek_last_error()) == X509_R_KEY_VALUES_MISMATCH)
        return quire_fail(err, QUIRE_INVALID, "--ssl-keyfile: %s: is not the key of the certificate in %s", path,
                          t->cert_file);
    return refuse("--ssl-keyfile", path,
                  t->key_file ? "is not a private key in PEM" : "holds no private key: give --ssl-keyfile", err);
}

static void warn_of_expiry(SSL_CTX *c, const char *path)
{
    const X509 *cert = SSL_CTX_get0_certificate(c);
    if (cert && X509_cmp_current_time(X509_get0_notAfter(cert)) < 0)
        quire_log(QUIRE_LOG_WARN, "server", "the certificate in %s has expired: clients will reject it", path);
}

int tls_reload(struct tls *t, struct quire_error *err)
{
    ERR_clear_error();
    SSL_CTX *c = new_context();
    int status = c ? QUIRE_OK : (int)quire_fail(err, QUIRE_INTERNAL, "OpenSSL cannot be initialized");
    if (status == QUIRE_OK)
        status = read_cert(c, t->cert_file, err);
    if (status == QUIRE_OK)
        status = read_key(c, t, err);
    ERR_clear_error();
    if (status != QUIRE_OK) {
        SSL_CTX_free(c);
        return status;
    }
    warn_of_expiry(c, t->cert_file);
    SSL_CTX_free(t->context); /* connections hold it as long as they need it */
    t->context = c;
    return QUIRE_OK;
}

int tls_open(const char *cert_file, const char *key_file, struct tls **out, struct quire_error *err)
{
    *out = NULL;
    struct tls *t = calloc(1, sizeof *t);
    if (!t)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    t->cert_file = strdup(cert_file);
    t->key_file = key_file ? strdup(key_file) : NULL;
    int status = t->cert_file && (t->key_file || !key_file) ? tls_reload(t, err)
                                                            : (int)quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (status != QUIRE_OK) {
        tls_free(t);
        return status;
    }
    *out = t;
    return QUIRE_OK;
}

void tls_free(struct tls *t)
{
    if (!t)
        return;
    SSL_CTX_free(t->context);
    free(t->cert_file);
    free(t->key_file);
    free(t);
}

/* ---- a connection --------------------------------------------------------------------------- */

SSL *tls_accepting(const struct tls *t)
{
    return SSL_new(t->context);
}

void tls_say_goodbye(SSL *session)
{
    SSL_shutdown(session);
    ERR_clear_error();
}
