#include "app/serve/serve_access.h"

#include "base/clock.h"

int serve_access_open(struct event_base *base, const struct serve_flags *flags, struct serve_access *out,
                      struct quire_error *err)
{
    const struct serve_settings *says = flags->says;
    int status;
    if (says->tenants_file)
        status = tenants_from_file(says->tenants_file, quire_now_us(), &out->tenants, err);
    else
        status = tenants_from_keys(says->api_keys.items, says->api_keys.n, quire_now_us(), &out->tenants, err);
    if (status == QUIRE_OK && flags->http->cert_file)
        status = tls_open(flags->http->cert_file, flags->http->tls_key_file, &out->tls, err);
    const struct reload_files files = {says->tenants_file, out->tenants, flags->http->cert_file, out->tls,
                                       says->models_file != NULL};
    return status == QUIRE_OK ? reload_begin(base, &files, &out->reload, err) : status;
}
