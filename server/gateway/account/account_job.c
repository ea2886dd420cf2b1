#include "server/gateway/account/account_job.h"

#include <stdlib.h>

static void on_gone(void *context)
{
    ((struct account_job *)context)->x = NULL;
}

struct account_job *account_job_new(struct ledger *l, struct http_exchange *x)
{
    struct api_error e;
    struct account_job *j = calloc(1, sizeof *j);
    if (!j) {
        api_no_memory(&e);
        api_error_reply(x, &e);
        return NULL;
    }
    j->ledger = l;
    j->x = x;
    return j;
}

void account_job_run(struct account_job *j, int (*work)(struct ledger_db *db, struct ledger_job *job),
                     void (*done)(struct ledger_job *job, int code))
{
    j->job.work = work;
    j->job.done = done;
    http_on_gone(j->x, on_gone, j);
    ledger_writer_run(j->ledger->writer, &j->job);
}

void account_job_free(struct account_job *j)
{
    buffer_free(&j->reply);
    explicit_bzero(j->text, sizeof j->text);
    free(j);
}

bool account_job_succeeded(struct account_job *j, int code)
{
    struct api_error e;
    if (code == SQLITE_OK)
        return true;
    api_fail(&e, 503, NULL, "ledger_unavailable", "the ledger's file cannot be read or written: %s",
             sqlite3_errstr(code));
    e.retry_ms = 1000;
    if (j->x)
        api_error_reply(j->x, &e);
    return false;
}
