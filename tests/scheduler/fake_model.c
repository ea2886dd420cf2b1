#include "tests/scheduler/fake_model.h"

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t fake_next(struct fake_random *random)
{
    random->state += 0x9e3779b97f4a7c15u;
    return mix(random->state);
}

uint32_t fake_below(struct fake_random *random, uint32_t n)
{
    return (uint32_t)((fake_next(random) >> 32) * n >> 32);
}

bool fake_chance(struct fake_random *random, uint32_t percent)
{
    return fake_below(random, 100) < percent;
}

uint64_t fake_empty_prefix(uint32_t tenant)
{
    return mix(tenant + 1);
}

uint64_t fake_extend_prefix(uint64_t prefix, uint32_t token)
{
    return mix(prefix ^ (token + 0x9e3779b97f4a7c15u));
}

uint32_t fake_next_token(uint64_t prefix, uint32_t choice)
{
    return (uint32_t)(mix(prefix + choice * 77u) % 1000);
}
