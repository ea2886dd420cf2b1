#include "server/bulk/space.h"

#include "base/log.h"
#include "server/bulk/run/results.h"
#include "server/bulk/runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct taken {
    char id[BULK_ID_BYTES], tenant[BULK_TENANT_BYTES];
    uint64_t n_bytes;
    bool lacks_space;
    struct quire_error why;
};

struct look {
    struct bulk_job job;
    struct bulk *bulk;
    size_t n;
    struct taken all[];
};

static void look_work(struct bulk_job *job)
{
    struct look *l = (struct look *)job;
    struct bulk_store *s = l->bulk->store;
    for (size_t i = 0; i < l->n; i++)
        bulk_store_hold(s, l->all[i].tenant, l->all[i].id, l->all[i].n_bytes, &l->all[i].why);
    for (size_t i = 0; i < l->n; i++)
        l->all[i].lacks_space = bulk_store_has_space(s, l->all[i].tenant, 0, &l->all[i].why) == QUIRE_EXHAUSTED;
}

static void apply(struct active *a, const struct taken *t)
{
    if (t->lacks_space && !a->lacks_space)
        quire_log(QUIRE_LOG_WARN, "batch", "%s of %s waits for space: %s", t->id, t->tenant, t->why.text);
    a->lacks_space = t->lacks_space;
}

static void look_done(struct bulk_job *job)
{
    struct look *l = (struct look *)job;
    struct active *a;
    l->bulk->looks_for_space = false;
    TAILQ_FOREACH(a, &l->bulk->actives, link)
    {
        for (size_t i = 0; i < l->n; i++)
            if (strcmp(l->all[i].id, a->batch->id) == 0)
                apply(a, &l->all[i]);
    }
    free(l);
}

void space_look(struct bulk *b)
{
    const struct active *a;
    size_t n = 0;
    TAILQ_FOREACH(a, &b->actives, link)
    {
        n += a->phase == ACTIVE_RUNNING;
    }
    struct look *l = n > 0 && !b->looks_for_space ? calloc(1, sizeof *l + n * sizeof *l->all) : NULL;
    if (!l)
        return;
    l->bulk = b;
    l->job = (struct bulk_job){.work = look_work, .done = look_done};
    TAILQ_FOREACH(a, &b->actives, link)
    {
        if (a->phase != ACTIVE_RUNNING)
            continue;
        struct taken *t = &l->all[l->n++];
        snprintf(t->id, sizeof t->id, "%s", a->batch->id);
        snprintf(t->tenant, sizeof t->tenant, "%s", a->batch->tenant);
        t->n_bytes = bulk_results_bytes(a->results);
    }
    b->looks_for_space = true;
    bulk_disk_do(b->disk, BULK_SHORT, &l->job);
}
