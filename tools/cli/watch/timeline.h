/* A picture of what an engine does, for chrome://tracing and ui.perfetto.dev: --trace-file PATH.
 *
 * A JSON array of trace events (times in microseconds from the file's beginning):
 *   process "engine": a track of steps, each with its tokens, rows, drafts and budget, and an instant before a step where it
 *     was decided how many drafts that are worth it; counters of running and waiting sequences and of KV blocks in use
 *   process "requests": a track for every choice, with slices queued, prefill, recompute, decode and verify (a row with
 *     drafts: how many there were and how many were right), and instants where it was preempted or refused, and where
 *     its drafts began and ended to come from the host
 *
 * Events are gathered in a buffer of 1 MiB and leave at step boundaries, by one write(2) each, at most every 100 ms
 * or when 64 KiB are there. What does not fit is left out, and the log says how much; the engine never waits for more
 * than that write. Events leave whole, so after kill -9 only the closing bracket is missing, which both viewers
 * forgive. The functions of the watch run on the engine's thread; nothing is allocated in a step.
 */
#ifndef QUIRE_TOOLS_WATCH_TIMELINE_H
#define QUIRE_TOOLS_WATCH_TIMELINE_H

#include "engine/watch.h"

struct timeline;

/* Makes the file, or empties it. */
int timeline_open(const char *path, struct timeline **out, struct quire_error *err);
/* Valid until timeline_close(). For one engine. */
const struct engine_watch *timeline_watch(struct timeline *t);
/* After engine_close(). NULL is fine. */
void timeline_close(struct timeline *t);

#endif
