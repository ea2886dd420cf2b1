#include "server/gateway/experiment/trial.h"

#include <stdlib.h>
#include <string.h>

#define MOST INT64_MAX /* readers of JSON take no more */

/* ---- memory --------------------------------------------------------------------------------- */

struct trial *trial_of_arms(uint32_t n_arms)
{
    struct trial *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->n_holders = 1;
    t->n_arms = n_arms;
    t->arms = calloc(n_arms, sizeof *t->arms);
    if (t->arms)
        return t;
    free(t);
    return NULL;
}

struct trial *trial_new(const struct gateway_config *config, uint32_t model)
{
    const struct gateway_experiment *e = config->models[model].route.experiment;
    struct trial *t = trial_of_arms(e->n_arms);
    if (!t)
        return NULL;
    variables_run(config, model, t->run);
    for (uint32_t i = 0; i < e->n_arms; i++) {
        t->arms[i].name = strdup(e->arms[i].name);
        if (!t->arms[i].name) {
            trial_release(t);
            return NULL;
        }
    }
    return t;
}

struct trial *trial_hold(struct trial *t)
{
    t->n_holders++;
    return t;
}

void trial_release(struct trial *t)
{
    if (!t || --t->n_holders > 0)
        return;
    for (uint32_t i = 0; i < t->n_arms; i++)
        free(t->arms[i].name);
    free(t->arms);
    free(t);
}

/* ---- counting ------------------------------------------------------------------------------- */

static uint64_t add(uint64_t a, uint64_t b)
{
    return b < (uint64_t)MOST - a ? a + b : (uint64_t)MOST;
}

static void count(struct trial_cell *c, uint64_t value)
{
    c->n = add(c->n, 1);
    c->sum = add(c->sum, value);
}

void trial_add(struct trial *t, uint32_t arm, const struct trial_request *r, int64_t now_s)
{
    struct trial_arm *a = &t->arms[arm];
    if (t->since_s == 0)
        t->since_s = now_s;
    a->n_requests = add(a->n_requests, 1);
    for (int i = 0; i < GATEWAY_N_METRICS; i++) {
        struct trial_sums *sums = &a->metrics[i];
        const trial_u128 square = (trial_u128)r->values[i] * r->values[i];
        if (!r->has[i])
            continue;
        count(&sums->all, r->values[i]);
        count(&sums->buckets[r->bucket % ASSIGN_BUCKETS], r->values[i]);
        sums->squares = square < ~(trial_u128)0 - sums->squares ? sums->squares + square : ~(trial_u128)0;
    }
}

uint64_t trial_requests(const struct trial *t)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < t->n_arms; i++)
        n = add(n, t->arms[i].n_requests);
    return n;
}

bool trial_read(const struct trial_outcome *o, uint32_t bucket, struct trial_request *out)
{
    const bool is_gone = o->status == 0, is_error = o->status >= 500 || o->status == 429;
    const bool is_ok = !is_gone && o->status < 400;
    *out = (struct trial_request){.bucket = bucket};
    if (!is_gone && !is_error && !is_ok)
        return false;
    const struct {
        bool has;
        uint64_t value;
    } rows[GATEWAY_N_METRICS] = {
        [GATEWAY_ERRORS] = {true, is_error},
        [GATEWAY_CANCELLED] = {true, is_gone},
        [GATEWAY_TTFT] = {is_ok && o->ttft_us > 0, o->ttft_us},
        [GATEWAY_LATENCY] = {is_ok, o->total_us},
        [GATEWAY_OUTPUT_TOKENS] = {is_ok, o->output},
        [GATEWAY_CACHED_TOKENS] = {is_ok, o->cached_input},
        [GATEWAY_CACHE_HITS] = {is_ok, o->from_cache},
        [GATEWAY_COST] = {is_ok, o->cost},
    };
    for (int i = 0; i < GATEWAY_N_METRICS; i++) {
        out->has[i] = rows[i].has;
        out->values[i] = rows[i].has ? rows[i].value : 0;
    }
    return true;
}

void trial_squares_text(trial_u128 n, char out[TRIAL_SQUARES_BYTES])
{
    char digits[TRIAL_SQUARES_BYTES];
    size_t i = sizeof digits;
    digits[--i] = '\0';
    do {
        digits[--i] = (char)('0' + (int)(n % 10));
        n /= 10;
    } while (n > 0);
    memcpy(out, digits + i, sizeof digits - i);
}
