/* The job of a generating request: a request_job with the fields that control generation. On the pool. */
#ifndef QUIRE_FRONT_GENERATION_JOB_H
#define QUIRE_FRONT_GENERATION_JOB_H

#include "server/front/body/params.h"
#include "server/front/body/question.h"
#include "server/front/body/request_job.h"

#include <stdbool.h>

struct generation_job {
    struct request_job job; /* first member */
    /* The dialect's, on the pool: fills in the parameters and the task. Returns false with an error in job.error. */
    bool (*read)(struct generation_job *g, const struct quire_doc *body);
    struct key256 answer_domain; /* domain of cached responses: the key's with a salt, or shared by all; plus a name
                                    space */
    struct params *params; /* malloc'd; NULL until the body is read */
    struct params_body *once; /* borrowed; only while read() runs */
    char *echo; /* a JSON object with the request's fields that a reply repeats; malloc'd or NULL */
    struct question *question; /* if the cache compares questions; owned, or NULL */
};

/* As request_job_new(). */
struct generation_job *generation_job_new(const struct served_model *m, struct http_exchange *x,
                                          const struct tenant *tenant,
                                          bool (*read)(struct generation_job *g, const struct quire_doc *body),
                                          void (*finished)(void *owner, struct request_job *job), void *owner);
extern const struct request_job_calls generation_job_calls; /* of these jobs */

/* For read(): reads the parameters of chat and completions, or the common ones (params_read_common()), and sets the
 * fields that depend on them. These functions return false with an error in job.error. */
bool generation_job_params(struct generation_job *g, const struct quire_doc *body, bool chat);
bool generation_job_common(struct generation_job *g, const struct quire_doc *body);
/* Reads a "prediction", for routes that have one. */
bool generation_job_prediction(struct generation_job *g, const struct quire_doc *body);
/* Reads a format in the style of response_format from this field. After the common parameters. */
bool generation_job_format(struct generation_job *g, struct quire_value format, const char *field);
/* Reads the body in another route's form that a route made of the request's. It may not have "bad_words", which are read
 * after read() has returned. */
bool generation_job_read_as(struct generation_job *g, const struct buffer *made,
                            bool (*read)(struct generation_job *g, const struct quire_doc *body));
/* For routes with one answer. Returns false if the request sets more than one choice. */
bool generation_job_one_choice(struct generation_job *g);

#endif
