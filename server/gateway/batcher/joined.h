/* Bodies of completions and embeddings with one prompt or input, which become one body with a list of them; and the
 * reply, which becomes one for each. Pure; any thread.
 */
#ifndef QUIRE_GATEWAY_JOINED_H
#define QUIRE_GATEWAY_JOINED_H

#include "base/buffer.h"
#include "base/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum joined_kind { JOINED_COMPLETIONS, JOINED_EMBEDDINGS };

/* A body, as the upstream server gets it alone. */
struct joined_body {
    const char *text; /* borrowed, n bytes */
    size_t n;
    size_t at, n_value; /* position of the prompt or input, a string */
};

/* Whether a body can be joined with others: its prompt or input is one string, it is no stream, and asks for one
 * answer. */
bool joined_read(enum joined_kind kind, const char *text, size_t n, struct joined_body *out);
/* Bodies with the same key differ in their prompt or input only. where: a name for the target and the route. */
struct key256 joined_key(const struct joined_body *body, const char *where);
/* Appends one body for all; n is at least 1. */
void joined_write(const struct joined_body *bodies, size_t n, struct buffer *out);

/* Appends the reply of each body to out[i]. The tokens of the reply are divided: those of prompts by the bytes of the
 * prompts, those of answers by the bytes of the answers; the shares add up to the whole. Returns false if the reply
 * does not have one answer for each body. Out of memory: out[i].failed. */
bool joined_split(enum joined_kind kind, const char *reply, size_t n_reply, const struct joined_body *bodies, size_t n,
                  struct buffer *out);

#endif
