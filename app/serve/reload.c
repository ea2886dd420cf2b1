#include "app/serve/reload.h"

#include "base/clock.h"
#include "base/log.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

struct reload {
    struct reload_files files;
    struct event *signal;
    bool ends_with_terminal;
};

static bool has_terminal(void)
{
    const int fd = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static void on_reload(evutil_socket_t number, short what, void *context)
{
    const struct reload *r = context;
    const struct reload_files *f = &r->files;
    struct quire_error err;
    (void)number;
    (void)what;
    if (r->ends_with_terminal && !has_terminal()) {
        quire_log(QUIRE_LOG_INFO, "server", "SIGHUP: the terminal was closed");
        raise(SIGTERM);
        return;
    }
    if (f->tenants_file && tenants_reload(f->tenants, quire_now_us(), &err) == QUIRE_OK)
        quire_log(QUIRE_LOG_INFO, "server", "%s was reloaded", f->tenants_file);
    else if (f->tenants_file)
        quire_log(QUIRE_LOG_ERROR, "server", "the tenants are unchanged: %s", err.text);
    if (f->tls && tls_reload(f->tls, &err) == QUIRE_OK)
        quire_log(QUIRE_LOG_INFO, "server", "%s was reloaded", f->cert_file);
    else if (f->tls)
        quire_log(QUIRE_LOG_ERROR, "server", "the certificate is unchanged: %s", err.text);
    if (!f->tenants_file && !f->tls && !f->has_more)
        quire_log(QUIRE_LOG_INFO, "server", "SIGHUP: nothing to reload, without --tenants and --ssl-certfile");
}

int reload_begin(struct event_base *base, const struct reload_files *files, struct reload **out,
                 struct quire_error *err)
{
    struct reload *r = *out = calloc(1, sizeof *r);
    if (!r)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    struct sigaction before;
    r->files = *files;
    r->ends_with_terminal = has_terminal() && sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN;
    r->signal = evsignal_new(base, SIGHUP, on_reload, r);
    return r->signal && evsignal_add(r->signal, NULL) == 0
               ? QUIRE_OK
               : quire_fail(err, QUIRE_INTERNAL, "signals cannot be watched");
}

void reload_end(struct reload *r)
{
    if (!r)
        return;
    if (r->signal)
        event_free(r->signal);
    free(r);
}
