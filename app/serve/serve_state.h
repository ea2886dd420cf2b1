/* The running server: its parts, which the files of this folder open one by one. Private to app/serve, and to the
 * part of app/gateway that opens the same. Main thread, on
 * the loop. */
#ifndef QUIRE_APP_SERVE_SERVE_STATE_H
#define QUIRE_APP_SERVE_SERVE_STATE_H

#include "app/models/cache.h"
#include "app/serve/own_engine.h"
#include "app/serve/reload.h"
#include "app/serve/serve_flags.h"
#include "app/serving/grammars.h"
#include "app/serving/identity.h"
#include "app/serving/server_list.h"
#include "app/serving/signals.h"
#include "app/warm/warm.h"
#include "request/spec.h"
#include "server/cache/response_cache.h"
#include "server/front/model_about.h"

struct bulk;
struct local_listener;

struct serve {
    const char *within; /* the target that it is within a gateway, for logs; NULL: a server of its own */
    struct serve_flags *flags;
    struct hub_model *model;
    struct serving_identity *identity;
    struct model_about about;

    struct event_base *base; /* within a gateway: the gateway's, as tenants */
    struct serving_signals *signals;
    struct own_engine *engine; /* NULL with --engine and --restart */
    struct quire_text *text;
    struct serving_grammars *grammars;
    struct tls *tls; /* NULL: plain HTTP */
    struct tenants *tenants;
    struct sched_tenant shares[TENANTS_MAX]; /* of the tenants, for the engine */
    struct response_cache *cache; /* NULL: off */
    struct front *front;
    struct served_model *served;
    struct companion *companion; /* NULL without --embedding-model */
    struct warming *warming; /* NULL without --warm, and before the engine is available */
    struct bulk *bulk; /* NULL within a gateway */
    struct local_listener *inside; /* for lines of batches */
    uint32_t n_unfinished; /* batches, once it drains */
    struct reload *reload; /* NULL if nothing can be reloaded */
    struct server_entry *entry; /* its row of quire ps; NULL before it is ready */
    bool draining;
    int exit_code;
    double started;
};

#endif
