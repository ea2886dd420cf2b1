#include "server/front/body/session.h"

#include "base/hash.h"
#include "server/front/body/json_field.h"

/* As long as Anthropic's shorter cache_control. An agent's tools rarely run longer. */
#define SESSION_S 300

void session_keep_for(struct request_spec *spec, uint32_t seconds)
{
    const uint64_t us = (uint64_t)seconds * 1000000;
    if (us <= spec->keep_us)
        return;
    spec->keep_us = us;
    /* No hit report names it: its rank is the number of turns that hit its blocks. */
    quire_random(&spec->keep_name, sizeof spec->keep_name);
}

void session_keep(struct request_spec *spec, struct quire_value name)
{
    if (json_is(name, QUIRE_STRING) && name.n > 2)
        session_keep_for(spec, SESSION_S);
}
