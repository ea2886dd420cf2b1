/* The marks of blocks that stay in the prefix cache. */
#include "server/front/messages/messages_read.h"

#include <stdio.h>

bool messages_cache_control(struct quire_value owner, const char *path, uint32_t *ttl_s, struct api_error *e)
{
    const struct quire_value control = json_field_member(owner, "cache_control");
    const struct quire_value ttl = json_field_member(control, "ttl");
    const bool is_long = quire_value_is(ttl, "1h");
    char field[96];
    if (!control.n)
        return true;
    snprintf(field, sizeof field, "%s%scache_control", path, *path ? "." : "");
    if (!quire_value_is(quire_value_member(control, "type"), "ephemeral"))
        return api_bad(e, field, "must be {\"type\":\"ephemeral\"}");
    if (ttl.n && !is_long && !quire_value_is(ttl, "5m"))
        return api_bad(e, field, "ttl must be \"5m\" or \"1h\", got %.*s", JSON_SHOWN(ttl));
    const uint32_t s = is_long ? 3600 : 300;
    *ttl_s = *ttl_s > s ? *ttl_s : s;
    return true;
}
