/* A completion stream as a server sends it: the first byte is the size of the pieces into which the network cuts it.
 * The events must not depend on the cut. */
#include "fuzz.h"

#include "tools/bench/lib/event.h"
#include "tools/bench/lib/sse.h"

#include <stdlib.h>

struct heard {
    uint64_t hash;
    size_t n_events;
};

static void hear(void *context, const char *data, size_t n)
{
    struct heard *h = context;
    struct bench_event e;
    struct quire_error err;
    char shown[32];
    if (data[n] != 0)
        abort();
    for (size_t i = 0; i < n; i++)
        h->hash = (h->hash ^ (uint8_t)data[i]) * 0x100000001b3u;
    h->n_events++;
    if (bench_event_read(data, n, &e, &err) == QUIRE_OK && e.has_token && !e.has_choice)
        abort();
    bench_error_text(data, n, shown, sizeof shown);
    for (const char *c = shown; *c; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f)
            abort();
}

static struct heard feed(const uint8_t *data, size_t n, size_t step)
{
    struct bench_sse s = {0};
    struct heard h = {0};
    struct quire_error err;
    for (size_t at = 0; at < n; at += step)
        if (bench_sse_push(&s, (const char *)data + at, n - at < step ? n - at : step, hear, &h, &err) != QUIRE_OK)
            abort(); /* inputs are smaller than BENCH_SSE_MAX_BYTES */
    bench_sse_free(&s);
    return h;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 2)
        return 0;
    struct heard cut = feed(data + 1, n - 1, data[0] % 16 + 1), whole = feed(data + 1, n - 1, n);
    if (cut.hash != whole.hash || cut.n_events != whole.n_events)
        abort();
    return 0;
}
