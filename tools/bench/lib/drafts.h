/* A server's counters of speculation, read from its /metrics before and after a load, with vLLM's names, which other
 * servers use, too. The server is not trusted. No global state; any thread on its own values. */
#ifndef QUIRE_TOOLS_BENCH_DRAFTS_H
#define QUIRE_TOOLS_BENCH_DRAFTS_H

#include <stdbool.h>
#include <stddef.h>

#define BENCH_MAX_PLACES 64u

struct bench_drafts { /* zeroed: unknown */
    bool known;
    double n_drafts, n_draft_tokens, n_accepted; /* rows of steps, their drafts, the accepted drafts */
    size_t n_places;
    double accepted_at[BENCH_MAX_PLACES]; /* [n_places] rows whose draft at this position was accepted */
};

/* Prometheus' text; samples of several engines are added. Unknown if a counter is missing or invalid. */
void bench_drafts_read(const char *text, size_t n, struct bench_drafts *out);
/* The difference of the two. Unknown if one of them is, or if the server restarted. */
struct bench_drafts bench_drafts_between(const struct bench_drafts *before, const struct bench_drafts *after);

#endif
