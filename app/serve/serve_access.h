/* Who may use a server, and its certificate: keys, TLS, and their reload by SIGHUP. Main thread. */
#ifndef QUIRE_APP_SERVE_SERVE_ACCESS_H
#define QUIRE_APP_SERVE_SERVE_ACCESS_H

#include "app/serve/reload.h"
#include "app/serve/serve_flags.h"

struct serve_access {
    struct tenants *tenants;
    struct tls *tls;       /* NULL: plain HTTP */
    struct reload *reload; /* NULL if nothing can be reloaded */
};

/* *out: zeroed. Its parts that are not NULL need reload_end(), tls_free() and tenants_free(), also after an error. */
int serve_access_open(struct event_base *base, const struct serve_flags *flags, struct serve_access *out,
                      struct quire_error *err);

#endif
