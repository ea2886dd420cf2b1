/* What a server's counters say of speculation, read from its /metrics before and after a load: vLLM's names, which
 * others have too. The server is not trusted. No global state; any thread on its own values.
 */
#ifndef QUIRE_TOOLS_BENCH_DRAFTS_H
#define QUIRE_TOOLS_BENCH_DRAFTS_H

#include <stdbool.h>
#include <stddef.h>

#define BENCH_MAX_PLACES 64u

struct bench_drafts { /* zeroed: nothing is known */
    bool known;
    double n_drafts, n_draft_tokens, n_accepted; /* rows of steps, their drafts, those that were right */
    size_t n_places;
    double accepted_at[BENCH_MAX_PLACES]; /* [n_places] rows whose draft of this place was right */
};

/* Prometheus' text; samples of several engines are added up. Nothing is known where a counter is missing, or is none. */
void bench_drafts_read(const char *text, size_t n, struct bench_drafts *out);
/* What came between the two. Nothing is known where one was not, or the server began anew. */
struct bench_drafts bench_drafts_between(const struct bench_drafts *before, const struct bench_drafts *after);

#endif
