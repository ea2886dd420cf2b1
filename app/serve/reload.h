/* What SIGHUP reloads: the tenants' file and the certificate. Main thread, on the loop. */
#ifndef QUIRE_APP_SERVE_RELOAD_H
#define QUIRE_APP_SERVE_RELOAD_H

#include "base/status.h"
#include "server/front/tenant/tenants.h"
#include "server/http/tls.h"

#include <event2/event.h>

struct reload;

/* All borrowed until reload_end(). */
struct reload_files {
    const char *tenants_file; /* NULL: the tenants are not from a file */
    struct tenants *tenants;
    const char *cert_file;
    struct tls *tls; /* NULL: plain HTTP */
    bool has_more; /* the caller reloads other files, and logs that */
};

/* Each SIGHUP has a line in the log. If the signal comes from the end of the terminal that the server was started on, it
 * has the effect of SIGTERM, unless SIGHUP was ignored (nohup). */
int reload_begin(struct event_base *base, const struct reload_files *files, struct reload **out,
                 struct quire_error *err);
void reload_end(struct reload *r); /* NULL is allowed */

#endif
