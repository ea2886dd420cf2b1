/* A token bucket: so many units a minute, at most a minute's worth at once. Pure arithmetic in
 * integers; the caller brings the time (any monotonic microseconds) and the lock.
 *
 * It begins full and fills at per_minute / 60 units a second. bucket_take() asks first;
 * bucket_charge() does not, and may leave it in debt, which has to be filled up before anything is
 * taken again.
 */
#ifndef QUIRE_FRONT_BUCKET_H
#define QUIRE_FRONT_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

#define BUCKET_MAX_PER_MINUTE 10000000000u /* so that nothing overflows */

struct bucket {
    uint64_t per_minute; /* 0: there is no limit; everything below then succeeds at once */
    int64_t level;       /* in 60-millionths of a unit: what 1 a minute fills in a microsecond */
    uint64_t at_us;      /* when level was true */
};

void bucket_init(struct bucket *b, uint64_t per_minute, uint64_t now_us);
/* Another limit; what was used stays used. */
void bucket_resize(struct bucket *b, uint64_t per_minute, uint64_t now_us);

/* Takes n units if they are there. More than a full bucket holds is taken from a full one, and
 * leaves a debt: else it could never be had. */
bool bucket_take(struct bucket *b, uint64_t n, uint64_t now_us);
void bucket_charge(struct bucket *b, uint64_t n, uint64_t now_us);

/* Whole units that are there; 0 in debt. */
uint64_t bucket_remaining(const struct bucket *b, uint64_t now_us);
/* Until bucket_take(n) succeeds if nobody else takes any, rounded up; 0: now. */
uint64_t bucket_wait_us(const struct bucket *b, uint64_t n, uint64_t now_us);
/* Until it is full. */
uint64_t bucket_reset_us(const struct bucket *b, uint64_t now_us);

#endif
