/* One model of the front end: its names and text, its engine, its running requests.
 *
 * It is added to a front (front_add_model()) and freed with it. Private to server/front. Loop's thread; threads of the
 * text pool see only a model's configuration and facts (model_list.h).
 */
#ifndef QUIRE_FRONT_SERVED_MODEL_H
#define QUIRE_FRONT_SERVED_MODEL_H

#include "server/cache/response_cache.h"
#include "server/front/front_model.h"
#include "server/front/model_list.h"
#include "server/front/observe/metrics.h"
#include "server/front/observe/prefix_watch.h"
#include "server/front/observe/timing.h"
#include "server/link/upstream.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct turns;
struct generation;
struct command;
struct pin;
struct vectors;
struct embedding;

struct served_model {
    TAILQ_ENTRY(served_model) link;
    struct front *front;
    const struct model_config *config;
    const struct model_facts *facts; /* from the last engine that was ready; requests hold their own */

    struct upstream *upstream;    /* its engine */
    struct completion_source source; /* for generations and pins */

    struct response_cache *cache; /* in front of the engine; NULL: off */
    struct cache_price *price;    /* NULL: not configured */
    bool share_answers;           /* between all tenants */
    struct turns *turns;          /* prompts that wait to be submitted */
    /* background: counts requests with background priority, which alerts should ignore */
    struct metrics *counts, *background;
    /* the last statistics of its engine, for a model other than the first; NULL: not received */
    struct wire_stats *told;
    struct blocker_names *blockers;
    struct prefix_watch *prefixes; /* to find where prompts differ */
    TAILQ_HEAD(, generation) generations;
    TAILQ_HEAD(, command) commands; /* in the order in which the engine answers them */
    TAILQ_HEAD(, pin) pins;
    TAILQ_HEAD(, vectors) vectors;
    TAILQ_HEAD(, embedding) embeddings;
};

/* Ends its requests with this error. */
void served_model_end_requests(struct served_model *m, const struct api_error *e);
/* Call it after the last request ended. NULL is allowed. */
void served_model_free(struct served_model *m);
/* Its configuration and facts in the front's current list. */
const struct model_view *served_model_view(const struct served_model *m);

#endif
