/* Where a Redis is, and as whom: "redis://[user:password@]host[:port][/db]", "rediss://…" with TLS. Pure; any thread. */
#ifndef QUIRE_CACHE_REDIS_URL_H
#define QUIRE_CACHE_REDIS_URL_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct redis_url {
    bool tls;
    char host[256]; /* a name, an IPv4 or, without brackets, an IPv6 address */
    char port[6];
    uint32_t db;
    char user[256], password[512]; /* empty: none */
};

/* Returns QUIRE_INVALID and names the part that is wrong. The message contains nothing of the text before the @. */
int redis_url_parse(const char *text, struct redis_url *out, struct quire_error *err);
/* For people: without user and password. */
void redis_url_text(const struct redis_url *url, char *out, size_t n);

#endif
