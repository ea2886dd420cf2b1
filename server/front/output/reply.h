/* Shared by the replies of all dialects. Private to reply*.c. Loop's thread. */
#ifndef QUIRE_FRONT_REPLY_H
#define QUIRE_FRONT_REPLY_H

#include "server/front/output/generation.h"

/* Tokens of all prompts and choices. The cache's counts are known at the end. */
struct reply_usage {
    uint64_t n_prompt, n_generated;
    uint64_t n_cached;  /* tokens of the prompt that were found in the prefix cache */
    uint64_t n_created; /* tokens of the prompt that were added to it */
    uint64_t n_accepted, n_rejected; /* the prediction's tokens: in the answer, and proposed but rejected */
};
struct reply_usage reply_usage(const struct generation *g);

struct logprobs_style reply_logprobs_style(const struct generation *g, int32_t n_top);

/* Writes the logprobs of a piece's tokens, as chat entries separated by commas. */
void reply_put_logprobs(struct buffer *o, const struct generation *g, const struct gen_piece *piece);

/* Sends g->event, or keeps it until the stream begins. */
void reply_emit(struct generation *g);

/* An event with a name, as in Responses and Messages: event: TYPE, data: {"type":TYPE ... }. */
void reply_begin_event(struct generation *g, const char *type);
void reply_end_event(struct generation *g);

/* ,"quire_trace":{...} */
void reply_put_timing(struct buffer *o, const struct generation *g);

#endif
