/* A statistics line in the log every ten seconds while an engine has requests, as in vLLM, and one more at the end.
 * Loop's thread. */
#ifndef QUIRE_APP_WATCH_LOG_STATS_H
#define QUIRE_APP_WATCH_LOG_STATS_H

#include "app/command/cli.h"
#include "base/status.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

struct engine;
struct log_stats;

#define LOG_STATS_EVERY_MS 10000u

/* engine is borrowed until log_stats_end(). */
int log_stats_begin(struct event_base *base, const struct engine *engine, uint32_t every_ms, struct log_stats **out,
                    struct quire_error *err);
void log_stats_end(struct log_stats *stats); /* NULL is allowed */

/* --disable-log-stats */
struct cli_option log_stats_option(bool *disabled);

#endif
