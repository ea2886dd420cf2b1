/* The stored replies of /v1/responses, for previous_response_id and GET /v1/responses/{id}.
 *
 * A SQLite database in memory or in a file. A tenant sees its own responses only. Ids have 128 random bits. Responses
 * expire, and the least recently used ones are removed above the limits of bytes: of a tenant, and of all, where the
 * tenant with the most bytes loses first. The use of a chain counts as a use of all its responses.
 *
 * The loop's thread opens, closes and puts, and never waits for the disk: a thread of the store writes. The other
 * functions block on the disk, and may run on any thread; they see everything that was put before.
 */
#ifndef QUIRE_FRONT_RESPONSE_STORE_H
#define QUIRE_FRONT_RESPONSE_STORE_H

#include "base/buffer.h"
#include "base/hash.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RESPONSE_ID_PREFIX "resp_"
#define RESPONSE_ID_BYTES 40 /* the prefix, 32 hex digits, NUL; rounded up */

/* A chain that is longer is rejected; the bytes are those of the largest body, by default. */
#define RESPONSE_MAX_CHAIN 2048
#define RESPONSE_MAX_CHAIN_BYTES ((size_t)16 << 20)

struct response_store;

struct response_store_options {
    const char *path; /* NULL: in memory */
    uint64_t max_bytes; /* of all responses, with their overhead */
    uint64_t max_tenant_bytes;
    uint32_t ttl_s; /* after the last use */
};

struct response_record {
    struct key256 tenant;
    char id[RESPONSE_ID_BYTES], previous[RESPONSE_ID_BYTES]; /* previous "": none */
    bool is_stored; /* it is to be put */
    struct buffer input; /* the request's items, separated by commas */
    struct buffer reply; /* the response object */
    size_t output_at, n_output; /* the items of its output, in reply */
};
void response_record_free(struct response_record *r); /* only what it holds */
/* A new random id. */
void response_id(char out[RESPONSE_ID_BYTES]);

/* QUIRE_IO, QUIRE_INVALID: the file cannot be used; the message names --response-store. */
int response_store_open(const struct response_store_options *options, struct response_store **out,
                        struct quire_error *err);
/* Writes what was put; NULL is allowed. */
void response_store_close(struct response_store *s);

/* Takes over what r holds, and leaves it empty. The response is dropped, and the log says so, if it is too large or the
 * writer is far behind. */
void response_store_put(struct response_store *s, struct response_record *r);

/* QUIRE_NOT_FOUND: unknown, expired, or another tenant's. The caller frees out, in each case. */
int response_store_find(struct response_store *s, const struct key256 *tenant, const char *id,
                        struct response_record *out, struct quire_error *err);
int response_store_remove(struct response_store *s, const struct key256 *tenant, const char *id,
                          struct quire_error *err);
/* Appends the items of a response and of all before it, from the oldest on, each response's input before its output,
 * separated by commas. QUIRE_NOT_FOUND: one of them is missing; QUIRE_INVALID: the chain is too long. */
int response_store_chain(struct response_store *s, const struct key256 *tenant, const char *id, struct buffer *items,
                         struct quire_error *err);

/* The bytes of those items, which a request holds while it reads them. */
int response_store_chain_bytes(struct response_store *s, const struct key256 *tenant, const char *id, size_t *n_bytes,
                               struct quire_error *err);

struct response_store_counts {
    uint64_t n_responses, n_bytes;
};
void response_store_count(struct response_store *s, struct response_store_counts *out);

#endif
