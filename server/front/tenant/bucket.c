#include "server/front/tenant/bucket.h"

/* One unit. A limit of L units a minute adds exactly L of these in a microsecond. */
#define UNIT INT64_C(60000000)
#define MOST_DEBT (-(INT64_MAX / 4))

static int64_t capacity(const struct bucket *b)
{
    return (int64_t)b->per_minute * UNIT;
}

static int64_t level_at(const struct bucket *b, uint64_t now_us)
{
    uint64_t passed = now_us > b->at_us ? now_us - b->at_us : 0;
    uint64_t missing = (uint64_t)(capacity(b) - b->level);
    /* Compared by division: the product could overflow. */
    if (b->per_minute == 0 || passed >= missing / b->per_minute + 1)
        return capacity(b);
    int64_t level = b->level + (int64_t)(passed * b->per_minute);
    return level < capacity(b) ? level : capacity(b);
}

static void advance(struct bucket *b, uint64_t now_us)
{
    b->level = level_at(b, now_us);
    if (now_us > b->at_us)
        b->at_us = now_us;
}

/* The price of n units, limited to what a full bucket can lend. */
static int64_t price(uint64_t n)
{
    uint64_t most = (uint64_t)(INT64_MAX / 4 / UNIT);
    return (int64_t)(n < most ? n : most) * UNIT;
}

void bucket_init(struct bucket *b, uint64_t per_minute, uint64_t now_us)
{
    *b = (struct bucket){.per_minute = per_minute, .at_us = now_us};
    b->level = capacity(b);
}

void bucket_resize(struct bucket *b, uint64_t per_minute, uint64_t now_us)
{
    advance(b, now_us);
    int64_t used = b->per_minute ? capacity(b) - b->level : 0;
    b->per_minute = per_minute;
    b->level = capacity(b) - used;
}

void bucket_charge(struct bucket *b, uint64_t n, uint64_t now_us)
{
    if (b->per_minute == 0)
        return;
    advance(b, now_us);
    b->level = b->level < MOST_DEBT + price(n) ? MOST_DEBT : b->level - price(n);
}

static int64_t asked(const struct bucket *b, uint64_t n)
{
    return n < b->per_minute ? price(n) : capacity(b);
}

bool bucket_take(struct bucket *b, uint64_t n, uint64_t now_us)
{
    if (b->per_minute == 0)
        return true;
    if (level_at(b, now_us) < asked(b, n))
        return false;
    bucket_charge(b, n, now_us);
    return true;
}

uint64_t bucket_remaining(const struct bucket *b, uint64_t now_us)
{
    int64_t level = level_at(b, now_us);
    return level > 0 ? (uint64_t)(level / UNIT) : 0;
}

static uint64_t fill_us(const struct bucket *b, int64_t wanted, uint64_t now_us)
{
    int64_t level = level_at(b, now_us);
    if (b->per_minute == 0 || level >= wanted)
        return 0;
    uint64_t missing = (uint64_t)(wanted - level);
    return missing / b->per_minute + (missing % b->per_minute > 0);
}

uint64_t bucket_wait_us(const struct bucket *b, uint64_t n, uint64_t now_us)
{
    return fill_us(b, asked(b, n), now_us);
}

uint64_t bucket_reset_us(const struct bucket *b, uint64_t now_us)
{
    return fill_us(b, capacity(b), now_us);
}
