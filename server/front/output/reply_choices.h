/* What the replies of chat and of completions share: both are lists of choices, and their streams
 * are alike. Private to reply_choices.c, reply_chat.c and reply_completions.c. */
#ifndef QUIRE_FRONT_REPLY_CHOICES_H
#define QUIRE_FRONT_REPLY_CHOICES_H

#include "server/front/output/reply.h"

/* api_dialect's begin, end, error and whole. */
void choices_begin(struct generation *g, const char *model, const char *object);
void choices_end(struct generation *g);
void choices_error(struct generation *g, const struct api_error *e);
/* The reply but for what a dialect puts at its end, and the closing brace. put_choice: what a
 * choice has after its index. */
void choices_whole(struct generation *g, struct buffer *o,
                   void (*put_choice)(struct buffer *o, struct generation *g, struct gen_prompt *p, struct choice *c));

/* An event in g->event: {head — a choice's beginning — the choice's fields — its end and the
 * event's. Fields of the event's own go between the first two. */
void choices_begin_event(struct generation *g);
void choices_begin_choice(struct generation *g, const struct choice *c);
void choices_end_event(struct generation *g);

/* ---- fields; each begins with a comma ---- */

void choices_put_ids(struct buffer *o, const char *name, const uint32_t *ids, size_t n);
/* token_ids of a piece, where they are asked for. */
void choices_put_piece_ids(struct buffer *o, const struct generation *g, const struct gen_piece *piece);
/* token_ids that were kept, where they are asked for. */
void choices_put_kept_ids(struct buffer *o, const struct generation *g, const struct choice *c);
/* finish_reason and stop_reason. */
void choices_put_finish(struct buffer *o, const struct generation *g, const struct choice *c);
/* prompt_logprobs, where they are asked for. */
void choices_put_prompt_logprobs(struct buffer *o, const struct generation *g, const struct gen_prompt *p);

/* Keeps a piece's text and id for the whole reply. */
void choices_keep(const struct generation *g, struct choice *c, const struct gen_piece *piece);

#endif
