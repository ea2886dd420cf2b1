#include "server/front/tenant/inside.h"

#include "server/http/http.h"

#include <stddef.h>

const char *inside_tenant(const struct http_exchange *x)
{
    return http_is_adopted(x) ? http_header(x, INSIDE_TENANT_HEADER) : NULL;
}

const char *inside_account(const struct http_exchange *x)
{
    return inside_tenant(x) ? http_header(x, INSIDE_ACCOUNT_HEADER) : NULL;
}
