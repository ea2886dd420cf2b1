/* The models that a front serves, and the engine of each. The loop's thread, as for front.h.
 *
 * The front handles no tensors: the facts about a model come from the engine's HELLO and from its struct quire_text.
 */
#ifndef QUIRE_FRONT_FRONT_MODEL_H
#define QUIRE_FRONT_FRONT_MODEL_H

#include "base/status.h"
#include "request/spec.h"
#include "server/front/front.h"
#include "server/front/model_about.h"
#include "server/link/embedder.h"
#include "server/link/upstream.h"
#include "text/quire_chat.h"
#include "text/quire_text.h"

#include <stdbool.h>
#include <stddef.h>

struct served_model;
struct response_cache;
struct cache_price;
struct quire_grammars;

struct served_model_options {
    const char *const *names; /* at least one; the first is for requests without a name */
    size_t n_names;
    const char *root; /* "root" on /v1/models: path or name of the loaded model */
    struct model_about about;
    const struct quire_text *text; /* outlives the front */
    struct quire_grammars *grammars; /* of this text; NULL: requests with a grammar are rejected; outlives the front */
    bool flexible_whitespace; /* JSON answers may have white space between tokens, unless a request says otherwise */
    enum quire_specials specials_in_messages; /* how special tokens in the text of messages are treated */
    bool keeps_billing_header; /* keeps it in the system prompt of /v1/messages: http-api.md, section 17 */
    const char *tool_call_parser; /* a name of tools/tool_parser.h; NULL or "auto": detected in the chat template */
    const char *reasoning_parser; /* a name of tools/reasoning_parser.h; NULL or "auto" as well */
    struct sampling_defaults sampling; /* from the checkpoint */
    bool for_vectors; /* it answers the routes for vectors and scores, and the first model the others */
    /* NULL: off; outlives the front, which puts it in front of each engine that becomes ready */
    struct response_cache *cache;
    const struct cache_price *price; /* NULL: not configured */
    bool share_answers; /* cached responses are served to every tenant */
    bool compares; /* the cache compares questions (response_cache_compare()): requests include them */
};

/* Adds a model; strings are copied. /v1/models lists every model. Until its engine is set and ready, /health and all
 * routes that need the engine return 503. Call it before the loop runs. The front frees the model. */
int front_add_model(struct front *front, const struct served_model_options *options, struct served_model **out,
                    struct quire_error *err);

/* Returns the upstream of its engine (server/link/upstream.h). The caller of front_add_model() sets the engine's
 * identity and address there, and receives its events. The front closes it. */
struct upstream *served_model_upstream(struct served_model *model);

/* The source to which requests are submitted: the engine, or the cache in front of it, once it is ready, or the last
 * source that was set. A component that answers in front of it (a cache, a router) gets this source, sets its own and
 * forwards requests to this one. Both are valid until the engine is lost or replaced. Set it only while no request is
 * live, for example when the engine becomes ready. */
struct completion_source served_model_source(const struct served_model *model);
void served_model_set_source(struct served_model *model, struct completion_source source);

/* Returns the embedder for this process' own texts, from a model for vectors. It returns no vectors while the engine
 * is unavailable. */
struct embedder served_model_embedder(struct served_model *model);

#endif
