#include "server/bulk/metrics.h"

#include "server/bulk/bulk_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void row(struct buffer *o, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void row(struct buffer *o, const char *format, ...)
{
    char line[256];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n > 0 && (size_t)n < sizeof line)
        buffer_append(o, line, (size_t)n);
}

void bulk_put_metrics(void *context, struct buffer *o)
{
    static const char *const outcomes[BULK_OUTCOMES] = {"succeeded", "errored", "cancelled", "expired"};
    const struct bulk *b = context;
    uint64_t lines[BULK_OUTCOMES], batches[BULK_N_STATES] = {0};
    if (!b->store)
        return;
    memcpy(lines, b->n_lines, sizeof lines);
    runner_count(b, lines, batches);
    row(o, "# HELP quire:batches Batches that have not ended, by state.\n# TYPE quire:batches gauge\n");
    for (int i = 0; i < BULK_N_STATES; i++)
        if (!bulk_state_is_last((enum bulk_state)i))
            row(o, "quire:batches{state=\"%s\"} %" PRIu64 "\n", bulk_state_names[i], batches[i]);
    row(o, "# HELP quire:batches_ended_total Batches that have ended since the start, by state.\n"
           "# TYPE quire:batches_ended_total counter\n");
    for (int i = 0; i < BULK_N_STATES; i++)
        if (bulk_state_is_last((enum bulk_state)i))
            row(o, "quire:batches_ended_total{state=\"%s\"} %" PRIu64 "\n", bulk_state_names[i], b->n_ended[i]);
    row(o, "# HELP quire:batch_lines_total Lines of batches with a result since the start, by outcome.\n"
           "# TYPE quire:batch_lines_total counter\n");
    for (int i = 0; i < BULK_OUTCOMES; i++)
        row(o, "quire:batch_lines_total{outcome=\"%s\"} %" PRIu64 "\n", outcomes[i], lines[i]);
}
