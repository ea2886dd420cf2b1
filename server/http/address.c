#include "server/http/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#define V4_PREFIX_BITS 96
#define CLIENT_BITS 64

static const uint8_t v4_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

static bool is_v4(const struct http_address *a)
{
    return memcmp(a->bytes, v4_prefix, sizeof v4_prefix) == 0;
}

struct http_address http_address_of(const struct sockaddr *from)
{
    struct http_address out = {{0}};
    if (from->sa_family == AF_INET6) {
        memcpy(out.bytes, &((const struct sockaddr_in6 *)from)->sin6_addr, sizeof out.bytes);
    } else if (from->sa_family == AF_INET) {
        memcpy(out.bytes, v4_prefix, sizeof v4_prefix);
        memcpy(out.bytes + sizeof v4_prefix, &((const struct sockaddr_in *)from)->sin_addr, 4);
    }
    return out;
}

void http_address_text(const struct http_address *address, char out[HTTP_ADDRESS_BYTES])
{
    static const struct http_address none;
    const bool is_v4 = memcmp(address->bytes, v4_prefix, sizeof v4_prefix) == 0;
    out[0] = 0;
    if (memcmp(address, &none, sizeof none) == 0)
        return;
    inet_ntop(is_v4 ? AF_INET : AF_INET6, address->bytes + (is_v4 ? sizeof v4_prefix : 0), out, HTTP_ADDRESS_BYTES);
}

bool http_address_parse(const char *text, struct http_address *out)
{
    memcpy(out->bytes, v4_prefix, sizeof v4_prefix);
    return inet_pton(AF_INET, text, out->bytes + sizeof v4_prefix) == 1 || inet_pton(AF_INET6, text, out->bytes) == 1;
}

bool http_address_is_loopback(const struct http_address *a)
{
    static const struct http_address v6 = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
    return is_v4(a) ? a->bytes[12] == 127 : memcmp(a, &v6, sizeof v6) == 0;
}

/* Clears what comes after the first n_bits. */
static void mask(struct http_address *a, unsigned n_bits)
{
    for (unsigned i = 0; i < sizeof a->bytes; i++) {
        unsigned kept = n_bits > 8 * i ? n_bits - 8 * i : 0;
        if (kept < 8)
            a->bytes[i] &= (uint8_t)(0xff00u >> kept);
    }
}

struct http_address http_address_client(const struct http_address *address)
{
    struct http_address out = *address;
    if (!is_v4(address))
        mask(&out, CLIENT_BITS);
    return out;
}

/* "10.0.0.0/8" */
static bool parse_network(const char *text, struct http_network *out)
{
    char address[64];
    size_t n = strcspn(text, "/"), n_digits = text[n] ? strspn(text + n + 1, "0123456789") : 0;
    if (n >= sizeof address)
        return false;
    memcpy(address, text, n);
    address[n] = '\0';
    if (!http_address_parse(address, &out->base))
        return false;
    bool v4 = memchr(address, ':', n) == NULL;
    unsigned n_bits = v4 ? 32 : 128;
    if (text[n]) {
        if (n_digits == 0 || n_digits > 3 || text[n + 1 + n_digits])
            return false;
        unsigned asked = 0;
        for (size_t i = 0; i < n_digits; i++)
            asked = asked * 10 + (unsigned)(text[n + 1 + i] - '0');
        if (asked > n_bits)
            return false;
        n_bits = asked;
    }
    out->n_bits = n_bits + (v4 ? V4_PREFIX_BITS : 0);
    mask(&out->base, out->n_bits);
    return true;
}

int http_networks_parse(const char *list, struct http_network *out, size_t n_slots, size_t *n, struct quire_error *err)
{
    for (;;) {
        char one[80];
        size_t n_one = strcspn(list, ",");
        bool good = n_one < sizeof one;
        if (good) {
            memcpy(one, list, n_one);
            one[n_one] = '\0';
        }
        if (*n == n_slots)
            return quire_fail(err, QUIRE_INVALID, "more than %zu networks", n_slots);
        if (!good || !parse_network(one, &out[*n]))
            return quire_fail(err, QUIRE_INVALID,
                              "\"%.*s\": must be an address or a network: 10.0.0.7, 10.0.0.0/8 or fd00::/8",
                              (int)(n_one < 80 ? n_one : 80), list);
        ++*n;
        if (!list[n_one])
            return QUIRE_OK;
        list += n_one + 1;
    }
}

bool http_network_has(const struct http_network *network, const struct http_address *address)
{
    struct http_address base = *address;
    mask(&base, network->n_bits);
    return memcmp(&base, &network->base, sizeof base) == 0;
}
