/* One model that the front end answers with: its names and text, its engine, the requests under way.
 *
 * It is added to a front (front_add_model()) and freed with it. Private to server/front. Loop's thread; threads of the text
 * pool see a model's configuration and facts only (model_list.h).
 */
#ifndef QUIRE_FRONT_SERVED_MODEL_H
#define QUIRE_FRONT_SERVED_MODEL_H

#include "server/cache/response_cache.h"
#include "server/front/front.h"
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
    const struct model_facts *facts; /* of the last engine that was ready; others hold their own */

    struct upstream *upstream;    /* its engine */
    struct completion_source source; /* what generations and pins ask */

    struct response_cache *cache; /* before the engine; NULL: none */
    struct cache_price *price;    /* NULL: nobody knows */
    bool share_answers;           /* of all tenants */
    struct turns *turns;          /* of prompts that wait to be submitted */
    struct metrics *counts, *background; /* background: of requests that give way, which alarms are not for */
    struct wire_stats *told;      /* what its engine said last, of a model that is not the first; NULL: it did not */
    struct blocker_names *blockers;
    struct prefix_watch *prefixes; /* of prompts */
    TAILQ_HEAD(, generation) generations;
    TAILQ_HEAD(, command) commands; /* in the order in which the engine answers them */
    TAILQ_HEAD(, pin) pins;
    TAILQ_HEAD(, vectors) vectors;
    TAILQ_HEAD(, embedding) embeddings;
};

/* Its requests end with this error. */
void served_model_end_requests(struct served_model *m, const struct api_error *e);
/* After the last request. NULL is fine. */
void served_model_free(struct served_model *m);
/* Its configuration and facts in the front's present list. */
const struct model_view *served_model_view(const struct served_model *m);

#endif
