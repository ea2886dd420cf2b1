/* The thread that works on a ledger's file. The loop adds usage, which is summed up until the thread writes it, and jobs,
 * which run in order after everything that was added before them.
 *
 * The thread waits WRITER_DELAY_MS after the first addition, so that it writes at most 20 times a second however many
 * requests there are; a process that is killed loses no more than that. If the file cannot be written, usage is kept and
 * tried again every second; it is bounded, because equal keys, models and days are one sum.
 */
#ifndef QUIRE_GATEWAY_LEDGER_WRITER_H
#define QUIRE_GATEWAY_LEDGER_WRITER_H

#include "server/gateway/account/ledger_db.h"

#include <event2/event.h>

#define WRITER_DELAY_MS 50

struct ledger_writer;

struct ledger_job {
    /* On the thread. Returns a code of SQLite's. */
    int (*work)(struct ledger_db *db, struct ledger_job *job);
    /* On the loop, later, exactly once; also when the writer stops. It may free the job. code: of work. */
    void (*done)(struct ledger_job *job, int code);
    int code;
    struct ledger_job *next;
};

/* Takes over db. */
int ledger_writer_start(struct event_base *base, struct ledger_db *db, struct ledger_writer **out,
                        struct quire_error *err);
/* Writes what is pending, ends the thread, and calls `done` of the jobs that are left. NULL is allowed. */
void ledger_writer_stop(struct ledger_writer *w);

/* row's organisation, tenant, key and layer must live as long as the writer; the model is copied. Returns false if memory
 * is exhausted: the usage is lost. */
bool ledger_writer_add(struct ledger_writer *w, const struct ledger_usage_row *row);
void ledger_writer_run(struct ledger_writer *w, struct ledger_job *job);

#endif
