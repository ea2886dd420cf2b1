/* Whether who is waited for is at work: the rule by which ranks, on one host or on several, are patient with each other. Pure. */
#ifndef QUIRE_PARALLEL_AT_WORK_H
#define QUIRE_PARALLEL_AT_WORK_H

#include "base/process.h"

/* Who computes uses more of its time than this share; who waits and looks up uses 1/1000. */
#define AT_WORK_SHARE 50

/* While weights are loaded the time-out is long, since a slow disk takes as long as it takes. Who has used no CPUs for so long, got no
 * page from a disk and waited for none, hangs. */
#define AT_WORK_LOADING_MS 60000u

struct at_work {
    uint64_t who; /* is waited for */
    uint64_t work_ns; /* of struct quire_process_look, when it was last seen at work */
    uint64_t idle_ns; /* waited for it since then */
};

/* Looks again after passed_ns: idle_ns grows, or begins anew where somebody else is waited for, or that one works. */
static inline void at_work_look(struct at_work *w, uint64_t who, const struct quire_process_look *look,
                                uint64_t passed_ns)
{
    w->idle_ns += passed_ns;
    if (who != w->who || look->is_at_disk || look->work_ns > w->work_ns + w->idle_ns / AT_WORK_SHARE)
        *w = (struct at_work){.who = who, .work_ns = look->work_ns};
}

#endif
