/* What is done with a request's body before an engine sees it, on a thread of the pool: JSON →
 * checked fields → chat template → token ids; or token ids → text.
 *
 * A job owns all it works on, because a request may be gone before its job is. It is filled in
 * and read on the loop's thread; in between it is worked on by one thread of the pool, which
 * sees of the models only what never changes: the list that was there when the request came.
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
    char *text; /* malloc'd, not NUL-terminated; NULL: none (yet) */
    size_t n_text;
    uint32_t *ids; /* malloc'd; NULL: none (yet) */
    uint32_t *places; /* as many, malloc'd: characters of text before each id; NULL unless want_places */
    size_t n_ids;
};

/* Of its ids only n from one on. */
static inline void request_item_keep(struct request_item *item, size_t from, size_t n)
{
    memmove(item->ids, item->ids + from, n * sizeof *item->ids);
    if (item->places)
        memmove(item->places, item->places + from, n * sizeof *item->places);
    item->n_ids = n;
}

enum vectors_task { VECTORS_EMBED, VECTORS_SCORE, VECTORS_RERANK };
/* What a request for vectors says besides its texts. */
struct vectors_ask {
    enum vectors_task task;
    bool base64;
    uint32_t dimensions; /* of an embedding */
    bool normalize;      /* to length 1, whatever the model does */
    uint32_t max_tokens; /* of a text, or of a pair: the rest is cut off */
    uint32_t max_document_tokens; /* of rerank's documents, special tokens aside; 0: no bound but that */
    size_t n_first;      /* items that are a pair's first texts, 1 or as many as the others */
    uint32_t top_n;
};

struct request_job {
    struct text_job job; /* first: the pool's view */
    const struct model_list *models; /* held */
    const struct model_view *served; /* of them, whom it asks */
    void (*finished)(void *owner, struct request_job *job); /* the job is the owner's again */
    void *owner;

    /* In. */
    char *body; /* malloc'd */
    size_t n_body;
    /* On the pool: fills in what follows from the body, with request_job_items(). False: error
     * says why. */
    bool (*read)(struct request_job *j, const struct quire_doc *body);
    struct key256 cache_domain;         /* the API key's, and read() adds a salt */
    struct key256 answer_domain;        /* of answers that are kept: likewise, or everybody's; and a name space */

    /* Set by read(). */
    struct params params;   /* of what generates */
    const char *model;      /* the served name: the configuration's */
    char *echo;             /* a JSON object of what a reply repeats of the request; malloc'd or NULL */
    const char *prompt_name; /* the field that holds the prompt, for errors; static */
    /* A chat (messages != NULL) is rendered into items[0].text first, and then dropped. JSON texts, malloc'd. */
    char *messages, *tools, *kwargs;
    bool add_generation_prompt, continue_final;
    uint32_t mark; /* in its text, inside special tokens that are text there; 0: none (quire_text_chat()) */
    bool add_special;  /* encoding */
    bool skip_special; /* decoding */
    bool want_text;    /* items that have only ids are decoded */
    bool want_places;  /* with want_text */
    bool want_strings; /* token_strings: tokens of items[0], JSON strings with commas between */
    /* A reply that needs no engine, made on the pool from what the items have become; NULL: the items are prompts,
     * and must fit the model's context. */
    void (*put)(struct buffer *o, const struct request_job *j);
    bool counts_only; /* of text, n_ids is all that is wanted */
    uint32_t ttl_s; /* of a pin */
    struct vectors_ask ask;
    bool background;
    size_t n_items;
    struct request_item *items;
    struct question question; /* where the cache compares them */
    struct request_item prediction; /* of the one prompt's answer; its ids are no more than the context has room for,
                                       and an item more */

    /* Out. */
    bool ok;
    struct api_error error; /* when not ok */
    char *token_strings;
    size_t n_token_strings;
    struct buffer reply; /* by put */

    /* While it is on the pool. */
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

/* A body that must be a JSON object. False: e says what is wrong. The caller closes *out, also then. */
bool request_body_parse(const char *text, size_t n_bytes, struct quire_doc **out, struct api_error *e);

/* For read(): the parameters of chat and completions, or those that every route has
 * (params_read_common()), and what follows from them. False: error is set, here and below. */
bool request_job_params(struct request_job *j, const struct quire_doc *body, bool chat);
bool request_job_common(struct request_job *j, const struct quire_doc *body);
/* A "prediction", of routes that have one. */
bool request_job_prediction(struct request_job *j, const struct quire_doc *body);
/* Narrows the cache domain by a "cache_salt"; NULL: there is none. */
void request_job_salt(struct request_job *j, const char *salt);
/* False, when the request asks for more than one choice, for routes that know one only. */
bool request_job_one_choice(struct request_job *j);
/* What a chat was rendered from, when that is done: it may be as long as the body. */
static inline void request_job_drop_chat(struct request_job *j)
{
    free(j->messages);
    free(j->tools);
    free(j->kwargs);
    j->messages = j->tools = j->kwargs = NULL;
}
/* Room for n items. */
bool request_job_items(struct request_job *j, size_t n);
static inline bool request_job_no_memory(struct request_job *j)
{
    return api_fail(&j->error, 503, NULL, "out_of_memory", "out of memory");
}

#endif
