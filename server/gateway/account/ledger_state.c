#include "server/gateway/account/ledger_state.h"

#include "base/log.h"
#include "server/gateway/account/ledger_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading -------------------------------------------------------------------------------- */

bool ledger_state_load(void *context, const char *name, const void *bytes, size_t n)
{
    struct ledger *l = context;
    if (n > LEDGER_MAX_STATE || n > LEDGER_MAX_STATES - l->states.n_bytes)
        return true;
    struct ledger_state *s = calloc(1, sizeof *s + n);
    if (!s)
        return false;
    snprintf(s->name, sizeof s->name, "%s", name);
    s->n = n;
    memcpy(s->bytes, bytes, n);
    s->next = l->states.first;
    l->states.first = s;
    l->states.n_bytes += n;
    return true;
}

bool ledger_take_state(struct ledger *l, const char *name, struct buffer *out)
{
    for (struct ledger_state **at = &l->states.first; *at; at = &(*at)->next) {
        struct ledger_state *s = *at;
        if (strcmp(s->name, name) != 0)
            continue;
        *at = s->next;
        l->states.n_bytes -= s->n;
        buffer_append(out, s->bytes, s->n);
        free(s);
        return !out->failed;
    }
    return false;
}

void ledger_states_free(struct ledger *l)
{
    for (struct ledger_state *s = l->states.first, *next; s; s = next) {
        next = s->next;
        free(s);
    }
    l->states.first = NULL;
}

/* ---- writing -------------------------------------------------------------------------------- */

struct put {
    struct ledger_job job; /* first member */
    struct ledger *ledger;
    char name[PAYER_MAX_NAME + 1];
    size_t n;
    char bytes[];
};

static int work(struct ledger_db *db, struct ledger_job *job)
{
    const struct put *p = (const struct put *)job;
    return ledger_db_put_state(db, p->name, p->bytes, p->n);
}

static void done(struct ledger_job *job, int code)
{
    struct ledger *l = ((struct put *)job)->ledger;
    if (code != SQLITE_OK && !l->states.is_failure_logged)
        quire_log(QUIRE_LOG_ERROR, "gateway", "--ledger: the statistics of experiments cannot be written: %s",
                  sqlite3_errstr(code));
    l->states.is_failure_logged = code != SQLITE_OK;
    free(job);
}

void ledger_put_state(struct ledger *l, const char *name, const void *bytes, size_t n)
{
    struct put *p = l->has_file && n <= LEDGER_MAX_STATE ? malloc(sizeof *p + n) : NULL;
    if (!p)
        return;
    p->job = (struct ledger_job){.work = work, .done = done};
    p->ledger = l;
    snprintf(p->name, sizeof p->name, "%s", name);
    p->n = n;
    memcpy(p->bytes, bytes, n);
    ledger_writer_run(l->writer, &p->job);
}
