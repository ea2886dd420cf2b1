/* Requests that were asked, as bodies to ask again: JSON lines, each a body of /v1/chat/completions or /v1/completions, or
 * {"path": ..., "body": {...}, "count": N}. Any thread. */
#ifndef QUIRE_TOOLS_REQUESTS_FILE_H
#define QUIRE_TOOLS_REQUESTS_FILE_H

#include "base/json.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#define REQUESTS_MAX ((size_t)1 << 20)

struct asked_request {
    size_t order; /* in the file, from 1: the first of equal ones */
    const char *path; /* static */
    json_t *body; /* without what is about a reply's form or one client */
    char *text; /* the body, with its keys in order; NULL once settled */
    uint64_t count; /* how often it was asked */
    uint64_t n_prompt, n_generated; /* tokens that it is expected to take */
};
struct asked_requests {
    struct asked_request *items;
    size_t n;
};

/* Empty lines are skipped. QUIRE_INVALID names the line and the field. requests_free() in every case. */
int requests_parse(const char *text, size_t n_bytes, const char *name, struct asked_requests *out,
                   struct quire_error *err);
/* QUIRE_NOT_FOUND, QUIRE_IO; at most 1 GiB. */
int requests_read(const char *path, struct asked_requests *out, struct quire_error *err);
/* One request of a file: body becomes its own in every case. */
int requests_take(struct asked_request *out, const char *path, json_t *body, const char *where,
                  struct quire_error *err);
/* Equal ones become one, with the sum of their counts; the most valuable first: by how often it is asked times what it
 * takes, and in the file's order where that is equal. */
void requests_settle(struct asked_requests *all);
void requests_free(struct asked_requests *all);

static inline uint64_t request_cost(const struct asked_request *r)
{
    return r->n_prompt + r->n_generated;
}

#endif
