/* Earlier requests, as bodies to send again: JSON lines, each a body of /v1/chat/completions or /v1/completions, or
 * {"path": ..., "body": {...}, "count": N}. Any thread. */
#ifndef QUIRE_TOOLS_REQUESTS_FILE_H
#define QUIRE_TOOLS_REQUESTS_FILE_H

#include "base/encoding/json.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#define REQUESTS_MAX ((size_t)1 << 20)

struct asked_request {
    size_t order; /* in the file, from 1: the first of equal ones */
    const char *path; /* static */
    json_t *body; /* without fields for the form of a reply or a client */
    char *text; /* the body, with its keys in order; NULL after requests_settle() */
    uint64_t count; /* how often it was requested */
    uint64_t n_prompt, n_generated; /* expected tokens */
};
struct asked_requests {
    struct asked_request *items;
    size_t n;
};

/* Skips empty lines. QUIRE_INVALID names the line and the field. Call requests_free() in every case. */
int requests_parse(const char *text, size_t n_bytes, const char *name, struct asked_requests *out,
                   struct quire_error *err);
/* QUIRE_NOT_FOUND, QUIRE_IO; at most 1 GiB. */
int requests_read(const char *path, struct asked_requests *out, struct quire_error *err);
/* One request of a file. It owns body in every case. */
int requests_take(struct asked_request *out, const char *path, json_t *body, const char *where,
                  struct quire_error *err);
/* Merges equal requests and adds their counts. Sorts the most valuable first: count times cost, then the file's order.
 */
void requests_settle(struct asked_requests *all);
void requests_free(struct asked_requests *all);

static inline uint64_t request_cost(const struct asked_request *r)
{
    return r->n_prompt + r->n_generated;
}

#endif
