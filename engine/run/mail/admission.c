#include "engine/run/mail/admission.h"

#include <stdlib.h>

/* Bounds of the advice in a refusal. */
#define RETRY_MIN_MS 500u
#define RETRY_MAX_MS 60000u
#define RETRY_UNKNOWN_MS 1000u  /* before anything was measured */

/* Rates are taken over at least this much work, then averaged with the past. */
#define RATE_WINDOW_US 250000u
#define RATE_NEW_SHARE 0.3

struct admission {
    uint32_t max_choices;
    uint64_t max_tokens;
    struct admission_load waiting; /* as reported */
    struct admission_load fresh;   /* accepted, not yet drained */
    struct admission_load drained; /* drained, not yet in a report */
    uint64_t next_number;

    uint64_t window_us, window_tokens, window_finished;
    double tokens_per_second, finished_per_second; /* 0 = not known yet */
};

struct admission *admission_new(uint32_t max_choices, uint64_t max_tokens)
{
    struct admission *a = calloc(1, sizeof *a);
    if (a) {
        a->max_choices = max_choices;
        a->max_tokens = max_tokens;
    }
    return a;
}

void admission_free(struct admission *a)
{
    free(a);
}

static uint32_t retry_ms(double excess, double per_second)
{
    if (excess <= 0)
        return RETRY_MIN_MS;
    if (per_second <= 0)
        return RETRY_UNKNOWN_MS;
    double ms = excess / per_second * 1000;
    return ms < RETRY_MIN_MS ? RETRY_MIN_MS : ms > RETRY_MAX_MS ? RETRY_MAX_MS : (uint32_t)ms;
}

/* The time to come back is the time until the excess is computed, at the recent rate. */
int admission_check(const struct admission *a, struct admission_load request, uint32_t *retry_after_ms,
                    struct quire_error *err)
{
    const struct admission_load more = admission_unreported(a);
    const uint64_t choices = a->waiting.choices + more.choices, tokens = a->waiting.tokens + more.tokens;
    if (choices == 0)
        return QUIRE_OK;
    if (choices + request.choices > a->max_choices) {
        *retry_after_ms = retry_ms((double)(choices + request.choices - a->max_choices), a->finished_per_second);
        return quire_fail(err, QUIRE_EXHAUSTED, "the queue is full: %llu requests wait, %u may (--max-num-queued-reqs)",
                          (unsigned long long)choices, a->max_choices);
    }
    if (a->max_tokens && tokens + request.tokens > a->max_tokens) {
        *retry_after_ms = retry_ms((double)(tokens + request.tokens - a->max_tokens), a->tokens_per_second);
        return quire_fail(err, QUIRE_EXHAUSTED,
                          "the queue is full: %llu prompt tokens wait, %llu may"
                          " (--max-num-queued-tokens)",
                          (unsigned long long)tokens, (unsigned long long)a->max_tokens);
    }
    return QUIRE_OK;
}

static void add(struct admission_load *to, struct admission_load load)
{
    to->choices += load.choices;
    to->tokens += load.tokens;
}

void admission_accept(struct admission *a, struct admission_load request)
{
    add(&a->fresh, request);
}

void admission_drained(struct admission *a)
{
    add(&a->drained, a->fresh);
    a->fresh = (struct admission_load){0};
}

static double average(double past, double now)
{
    return past > 0 ? past + RATE_NEW_SHARE * (now - past) : now;
}

void admission_report(struct admission *a, const struct admission_report *report)
{
    a->waiting = report->waiting;
    a->drained = (struct admission_load){0};
    a->window_us += report->busy_us;
    a->window_tokens += report->n_tokens;
    a->window_finished += report->n_finished;
    if (a->window_us >= RATE_WINDOW_US) {
        double seconds = (double)a->window_us / 1e6;
        a->tokens_per_second = average(a->tokens_per_second, (double)a->window_tokens / seconds);
        a->finished_per_second = average(a->finished_per_second, (double)a->window_finished / seconds);
        a->window_us = a->window_tokens = a->window_finished = 0;
    }
}

struct admission_load admission_unreported(const struct admission *a)
{
    struct admission_load out = a->fresh;
    add(&out, a->drained);
    return out;
}

uint64_t admission_next_number(struct admission *a)
{
    return a->next_number++;
}
