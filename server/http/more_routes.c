#include "server/http/more_routes.h"

#include <string.h>

bool more_route_takes(const struct more_route *route, const char *method)
{
    const size_t n = strlen(method);
    for (const char *at = route->methods; *at;) {
        const size_t n_at = strcspn(at, ",");
        if (n_at == n && memcmp(at, method, n) == 0)
            return true;
        at += n_at;
        at += strspn(at, ", ");
    }
    return false;
}
