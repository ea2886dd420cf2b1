/* The reply of POST /complete. Pure. */
#ifndef QUIRE_GATEWAY_COMPLETION_H
#define QUIRE_GATEWAY_COMPLETION_H

#include "base/buffer.h"
#include "server/front/api/api_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct completion {
    char *content; /* malloc'd */
    size_t n_content;
    uint64_t input, output; /* tokens */
    char cost[32];          /* dollars, as the gateway wrote them: every digit; "" without a price */
    uint64_t picodollars;   /* the same */
};

/* Reads a whole reply of /v1/chat/completions. Returns false with a 502 if it has no answer. */
bool completion_read(struct completion *out, const char *text, size_t n, struct api_error *e);
void completion_free(struct completion *c);

struct completion_reply {
    const char *content;
    size_t n_content;
    const char *model; /* NULL: a cache answered, and tokens and cost are 0 */
    uint64_t input, output;
    const char *cost; /* "" means 0 */
    uint64_t latency_us;
};
void completion_put(struct buffer *o, const struct completion_reply *r);

/* The model in the header x-quire-route ("model=NAME; target=…"). NULL or another text: "". */
#define COMPLETION_MODEL_BYTES 128
void completion_model(const char *route, char out[COMPLETION_MODEL_BYTES]);

/* Reads the text of a chunk of a stream, malloc'd; NULL if it has no text. Returns false with an error if it is not a
 * chunk, or reports an error. */
bool completion_piece(const char *data, size_t n, char **out, size_t *n_out, struct api_error *e);

#endif
