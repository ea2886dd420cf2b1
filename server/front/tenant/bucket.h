/* A token bucket: a number of units per minute, and at most a minute's worth at once. Pure integer arithmetic; the
 * caller provides the time (any monotonic microseconds) and the lock.
 *
 * It begins full and fills at per_minute / 60 units a second. bucket_take() checks the level first. bucket_charge()
 * does not, and may leave a debt, which must be filled up before the next take.
 */
#ifndef QUIRE_FRONT_BUCKET_H
#define QUIRE_FRONT_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

#define BUCKET_MAX_PER_MINUTE 10000000000u /* prevents overflow */

struct bucket {
    uint64_t per_minute; /* 0: no limit; then everything below succeeds at once */
    int64_t level;       /* in 60-millionths of a unit: what 1 a minute fills in a microsecond */
    uint64_t at_us;      /* the time of level */
};

void bucket_init(struct bucket *b, uint64_t per_minute, uint64_t now_us);
/* Sets another limit; used units stay used. */
void bucket_resize(struct bucket *b, uint64_t per_minute, uint64_t now_us);

/* Takes n units if available. More units than a full bucket holds are taken from a full one, and leave a debt:
 * otherwise they could never be taken. */
bool bucket_take(struct bucket *b, uint64_t n, uint64_t now_us);
void bucket_charge(struct bucket *b, uint64_t n, uint64_t now_us);

/* Available whole units; 0 in debt. */
uint64_t bucket_remaining(const struct bucket *b, uint64_t now_us);
/* Time until bucket_take(n) succeeds if no other units are taken, rounded up; 0: now. */
uint64_t bucket_wait_us(const struct bucket *b, uint64_t n, uint64_t now_us);
/* Time until it is full. */
uint64_t bucket_reset_us(const struct bucket *b, uint64_t now_us);

#endif
