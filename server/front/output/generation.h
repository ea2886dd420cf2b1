/* A generating request from its text work to the end of its reply.
 *
 * text pool → one SUBMIT per prompt → events → reply. The first prompt's SUBMIT is accepted or refused for all of
 * them; the others follow in their turns (turns.h). It belongs to its exchange: it ends with the reply, or when the
 * client disconnects, and then all its work is cancelled. Each of its parts has one owner and one lifetime:
 *
 *     request_terms       what the client asked: constant once the text work is done
 *     generation_account  what it cost and how long it took: for limits, log, spans, metrics and quire_trace
 *     generation_cache    what the response cache may do and did (generation_cache.h)
 *     reply               what is written so far (reply.h)
 *     gen_prompt          a prompt's work in the engine
 *
 * Private to generation*.c. Loop's thread.
 */
#ifndef QUIRE_FRONT_GENERATION_H
#define QUIRE_FRONT_GENERATION_H

#include "server/front/batch/prompt_batch.h"
#include "server/front/observe/trace_context.h"
#include "server/front/output/generation_cache.h"
#include "server/front/output/reply.h"

/* A fact that the body or a header states about the whole request belongs here. */
struct request_terms {
    struct params *params; /* owned; before the text work only the headers' deadline_ms and wants_timing */
    const struct model_facts *facts; /* facts about the engine at its arrival; holds a reference */
    struct choice_rules rules;
    struct key256 cache_domain;
    const char *prompt_name; /* the field with the prompts, for errors; static */
};

struct generation_account {
    struct tenant *tenant; /* the client's tenant */
    uint32_t n_queued; /* choices without a token yet: they count in the tenant's queue */
    bool admin; /* may see other tenants' names */
    char route[64]; /* the path, for the log */
    char client[HTTP_ADDRESS_BYTES]; /* likewise */
    struct timing timing;
    struct trace_context context; /* from the caller, or begun here for the spans */
};

struct gen_prompt {
    struct batch_prompt batch; /* first member, for the batch */
    struct generation *g;
    struct reply_prompt *reply; /* its place in the reply */
    uint32_t max_tokens;
    bool opened;
    uint64_t submitted_us;
    uint64_t engine_id; /* the engine's own id, as in its recordings; 0: unknown */
};

struct generation {
    TAILQ_ENTRY(generation) link;
    struct served_model *served;
    struct http_exchange *x;
    /* Owned. */
    struct request_terms *terms;
    struct generation_account *account;
    struct generation_cache *cache;
    struct reply *reply;
    struct generation_job *job; /* while it is in the pool */
    struct grammar_wait *grammar; /* while its grammar is compiled */
    struct gen_prompt *prompts; /* reply->n_prompts of them; owned */
    uint32_t *prediction; /* ids of the expected answer, until the engine has them; owned */
    struct prompt_batch batch;
    struct stream_ping *ping; /* owned; NULL: not a stream, or not accepted yet */
};

/* ---- generation_parts.c ---- */

/* With all its parts, which are empty. NULL: out of memory. */
struct generation *generation_new(struct served_model *m, struct http_exchange *x, const struct api_dialect *dialect);
/* Frees it and its parts, and nothing else: it has not begun, or has ended. */
void generation_parts_free(struct generation *g);

/* ---- generation_run.c: from its prompts to its reply ---- */

/* Submits its prompts, or only echoes them, after checks of the context's length and of the limits. It may be freed
 * afterwards. */
void generation_run(struct generation *g);

/* ---- generation_end.c: its end, with counters, log and spans ---- */

/* Its name: the client's, from the body or the header, or one made here. */
const char *generation_name(const struct generation *g);
/* The metrics that count it. */
struct metrics *generation_metrics(const struct generation *g);
/* Before a prompt is submitted: finds where it differs from earlier ones. */
void generation_watch_prefix(struct generation *g, const struct gen_prompt *p);
/* The prompt was accepted. */
void generation_prompt_taken(struct generation *g, const struct gen_prompt *p);
/* The engine's work for one choice is over. */
void generation_choice_over(struct generation *g, const struct gen_prompt *p, const struct choice *c,
                            const struct wire_account *account);
/* status: of the reply, or of the error that ended its stream; 499: the client disconnected. e: the reason of a
 * failure, or NULL. */
void generation_over(struct generation *g, int status, const struct api_error *e);
/* Frees it, and cancels its work in the engine and the pool. */
void generation_free(struct generation *g);
/* Ends the reply with an error and frees the generation, which owner is. Once the batch has begun, use
 * prompt_batch_fail(). */
void generation_fail(void *owner, const struct api_error *e);
/* The client disconnected. For http_on_gone(). */
void generation_gone(void *context);

#endif
