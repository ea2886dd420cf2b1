#include "server/front/tenant/limits.h"

#include "server/http/http.h"

#include <inttypes.h>
#include <stdio.h>

#define RETRY_MS 1000 /* if no bucket determines the time */

void limits_time(uint64_t us, char out[LIMITS_TIME_BYTES])
{
    uint64_t ms = us / 1000 + (us % 1000 > 0), minutes = ms / 60000;
    int n = 0;
    if (ms < 1000) {
        snprintf(out, LIMITS_TIME_BYTES, "%" PRIu64 "ms", ms);
        return;
    }
    if (minutes > 0)
        n = snprintf(out, LIMITS_TIME_BYTES, "%" PRIu64 "m", minutes);
    snprintf(out + n, LIMITS_TIME_BYTES - (size_t)n, "%gs", (double)(ms % 60000) / 1000);
}

/* Fills in a 429 with the time to retry. */
static bool refuse(struct tenant *t, struct api_error *e, uint64_t wait_us)
{
    uint64_t ms = wait_us / 1000 + (wait_us % 1000 > 0);
    t->n_limited++;
    e->retry_ms = ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
    return false;
}

bool limits_begin(struct tenant *t, uint64_t now_us, struct api_error *e)
{
    char wait[LIMITS_TIME_BYTES];
    if (t->max_concurrent > 0 && t->n_concurrent >= t->max_concurrent) {
        api_fail(e, 429, NULL, "rate_limit_exceeded", "this key's limit of %u requests at once is reached",
                 t->max_concurrent);
        return refuse(t, e, RETRY_MS * UINT64_C(1000));
    }
    if (!bucket_take(&t->requests, 1, now_us)) {
        uint64_t us = bucket_wait_us(&t->requests, 1, now_us);
        limits_time(us, wait);
        api_fail(e, 429, NULL, "rate_limit_exceeded",
                 "this key's %" PRIu64 " requests a minute are used up; try again in %s", t->requests_per_minute, wait);
        return refuse(t, e, us);
    }
    t->n_concurrent++;
    return true;
}

bool limits_prompt(struct tenant *t, uint64_t n_tokens, uint64_t now_us, struct api_error *e)
{
    char wait[LIMITS_TIME_BYTES];
    if (bucket_take(&t->tokens, n_tokens, now_us))
        return true;
    uint64_t us = bucket_wait_us(&t->tokens, n_tokens, now_us);
    limits_time(us, wait);
    api_fail(e, 429, NULL, "rate_limit_exceeded",
             "this key's %" PRIu64 " tokens a minute are used up (the prompt has %" PRIu64 ", and "
             "%" PRIu64 " are left); try again in %s",
             t->tokens_per_minute, n_tokens, bucket_remaining(&t->tokens, now_us), wait);
    return refuse(t, e, us);
}

bool limits_queue(struct tenant *t, uint32_t n, struct api_error *e)
{
    if (t->max_queued > 0 && n > t->max_queued)
        return api_fail(e, 400, NULL, "invalid_value",
                        "this key may have %u choices waiting for their first token, the request has %u: send fewer "
                        "prompts, or a smaller n, at once",
                        t->max_queued, n);
    if (t->max_queued > 0 && n > t->max_queued - (t->n_queued < t->max_queued ? t->n_queued : t->max_queued)) {
        api_fail(e, 429, NULL, "rate_limit_exceeded",
                 "this key's share of the queue is full: %u choices wait for their first token, and there may be %u",
                 t->n_queued, t->max_queued);
        return refuse(t, e, RETRY_MS * UINT64_C(1000));
    }
    t->n_queued += n;
    return true;
}

void limits_dequeue(struct tenant *t, uint32_t n)
{
    t->n_queued -= n;
}

void limits_token(struct tenant *t, uint64_t now_us)
{
    bucket_charge(&t->tokens, 1, now_us);
}

void limits_end(struct tenant *t)
{
    t->n_concurrent--;
}

static void put_headers(struct http_exchange *x, const char *what, const struct bucket *b, uint64_t now_us)
{
    char name[48], value[LIMITS_TIME_BYTES];
    if (b->per_minute == 0)
        return;
    snprintf(name, sizeof name, "x-ratelimit-limit-%s", what);
    snprintf(value, sizeof value, "%" PRIu64, b->per_minute);
    http_add_header(x, name, value);
    snprintf(name, sizeof name, "x-ratelimit-remaining-%s", what);
    snprintf(value, sizeof value, "%" PRIu64, bucket_remaining(b, now_us));
    http_add_header(x, name, value);
    snprintf(name, sizeof name, "x-ratelimit-reset-%s", what);
    limits_time(bucket_reset_us(b, now_us), value);
    http_add_header(x, name, value);
}

void limits_headers(const struct tenant *t, uint64_t now_us, struct http_exchange *x)
{
    put_headers(x, "requests", &t->requests, now_us);
    put_headers(x, "tokens", &t->tokens, now_us);
}
