/* The state that the files of server/bulk share. Only server/bulk includes it. Loop's thread, except where noted. */
#ifndef QUIRE_BULK_INTERNAL_H
#define QUIRE_BULK_INTERNAL_H

#include "server/bulk/bulk.h"
#include "server/bulk/disk.h"
#include "server/bulk/store/store.h"
#include "server/http/more_routes.h"

#include <sys/queue.h>

#define BULK_MAX_LINES 1000000u /* of a batch */

struct active;
struct notice;
struct remote;
TAILQ_HEAD(active_list, active);

struct bulk {
    struct event_base *base;
    const struct bulk_settings *settings;
    struct tenants *tenants;
    struct bulk_store *store; /* NULL: no directory. Used on the short lane only, once the threads run */
    struct bulk_disk *disk;
    struct remote *remote;
    struct notice *notice; /* NULL: none */
    char *socket;          /* NULL: not started */
    struct active_list actives; /* batches that have not ended, the oldest first */
    struct event *tick;         /* once a second */
    uint32_t n_ticks;
    bool stopping;
    bool looks_for_space; /* space.h */
    struct more_routes routes;
    uint64_t n_lines[BULK_OUTCOMES];  /* lines of batches that have left `actives`, since the start */
    uint64_t n_ended[BULK_N_STATES];  /* batches, since the start */
};

/* ---- runner.c ---- */
/* Takes over a batch whose row is in the store. */
int runner_add(struct bulk *b, struct bulk_batch *batch, struct quire_error *err);
/* Updates a batch of the store with the state of its run. */
void runner_overlay(const struct bulk *b, struct bulk_batch *batch);
/* Begins to cancel a batch of this tenant. False: it is not one that runs or waits. */
bool runner_cancel(struct bulk *b, const char *tenant, const char *id);
uint32_t runner_n_active(const struct bulk *b, const char *tenant);
/* Lines with results of the active batches since the start of the process, by outcome; added to out. */
void runner_count(const struct bulk *b, uint64_t out[BULK_OUTCOMES], uint64_t n_batches[BULK_N_STATES]);
/* Once a second: expiry, retries. */
void runner_tick(struct bulk *b);
/* Cancels what runs and writes its results. Returns the number of active batches. */
uint32_t runner_stop(struct bulk *b);
void runner_free(struct bulk *b);

#endif
