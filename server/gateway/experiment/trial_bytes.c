#include "server/gateway/experiment/trial_bytes.h"

#include <string.h>

#define MARK "QTRIAL1\n"
#define N_MARK 8
#define N_RUN (VARIABLES_RUN_BYTES - 1)
#define N_HEAD (N_MARK + N_RUN + 8 + 8)
#define N_SUMS ((size_t)4 + 2 * ASSIGN_BUCKETS)                  /* numbers of a metric */
#define N_ARM ((size_t)8 * (1 + GATEWAY_N_METRICS * N_SUMS))     /* bytes of an arm */

/* ---- writing -------------------------------------------------------------------------------- */

static void put(struct buffer *o, uint64_t n)
{
    uint8_t bytes[8];
    for (size_t i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(n >> (8 * i));
    buffer_append(o, bytes, sizeof bytes);
}

static void put_sums(struct buffer *o, const struct trial_sums *s)
{
    put(o, s->all.n);
    put(o, s->all.sum);
    put(o, (uint64_t)s->squares);
    put(o, (uint64_t)(s->squares >> 64));
    for (size_t b = 0; b < ASSIGN_BUCKETS; b++) {
        put(o, s->buckets[b].n);
        put(o, s->buckets[b].sum);
    }
}

void trial_to_bytes(const struct trial *t, struct buffer *out)
{
    buffer_append(out, MARK, N_MARK);
    buffer_append(out, t->run, N_RUN);
    put(out, (uint64_t)t->since_s);
    put(out, t->n_arms);
    for (uint32_t i = 0; i < t->n_arms; i++) {
        put(out, t->arms[i].n_requests);
        for (int m = 0; m < GATEWAY_N_METRICS; m++)
            put_sums(out, &t->arms[i].metrics[m]);
    }
}

/* ---- reading -------------------------------------------------------------------------------- */

static uint64_t take(const uint8_t **at)
{
    uint64_t n = 0;
    for (size_t i = 0; i < 8; i++)
        n |= (uint64_t)(*at)[i] << (8 * i);
    *at += 8;
    return n;
}

/* Returns false if the buckets are not those of the sums, or a number is none that was counted. */
static bool take_sums(const uint8_t **at, struct trial_sums *s)
{
    uint64_t n = 0;
    s->all.n = take(at);
    s->all.sum = take(at);
    s->squares = take(at);
    s->squares |= (trial_u128)take(at) << 64;
    bool is_good = s->all.n <= INT64_MAX && s->all.sum <= INT64_MAX;
    for (size_t b = 0; b < ASSIGN_BUCKETS; b++) {
        struct trial_cell *c = &s->buckets[b];
        c->n = take(at);
        c->sum = take(at);
        is_good &= c->n <= s->all.n - n && c->sum <= INT64_MAX;
        n += is_good ? c->n : 0;
    }
    return is_good && n == s->all.n;
}

bool trial_from_bytes(struct trial *t, const void *bytes, size_t n)
{
    const uint8_t *at = bytes;
    if (n != N_HEAD + N_ARM * t->n_arms || memcmp(at, MARK, N_MARK) != 0 || memcmp(at + N_MARK, t->run, N_RUN) != 0)
        return false;
    at += N_MARK + N_RUN;
    const uint64_t since = take(&at);
    struct trial *from = take(&at) == t->n_arms && since <= INT64_MAX ? trial_of_arms(t->n_arms) : NULL;
    bool is_good = from != NULL;
    for (uint32_t i = 0; i < t->n_arms && is_good; i++) {
        from->arms[i].n_requests = take(&at);
        is_good = from->arms[i].n_requests <= INT64_MAX;
        for (int m = 0; m < GATEWAY_N_METRICS && is_good; m++)
            is_good = take_sums(&at, &from->arms[i].metrics[m]);
    }
    for (uint32_t i = 0; i < t->n_arms && is_good; i++) {
        t->arms[i].n_requests = from->arms[i].n_requests;
        memcpy(t->arms[i].metrics, from->arms[i].metrics, sizeof t->arms[i].metrics);
    }
    if (is_good)
        t->since_s = (int64_t)since;
    trial_release(from);
    return is_good;
}
