/* Routes whose answers are vectors or scores: /v1/embeddings, /v1/score and /v1/rerank.
 *
 * text pool (ids) → prompts → one SUBMIT each, in turns with everybody else's (turns.h) → vectors → one reply. A
 * model that embeds gives each text a vector; one that scores pairs gives each pair its numbers. Private to
 * server/front/vectors. Loop's thread, but for what reads a body.
 */
#ifndef QUIRE_FRONT_VECTORS_H
#define QUIRE_FRONT_VECTORS_H

#include "server/front/front_internal.h"
#include "server/front/batch/prompt_batch.h"

struct vectors;

struct vectors_prompt {
    struct batch_prompt batch; /* first: the batch's view */
    struct vectors *v;
    uint32_t *ids;
    size_t n_ids, segment_from; /* segment_from: where a pair's second text begins; 0: one text */
    float *values;              /* [job->facts->vector_size], once they came */
};

struct vectors {
    TAILQ_ENTRY(vectors) link;
    struct served_model *served;
    struct http_exchange *x;
    struct tenant *tenant;
    struct request_job *job; /* while it is in the pool; afterwards the request's, for its texts */
    bool in_pool;
    struct vectors_ask ask;
    const char *model; /* the served name */
    struct key256 cache_domain;
    struct vectors_prompt *prompts;
    size_t n_prompts, n_over;
    uint64_t n_tokens;
    uint32_t n_queued; /* in the tenant's queue */
    uint64_t arrived_us;
    struct prompt_batch batch; /* once something is to be computed */
};

/* ---- vectors_read.c: on the pool ---- */
bool embeddings_read(struct request_job *j, const struct quire_doc *body);
bool score_read(struct request_job *j, const struct quire_doc *body);
bool rerank_read(struct request_job *j, const struct quire_doc *body);

/* ---- vectors_prompts.c ---- */
/* The prompts of the job's items: each text's, or each pair's where the model scores pairs; cut to the model's length,
 * with the special tokens at their end kept. */
bool vectors_make_prompts(struct vectors *v, struct request_job *j, struct api_error *e);
/* One text's ids, likewise, at most n_most; malloc'd. On the pool. */
bool vectors_encode(const struct quire_text *tokenizer, const char *text, size_t n, size_t n_most, uint32_t **ids,
                    size_t *n_ids);
/* The numbers that the engine sent for a prompt, [facts->vector_size], malloc'd; NULL when it sent another number of them. */
float *vectors_numbers(const struct model_facts *facts, const struct wire_vector *vector);

/* ---- vectors_reply.c ---- */
/* All vectors are there. */
void vectors_reply(const struct vectors *v, struct buffer *o);

#endif
