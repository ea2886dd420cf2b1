/* A server's reply at /metrics, from which the counters of speculation are read: the numbers are valid for any
 * reply. */
#include "fuzz.h"

#include "tools/bench/lib/drafts.h"

#include <stdlib.h>

static void must(int holds)
{
    if (!holds)
        abort();
}

static void must_count(double value)
{
    must(value >= 0 && value <= 9e15);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    /* A heap block of exactly this size, so that a read past its end is detected. */
    char *text = malloc(n + (n == 0));
    struct bench_drafts d;
    if (!text)
        return 0;
    for (size_t i = 0; i < n; i++)
        text[i] = (char)data[i];
    bench_drafts_read(text, n, &d);
    must_count(d.n_drafts);
    must_count(d.n_draft_tokens);
    must_count(d.n_accepted);
    must(d.n_places <= BENCH_MAX_PLACES && (d.known || (d.n_drafts == 0 && d.n_places == 0)));
    struct bench_drafts none = bench_drafts_between(&d, &d);
    must(none.known == d.known && none.n_drafts == 0 && none.n_draft_tokens == 0 && none.n_accepted == 0);
    free(text);
    return 0;
}
