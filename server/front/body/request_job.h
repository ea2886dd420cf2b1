/* The work on a request's body before an engine sees it, on a thread of the pool: JSON → checked fields → chat
 * template → token ids; or token ids → text.
 *
 * A job owns all its data, because a request may be freed before its job. The loop's thread fills it in and reads it.
 * In between, one thread of the pool works on it. That thread reads only the constant part of the models: the list
 * from the time when the request arrived.
 */
#ifndef QUIRE_FRONT_REQUEST_JOB_H
#define QUIRE_FRONT_REQUEST_JOB_H

#include "base/hash.h"
#include "server/front/api/api_error.h"
#include "server/front/body/params.h"
#include "server/front/body/question.h"
#include "server/front/body/text_pool.h"
#include "server/front/body/text_work.h"
#include "server/front/model_list.h"
#include "text/quire_json.h"
#include "text/quire_text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct served_model;

#define REQUEST_MAX_DEPTH 64

struct request_item {
    char *text; /* malloc'd, not NUL-terminated; NULL: not set (yet) */
    size_t n_text;
    uint32_t *ids; /* malloc'd; NULL: not set (yet) */
    uint32_t *places; /* n_ids numbers, malloc'd: characters of text before each id; NULL unless want_places */
    size_t n_ids;
};

/* Keeps only n of its ids, starting at from. */
static inline void request_item_keep(struct request_item *item, size_t from, size_t n)
{
    memmove(item->ids, item->ids + from, n * sizeof *item->ids);
    if (item->places)
        memmove(item->places, item->places + from, n * sizeof *item->places);
    item->n_ids = n;
}

enum vectors_task { VECTORS_EMBED, VECTORS_SCORE, VECTORS_RERANK };
/* The fields of a request for vectors, except its texts. */
struct vectors_ask {
    enum vectors_task task;
    bool base64;
    uint32_t dimensions; /* of an embedding */
    bool normalize;      /* to length 1, even if the model does not */
    uint32_t max_tokens; /* limit of a text or a pair; the rest is cut off */
    uint32_t max_document_tokens; /* limit of rerank's documents, without special tokens; 0: only max_tokens applies */
    size_t n_first; /* number of items that are a pair's first texts: 1, or as many as the others */
    uint32_t top_n;
};

struct request_job {
    struct text_job job; /* first member, for the pool */
    const struct model_list *models; /* holds a reference */
    const struct model_view *served; /* the requested model; points into models */
    void (*finished)(void *owner, struct request_job *job); /* the job belongs to the owner again */
    void *owner;

    /* Input. */
    char *body; /* malloc'd */
    size_t n_body;
    /* On the pool: fills in the fields that depend on the body, with request_job_items(). Returns false with an error
     * in j->error. */
    bool (*read)(struct request_job *j, const struct quire_doc *body);
    struct key256 cache_domain; /* the API key's; read() adds a salt */
    struct key256 answer_domain; /* domain of cached responses: likewise, or shared by all; plus a name space */

    /* Set by read(). */
    struct params params; /* of generating routes */
    const char *model; /* the served name; owned by the configuration */
    char *echo; /* a JSON object with the request's fields that a reply repeats; malloc'd or NULL */
    const char *prompt_name; /* the field that holds the prompt, for errors; static */
    /* A chat (messages != NULL) is first rendered into items[0].text, and then freed. JSON texts, malloc'd. */
    char *messages, *tools, *kwargs;
    bool add_generation_prompt, continue_final;
    uint32_t mark; /* appears in the text inside special tokens that count as text; 0: not used (quire_text_chat()) */
    bool add_special; /* for encoding */
    bool skip_special; /* for decoding */
    bool want_text; /* decode items that have only ids */
    bool want_places; /* with want_text */
    bool want_strings; /* token_strings: tokens of items[0], JSON strings with commas between */
    /* Writes a reply that needs no engine, on the pool, from the finished items; NULL: the items are prompts, and must
     * fit the model's context. */
    void (*put)(struct buffer *o, const struct request_job *j);
    bool counts_only; /* only n_ids is needed of a text */
    uint32_t ttl_s; /* of a pin */
    struct vectors_ask ask;
    bool background;
    size_t n_items;
    struct request_item *items;
    struct question question; /* if the cache compares questions */
    /* the expected answer to the only prompt, one item more. Its ids are cut to the model's context */
    struct request_item prediction;

    /* Output. */
    bool ok;
    struct api_error error; /* valid if not ok */
    char *token_strings;
    size_t n_token_strings;
    struct buffer reply; /* written by put */

    /* State while it is on the pool. */
    bool is_read;
    struct text_work work;
};

/* Takes the body of x. NULL: out of memory. */
struct http_exchange;
struct tenant;
struct request_job *request_job_new(const struct served_model *m, struct http_exchange *x, const struct tenant *tenant,
                                    bool (*read)(struct request_job *j, const struct quire_doc *body),
                                    void (*finished)(void *owner, struct request_job *job), void *owner);
void request_job_free(struct request_job *j);

/* Parses a body that must be a JSON object. Returns false with an error in e. The caller closes *out in both cases. */
bool request_body_parse(const char *text, size_t n_bytes, struct quire_doc **out, struct api_error *e);

/* For read(): reads the parameters of chat and completions, or the common ones (params_read_common()), and sets the
 * fields that depend on them. These functions return false with an error in j->error. */
bool request_job_params(struct request_job *j, const struct quire_doc *body, bool chat);
bool request_job_common(struct request_job *j, const struct quire_doc *body);
/* Reads a "prediction", for routes that have one. */
bool request_job_prediction(struct request_job *j, const struct quire_doc *body);
/* Narrows the cache domains by a "cache_salt". NULL changes nothing. */
void request_job_salt(struct request_job *j, const char *salt);
/* For routes with one answer. Returns false if the request sets more than one choice. */
bool request_job_one_choice(struct request_job *j);
/* Frees the input of the template after rendering: it may be as long as the body. */
static inline void request_job_drop_chat(struct request_job *j)
{
    free(j->messages);
    free(j->tools);
    free(j->kwargs);
    j->messages = j->tools = j->kwargs = NULL;
}
/* Allocates n items. */
bool request_job_items(struct request_job *j, size_t n);
static inline bool request_job_no_memory(struct request_job *j)
{
    return api_fail(&j->error, 503, NULL, "out_of_memory", "out of memory");
}

#endif
