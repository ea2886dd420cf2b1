/* Shared by the replies of chat and completions: both are lists of choices, with similar streams. Private to
 * reply_choices.c, reply_chat.c and reply_completions.c. Loop's thread. */
#ifndef QUIRE_FRONT_REPLY_CHOICES_H
#define QUIRE_FRONT_REPLY_CHOICES_H

#include "server/front/output/reply.h"

/* The functions begin, end, error and whole of an api_dialect. */
void choices_begin(struct reply *r, const char *model, const char *object);
void choices_end(struct reply *r);
void choices_error(struct reply *r, const struct api_error *e);
/* Writes the reply without the dialect's own end and the closing brace. put_choice: writes a choice's fields after its
 * index. */
void choices_whole(struct reply *r, struct buffer *o,
                   void (*put_choice)(struct buffer *o, struct reply *r, struct reply_prompt *p, struct choice *c));

/* An event in r->event: {head — a choice's beginning — the choice's fields — its end and the event's. The event's own
 * fields go between the first two. */
void choices_begin_event(struct reply *r);
void choices_begin_choice(struct reply *r, const struct choice *c);
void choices_end_event(struct reply *r);

/* ---- fields; each begins with a comma ---- */

void choices_put_ids(struct buffer *o, const char *name, const uint32_t *ids, size_t n);
/* token_ids of a piece, if requested. */
void choices_put_piece_ids(struct buffer *o, const struct reply *r, const struct gen_piece *piece);
/* Collected token_ids, if requested. */
void choices_put_kept_ids(struct buffer *o, const struct reply *r, const struct choice *c);
/* finish_reason and stop_reason. */
void choices_put_finish(struct buffer *o, const struct reply *r, const struct choice *c);
/* prompt_logprobs, if requested. */
void choices_put_prompt_logprobs(struct buffer *o, const struct reply *r, const struct reply_prompt *p);

/* Keeps a piece's text and id for the whole reply. */
void choices_keep(const struct reply *r, struct choice *c, const struct gen_piece *piece);

#endif
