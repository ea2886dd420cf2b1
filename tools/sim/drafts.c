#include "tools/sim/drafts.h"

#include "base/encoding/number.h"
#include "tools/bench/lib/random.h"

#define STREAM_DRAFTS 202

int sim_acceptance_parse(const char *text, struct sim_acceptance *out, struct quire_error *err)
{
    double before = 1;
    *out = (struct sim_acceptance){0};
    for (const char *at = text;; at++) {
        double rate;
        if (!quire_take_number(&at, 1, &rate) || (*at != ',' && *at != '\0'))
            return quire_fail(
                err, QUIRE_INVALID,
                "'%.40s': must be a share between 0 and 1, or one share for each draft of a row, such as 0.8,0.6,0.4",
                text);
        if (rate > before)
            return quire_fail(err, QUIRE_INVALID,
                              "'%.40s': shares must not rise: a draft is accepted only if the drafts before it are",
                              text);
        if (out->n == SCHED_MAX_DRAFT)
            return quire_fail(err, QUIRE_INVALID, "'%.40s': a row has at most %u drafts", text, SCHED_MAX_DRAFT);
        out->chance[out->n++] = before > 0 ? rate / before : 0;
        before = rate;
        if (*at == '\0')
            return QUIRE_OK;
    }
}

uint32_t sim_acceptance_draw(const struct sim_acceptance *a, uint64_t seed, uint64_t request, uint32_t at,
                             uint32_t most)
{
    uint32_t n = 0;
    for (; a->n > 0 && n < most; n++) {
        uint64_t state = bench_stream(seed, STREAM_DRAFTS, request << 32 | (at + n));
        if (bench_random_unit(&state) >= a->chance[n < a->n ? n : a->n - 1])
            break;
    }
    return n;
}

struct sim_acceptance sim_acceptance_of(const struct draft_counts *c)
{
    struct sim_acceptance a = {0};
    for (; a.n < SCHED_MAX_DRAFT && c->tried[a.n] > 0; a.n++)
        a.chance[a.n] = (double)c->accepted[a.n] / (double)c->tried[a.n];
    return a;
}
