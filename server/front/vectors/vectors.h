/* Routes whose answers are vectors or scores: /v1/embeddings, /v1/score and /v1/rerank, and Ollama's.
 *
 * text pool (ids) → prompts → one SUBMIT each, in turns with other requests (turns.h) → vectors → one reply. An
 * embedding model gives each text a vector. A model that scores pairs gives each pair its numbers. Private to
 * server/front. Loop's thread, except the functions that read a body.
 */
#ifndef QUIRE_FRONT_VECTORS_H
#define QUIRE_FRONT_VECTORS_H

#include "server/front/front_internal.h"
#include "server/front/batch/prompt_batch.h"

struct vectors;

enum vectors_task { VECTORS_EMBED, VECTORS_SCORE, VECTORS_RERANK };
/* A route: how its body is read, and its reply is written. Static. */
struct vectors_route {
    enum vectors_task task;
    struct request_job_calls calls; /* of a struct vectors_job */
    const struct field_shape *shape; /* of its body */
    void (*put)(const struct vectors *v, struct buffer *o); /* when all vectors have arrived */
};
void vectors_start(struct served_model *m, struct http_exchange *x, const struct vectors_route *route);
/* The fields of a request for vectors, except its texts. */
struct vectors_ask {
    bool base64;
    uint32_t dimensions; /* of an embedding */
    bool normalize;      /* to length 1, even if the model does not */
    uint32_t max_tokens; /* limit of a text or a pair; the rest is cut off */
    uint32_t max_document_tokens; /* limit of rerank's documents, without special tokens; 0: only max_tokens applies */
    size_t n_first; /* number of items that are a pair's first texts: 1, or as many as the others */
    uint32_t top_n;
};

struct vectors_job {
    struct request_job job; /* first member */
    struct vectors_ask ask;
};

struct vectors_prompt {
    struct batch_prompt batch; /* first member, for the batch */
    struct vectors *v;
    uint32_t *ids;
    size_t n_ids, segment_from; /* segment_from: the position of a pair's second text; 0: one text */
    float *values; /* [job->facts->vector_size], once they arrived */
};

struct vectors {
    TAILQ_ENTRY(vectors) link;
    const struct vectors_route *route;
    struct served_model *served;
    struct http_exchange *x;
    struct tenant *tenant;
    struct vectors_job *job; /* belongs to the pool while it is there, and then to the request, for its texts */
    bool in_pool;
    struct vectors_prompt *prompts;
    size_t n_prompts;
    uint64_t n_tokens;
    uint32_t n_queued; /* counted in the tenant's queue */
    uint64_t arrived_us;
    struct prompt_batch batch; /* once a prompt needs the engine */
};

/* ---- vectors_read.c: on the pool ---- */
bool embeddings_read(struct request_job *j, const struct quire_doc *body);
bool score_read(struct request_job *j, const struct quire_doc *body);
bool rerank_read(struct request_job *j, const struct quire_doc *body);

/* ---- vectors_prompts.c ---- */
/* Makes the prompts of the job's items: one for each text, or for each pair if the model scores pairs. They are cut to
 * the model's length, with the special tokens at their end kept. */
bool vectors_make_prompts(struct vectors *v, struct api_error *e);
/* Encodes one text likewise, to at most n_most ids; malloc'd. On the pool. */
bool vectors_encode(const struct quire_text *tokenizer, const char *text, size_t n, size_t n_most, uint32_t **ids,
                    size_t *n_ids);
/* A spec for the vector of these ids, which are borrowed. */
void vectors_spec(struct request_spec *s, const uint32_t *ids, size_t n_ids);
/* The numbers that the engine sent for a prompt, [facts->vector_size], malloc'd; NULL if their count is wrong. */
float *vectors_numbers(const struct model_facts *facts, const struct wire_vector *vector);

/* ---- vectors_reply.c ---- */
/* The replies of vLLM's routes. */
void vectors_put_embeddings(const struct vectors *v, struct buffer *o);
void vectors_put_scores(const struct vectors *v, struct buffer *o);
void vectors_put_ranking(const struct vectors *v, struct buffer *o);
/* Writes the numbers of an embedding as an array. */
void vectors_put_numbers(const struct vectors *v, struct buffer *o, size_t i);

#endif
