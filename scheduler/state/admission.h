/* What admission remembers from one plan to the next. admit.c owns it; the files that change the queue or the batch keep
 * it up to date. */
#ifndef QUIRE_SCHEDULER_STATE_ADMISSION_H
#define QUIRE_SCHEDULER_STATE_ADMISSION_H

#include "memory/kv_cache.h"
#include "scheduler/state/batches.h"

#include <stdbool.h>
#include <stdint.h>

/* Blocks of each group that a sequence took over at admission and that other sequences hold, too. In a windowed group
 * each holder releases them and then needs one of its own. */
struct seq_shared {
    uint32_t n[KV_MAX_GROUPS];
};

struct sched_admission {
    /* The head of the queue that did not fit, and the space at that time. */
    uint64_t blocked_order; /* 0 = none */
    int64_t blocked_slack[KV_MAX_GROUPS];
    uint32_t rerank_cursor; /* names, round-robin */
    bool no_more; /* nothing follows: incomplete static batches start */
    uint32_t batch_left; /* sequences that may still join the running batch */
    struct sched_batches batches;
    struct seq_shared *shared; /* [names->n], owned; NULL without reservation (SCHED_PREEMPT_NEVER) */
};

#endif
