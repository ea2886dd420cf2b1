#include "server/cache/redis/socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <unistd.h>

int redis_tls_open(SSL_CTX **out, struct quire_error *err)
{
    SSL_CTX *c = SSL_CTX_new(TLS_client_method());
    *out = c;
    if (!c)
        return quire_fail(err, QUIRE_INTERNAL, "OpenSSL cannot be initialized");
    SSL_CTX_set_verify(c, SSL_VERIFY_PEER, NULL);
    /* Pending data may move in memory between writes, and may be written in parts. */
    SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION) == 1 && SSL_CTX_set_default_verify_paths(c) == 1)
        return QUIRE_OK;
    SSL_CTX_free(c);
    *out = NULL;
    return quire_fail(err, QUIRE_INTERNAL, "OpenSSL cannot find the system's certificates");
}

static int begin_tls(struct redis_socket *s, SSL_CTX *tls, const char *host, struct quire_error *err)
{
    s->session = SSL_new(tls);
    if (!s->session || SSL_set_fd(s->session, s->fd) != 1)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    /* The certificate must list an IP address as such. Only names are sent to the server (SNI). */
    const bool is_address = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(s->session), host) == 1;
    if (!is_address && (SSL_set1_host(s->session, host) != 1 || SSL_set_tlsext_host_name(s->session, host) != 1))
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    SSL_set_connect_state(s->session);
    ERR_clear_error();
    return QUIRE_OK;
}

int redis_socket_open(struct redis_socket *s, const struct sockaddr *to, socklen_t n_to, SSL_CTX *tls, const char *host,
                      struct quire_error *err)
{
    const int yes = 1;
    *s = (struct redis_socket){.fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    if (s->fd < 0)
        return quire_fail(err, QUIRE_IO, "%s", strerror(errno));
    setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(s->fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    int status = QUIRE_OK;
    if (connect(s->fd, to, n_to) != 0 && errno != EINPROGRESS)
        status = quire_fail(err, QUIRE_IO, "%s", strerror(errno));
    s->wants_write = true;
    if (status == QUIRE_OK && tls)
        status = begin_tls(s, tls, host, err);
    if (status != QUIRE_OK)
        redis_socket_close(s);
    return status;
}

void redis_socket_close(struct redis_socket *s)
{
    SSL_free(s->session);
    if (s->fd >= 0)
        close(s->fd);
    *s = (struct redis_socket){.fd = -1};
}

/* Interprets the return value n <= 0 of an SSL_*() function. QUIRE_OK: try again later. */
static int tls_later(struct redis_socket *s, int n, struct quire_error *err)
{
    const int saved = errno;
    const int code = SSL_get_error(s->session, n);
    const long verified = SSL_get_verify_result(s->session);
    const char *why = ERR_reason_error_string(ERR_peek_error());
    ERR_clear_error();
    s->wants_write = code == SSL_ERROR_WANT_WRITE;
    if (code == SSL_ERROR_WANT_READ || code == SSL_ERROR_WANT_WRITE)
        return QUIRE_OK;
    if (verified != X509_V_OK)
        return quire_fail(err, QUIRE_IO, "its certificate: %s", X509_verify_cert_error_string(verified));
    if (code == SSL_ERROR_SYSCALL && saved)
        return quire_fail(err, QUIRE_IO, "%s", strerror(saved));
    return quire_fail(err, QUIRE_IO, "TLS: %s", why ? why : "it hung up");
}

int redis_socket_advance(struct redis_socket *s, struct quire_error *err)
{
    if (!s->is_connected) {
        struct sockaddr_storage peer;
        socklen_t n_peer = sizeof peer;
        int error = 0;
        socklen_t n_error = sizeof error;
        getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &n_error);
        if (error)
            return quire_fail(err, QUIRE_IO, "%s", strerror(error));
        if (getpeername(s->fd, (struct sockaddr *)&peer, &n_peer) != 0)
            return QUIRE_OK; /* not yet */
        s->is_connected = true;
        s->wants_write = false;
    }
    if (!s->session) {
        s->is_ready = true;
        return QUIRE_OK;
    }
    ERR_clear_error();
    errno = 0;
    const int n = SSL_do_handshake(s->session);
    s->is_ready = n == 1;
    return n == 1 ? (int)QUIRE_OK : tls_later(s, n, err);
}

static bool is_later(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

int redis_socket_read(struct redis_socket *s, void *bytes, size_t n, size_t *n_done, struct quire_error *err)
{
    *n_done = 0;
    if (s->session) {
        ERR_clear_error();
        errno = 0;
        const int got = SSL_read(s->session, bytes, (int)n);
        if (got <= 0)
            return tls_later(s, got, err);
        *n_done = (size_t)got;
        return QUIRE_OK;
    }
    const ssize_t got = recv(s->fd, bytes, n, 0);
    if (got == 0)
        return quire_fail(err, QUIRE_IO, "it hung up");
    if (got < 0 && !is_later())
        return quire_fail(err, QUIRE_IO, "%s", strerror(errno));
    s->wants_write = false;
    *n_done = got > 0 ? (size_t)got : 0;
    return QUIRE_OK;
}

int redis_socket_write(struct redis_socket *s, const void *bytes, size_t n, size_t *n_done, struct quire_error *err)
{
    *n_done = 0;
    if (s->session) {
        ERR_clear_error();
        errno = 0;
        const int put = SSL_write(s->session, bytes, (int)n);
        if (put <= 0)
            return tls_later(s, put, err);
        *n_done = (size_t)put;
        return QUIRE_OK;
    }
    const ssize_t put = send(s->fd, bytes, n, MSG_NOSIGNAL);
    if (put < 0 && !is_later())
        return quire_fail(err, QUIRE_IO, "%s", strerror(errno));
    s->wants_write = put < 0;
    *n_done = put > 0 ? (size_t)put : 0;
    return QUIRE_OK;
}
