/* The progress check: whether a rank that others wait for is making progress. Ranks, on one host or on several, use it
 * to be patient with each other. Pure; any thread on its own struct. */
#ifndef QUIRE_PARALLEL_PROGRESS_H
#define QUIRE_PARALLEL_PROGRESS_H

#include "base/process.h"

/* A computing thread uses more than 1/50 of its time; a waiting thread that wakes up to look uses 1/1000. */
#define PROGRESS_SHARE 50

/* While weights are loaded, the time-out is long, because a slow disk takes its time. A rank that has used no CPU for
 * this long, got no page from a disk and waited for none, hangs. */
#define PROGRESS_LOADING_MS 60000u

struct progress {
    uint64_t who; /* the rank that is waited for */
    uint64_t work_ns; /* from struct quire_process_look, at the last progress */
    uint64_t idle_ns; /* time waited for it since then */
};

/* Looks again after passed_ns. idle_ns grows, or restarts if another rank is waited for or the rank made progress. */
static inline void progress_look(struct progress *w, uint64_t who, const struct quire_process_look *look,
                                 uint64_t passed_ns)
{
    w->idle_ns += passed_ns;
    if (who != w->who || look->is_at_disk || look->work_ns > w->work_ns + w->idle_ns / PROGRESS_SHARE)
        *w = (struct progress){.who = who, .work_ns = look->work_ns};
}

#endif
