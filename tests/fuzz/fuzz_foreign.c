/* A Host, a newline, an Origin; and the whole as a list of networks. A value accepted as this machine's own has the
 * required form. */
#include "fuzz.h"

#include "server/front/api/foreign.h"
#include "server/http/address.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_NETWORKS 8

static void must(bool condition)
{
    if (!condition)
        abort();
}

static void check_names(const char *host, const char *origin)
{
    if (foreign_host_is_local(host)) {
        must(strncasecmp(host, "localhost", 9) == 0 || strncmp(host, "127.", 4) == 0 || host[0] == '[');
        must(!strpbrk(host, " @/\\?#\r\n\t"));
    }
    if (origin && foreign_origin_is_own(origin, host, false)) {
        must(strncasecmp(origin, "http://", 7) == 0 && !strpbrk(origin + 7, " @/\\?#"));
        must(!foreign_origin_is_own(origin, host, true));
        /* The name alone, in the other's place. */
        must(!strpbrk(host, " @/\\?#"));
    }
    if (foreign_check_host(host, NULL) == QUIRE_OK)
        must(host[0] == '[' || !strpbrk(host, ":/@ "));
}

static void check_networks(const char *list)
{
    struct http_network networks[MAX_NETWORKS];
    size_t n = 0;
    int status = http_networks_parse(list, networks, MAX_NETWORKS, &n, NULL);
    must(n <= MAX_NETWORKS && (status == QUIRE_OK ? n > 0 : status == QUIRE_INVALID));
    for (size_t i = 0; i < n; i++) {
        must(networks[i].n_bits <= 128 && http_network_has(&networks[i], &networks[i].base));
        struct http_address other = networks[i].base;
        if (networks[i].n_bits > 0) {
            other.bytes[(networks[i].n_bits - 1) / 8] ^= (uint8_t)(0x80u >> (networks[i].n_bits - 1) % 8);
            must(!http_network_has(&networks[i], &other));
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *host = malloc(n + 1);
    must(host != NULL);
    memcpy(host, data, n);
    host[n] = '\0';
    check_networks(host);
    char *origin = strchr(host, '\n');
    if (origin)
        *origin++ = '\0';
    check_names(host, origin);
    free(host);
    return 0;
}
