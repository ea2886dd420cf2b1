/* A timeline of an engine for chrome://tracing and ui.perfetto.dev: --trace-file PATH.
 *
 * A JSON array of trace events, with times in microseconds from the file's beginning:
 *   process "engine": a track of steps, each with its tokens, rows, drafts and budget; an instant before a step with the
 *     decision on the number of drafts; counters of running and waiting sequences and of KV blocks in use
 *   process "requests": a track for every choice, with slices queued, prefill, recompute, decode and verify (a row with
 *     drafts: their number and the number of accepted ones), and instants for its preemption or rejection and for the
 *     start and end of drafts from the host
 *
 * Events are collected in a buffer of 1 MiB and written at step boundaries, with one write(2) each, at most every 100
 * ms or when 64 KiB are full. Events that do not fit are dropped, and the log reports how many; the engine never waits
 * for more than that write. After kill -9 the closing bracket is missing, which both viewers accept; the next start
 * adds it (timeline_keep.h). The functions of the watch run on the engine's thread; nothing is allocated in a step.
 */
#ifndef QUIRE_APP_WATCH_TIMELINE_H
#define QUIRE_APP_WATCH_TIMELINE_H

#include "engine/watch.h"

struct timeline;

/* Creates the file, or empties it. One that was not closed is kept under another name. */
int timeline_open(const char *path, struct timeline **out, struct quire_error *err);
/* Valid until timeline_close(). For one engine. */
const struct engine_watch *timeline_watch(struct timeline *t);
/* After engine_close(). NULL is allowed. */
void timeline_close(struct timeline *t);

#endif
