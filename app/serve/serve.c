#include "app/serve/serve.h"

#include "app/companion/companion.h"
#include "app/models/fetch.h"
#include "app/serve/serve_access.h"
#include "app/serve/serve_drain.h"
#include "app/serve/serve_front.h"
#include "app/serve/serve_models.h"
#include "app/serve/serve_state.h"
#include "app/serve/serve_upstream.h"
#include "app/serving/shares.h"
#include "base/clock.h"
#include "server/bulk/bulk.h"
#include "server/front/front.h"
#include "server/http/local_listener.h"

/* Within a gateway, the gateway has them. */
static int open_own(struct serve *s, struct quire_error *err)
{
    struct serve_access access = {0};
    s->base = event_base_new();
    if (!s->base)
        return quire_fail(err, QUIRE_INTERNAL, "libevent cannot create an event loop");
    int status = serve_access_open(s->base, s->flags, &access, err);
    s->tenants = access.tenants;
    s->tls = access.tls;
    s->reload = access.reload;
    return status;
}

static int open_bulk(struct serve *s, struct quire_error *err)
{
    const struct bulk_options o = {
        .settings = s->flags->bulk, .tenants = s->tenants, .on_notice = bulk_flags_on_notice};
    return bulk_open(s->base, &o, &s->bulk, err);
}

static void on_inside(void *context, int fd)
{
    const struct serve *s = context;
    front_accept(s->front, fd);
}

static int start_bulk(struct serve *s, struct quire_error *err)
{
    int status = local_listener_open(s->base, on_inside, s, &s->inside, err);
    return status == QUIRE_OK ? bulk_start(s->bulk, local_listener_name(s->inside), err) : status;
}

static void use_tenants(struct serve *s)
{
    _Static_assert(TENANTS_MAX <= SCHED_MAX_TENANTS, "the engine counts every tenant");
    tenant_shares(s->tenants, s->shares);
    /* Space for tenants that a reloaded file, or another front end, may name. */
    s->flags->options->steps->policy_options.n_tenants = TENANTS_MAX;
    s->flags->options->steps->policy_options.tenants = s->shares;
}

int serve_open(struct serve *s, struct quire_error *err)
{
    struct sampling_defaults sampling;
    s->started = quire_now_s();
    if (s->flags->says->names.n == 0)
        s->flags->says->names.items[s->flags->says->names.n++] = s->model->name;
    int status = s->within ? QUIRE_OK : open_own(s, err);
    if (status != QUIRE_OK)
        return status;
    use_tenants(s);
    status = cache_flags_begin(s->flags->cache, s->base, err);
    if (status == QUIRE_OK)
        status = serve_open_model(s, &sampling, err);
    if (status == QUIRE_OK && cache_flags_on(s->flags->cache))
        status = response_cache_open(s->base, &s->flags->cache->options, &s->cache, err);
    if (status == QUIRE_OK && s->flags->bulk)
        status = open_bulk(s, err);
    if (status == QUIRE_OK)
        status = serve_open_front(s, &sampling, err);
    if (status == QUIRE_OK)
        status = serve_connect_engine(s, err);
    if (status == QUIRE_OK && s->bulk)
        status = start_bulk(s, err);
    return status;
}

void serve_close(struct serve *s)
{
    serving_signals_end(s->signals);
    warming_end(s->warming);
    bulk_stop(s->bulk);
    local_listener_close(s->inside);
    front_destroy(s->front);
    bulk_close(s->bulk);
    if (s->cache) /* vectors of the embedding model may still arrive */
        response_cache_compare(s->cache, NULL);
    companion_close(s->companion);
    response_cache_close(s->cache);
    own_engine_close(s->engine);
    reload_end(s->reload);
    serving_grammars_end(s->grammars);
    quire_text_close(s->text);
    server_list_withdraw(s->entry);
    if (s->within)
        return;
    tls_free(s->tls);
    tenants_free(s->tenants);
    if (s->base)
        event_base_free(s->base);
}

int serve_run(struct serve_flags *flags, int *exit_code, struct quire_error *err)
{
    const struct serve_settings *says = flags->says;
    struct hub_model model = {0};
    struct serving_identity identity = {0};
    struct serve s = {.flags = flags, .model = &model, .identity = &identity};
    int status = says->pulls ? hub_model_fetch(says->given, false, says->remote != NULL, &model, err)
                             : hub_model_find(says->given, says->remote != NULL, &model, err);
    flags->options->model_dir = model.dir;
    if (status == QUIRE_OK)
        status = serve_open(&s, err);
    if (status == QUIRE_OK)
        status = serve_drain_begin(&s, err);
    if (status == QUIRE_OK && s.engine)
        status = own_engine_log(s.engine, !says->disable_log_stats, err);
    if (status == QUIRE_OK) {
        event_base_dispatch(s.base);
        own_engine_leave(s.engine);
        if (own_engine_died(s.engine) || companion_died(s.companion))
            s.exit_code = 1;
        if (s.exit_code == 0 && s.n_unfinished > 0)
            s.exit_code = BULK_EXIT_UNFINISHED;
    }
    s.flags->watching->fails = status != QUIRE_OK;
    serve_close(&s);
    *exit_code = s.exit_code;
    return status;
}
