#include "app/serve/reload.h"

#include "base/clock.h"
#include "base/log.h"

#include <signal.h>
#include <stdlib.h>

struct reload {
    struct reload_files files;
    struct event *signal;
};

static void on_reload(evutil_socket_t number, short what, void *context)
{
    const struct reload_files *f = &((struct reload *)context)->files;
    struct quire_error err;
    (void)number;
    (void)what;
    if (f->tenants_file && tenants_reload(f->tenants, quire_now_us(), &err) == QUIRE_OK)
        quire_log(QUIRE_LOG_INFO, "server", "%s was reloaded", f->tenants_file);
    else if (f->tenants_file)
        quire_log(QUIRE_LOG_ERROR, "server", "the tenants are unchanged: %s", err.text);
    if (f->tls && tls_reload(f->tls, &err) == QUIRE_OK)
        quire_log(QUIRE_LOG_INFO, "server", "%s was reloaded", f->cert_file);
    else if (f->tls)
        quire_log(QUIRE_LOG_ERROR, "server", "the certificate is unchanged: %s", err.text);
}

int reload_begin(struct event_base *base, const struct reload_files *files, struct reload **out,
                 struct quire_error *err)
{
    *out = NULL;
    if (!files->tenants_file && !files->tls)
        return QUIRE_OK;
    struct reload *r = *out = calloc(1, sizeof *r);
    if (!r)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    r->files = *files;
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
