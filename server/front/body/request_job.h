/* The work on a request's body before an engine sees it, on a thread of the pool: JSON → checked fields → chat
 * template → token ids; or token ids → text.
 *
 * A job owns all its data, because a request may be freed before its job. The loop's thread fills it in and reads it.
 * In between, one thread of the pool works on it. That thread reads only the constant part of the models: the list
 * from the time when the request arrived.
 *
 * A job has what every route needs. A route with fields of its own embeds the job as the first member of its struct.
 */
#ifndef QUIRE_FRONT_REQUEST_JOB_H
#define QUIRE_FRONT_REQUEST_JOB_H

#include "base/hash.h"
#include "server/front/api/api_error.h"
#include "server/front/text/text_pool.h"
#include "server/front/text/text_work.h"
#include "server/front/model_list.h"
#include "text/quire_json.h"

#include <stdbool.h>
#include <stddef.h>

struct field_notes;
struct field_shape;
struct http_exchange;
struct request_job;
struct served_model;
struct tenant;

#define REQUEST_MAX_DEPTH 64

/* The functions of a route's jobs. Static. */
struct request_job_calls {
    size_t n_bytes; /* of the route's struct */
    /* On the pool: fills in the fields that depend on the body, and the task. Returns false with an error in
     * j->error; or after it set job.needs_bytes, to be called again. */
    bool (*read)(struct request_job *j, const struct quire_doc *body);
    /* On the pool, after the text work: writes a reply that needs no engine. Returns false likewise. May be NULL. */
    bool (*write)(struct request_job *j);
    /* Frees what the route's own members own. May be NULL. */
    void (*free)(struct request_job *j);
};

/* The parts of the work, in their order. A further one gets a step of its own, and works in slices as text_work does:
 * while it works, the pool's thread serves no other request. */
enum request_job_step { REQUEST_JOB_READ, REQUEST_JOB_TEXT, REQUEST_JOB_WRITE };

struct request_job {
    struct text_job job; /* first member, for the pool */
    const struct request_job_calls *calls;
    const struct model_list *models; /* holds a reference */
    const struct model_view *served; /* the requested model; points into models */
    const struct served_model *asked; /* the route's model; loop's thread */
    struct http_exchange *x; /* likewise */
    void (*finished)(void *owner, struct request_job *job); /* the job belongs to the owner again */
    void *owner;
    enum request_job_step step;
    char *body; /* malloc'd; freed when it has been read */
    size_t n_body;
    const struct field_shape *shape; /* the body's; NULL, unless the owner sets it: its fields are not checked */
    struct field_notes *notes; /* owned; NULL: every field has an effect */
    struct key256 cache_domain; /* the API key's; read() adds a salt */

    const char *model; /* set by read(): the served name; owned by the configuration */
    struct text_task *text; /* owned. read() describes the work; tokenizer and limits come from the model */

    bool ok;
    struct api_error error; /* valid if not ok */
};

/* Takes the body of x. NULL: out of memory. */
struct request_job *request_job_new(const struct served_model *m, struct http_exchange *x, const struct tenant *tenant,
                                    const struct request_job_calls *calls,
                                    void (*finished)(void *owner, struct request_job *job), void *owner);
/* An empty job. NULL: out of memory. */
struct request_job *request_job_alloc(const struct request_job_calls *calls);
void request_job_free(struct request_job *j); /* NULL is allowed */

/* Parses a body that must be a JSON object. Returns false with an error in e. The caller closes *out in both cases. */
bool request_body_parse(const char *text, size_t n_bytes, struct quire_doc **out, struct api_error *e);

/* For read(): narrows the cache domain by a "cache_salt". NULL changes nothing. */
void request_job_salt(struct request_job *j, const char *salt);

#endif
