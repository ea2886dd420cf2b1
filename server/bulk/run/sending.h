/* One line on its way: its request, further attempts, and the reply. Private to server/bulk/run. Loop's thread. */
#ifndef QUIRE_BULK_SENDING_H
#define QUIRE_BULK_SENDING_H

#include "base/buffer.h"
#include "server/bulk/run/run.h"

struct sending;

/* done(context, s): the line has its result; from the loop. It may begin or free s. */
int sending_open(const struct bulk_run_options *options, void (*done)(void *context, struct sending *s), void *context,
                 struct sending **out, struct quire_error *err);
void sending_close(struct sending *s); /* cancels; NULL is allowed */

/* QUIRE_OK: done() follows. QUIRE_INVALID: the line is wrong, and sending_refuse() gives its result; other failures may pass,
 * such as QUIRE_NO_MEMORY. */
int sending_begin(struct sending *s, uint32_t line, struct quire_error *err);
void sending_cancel(struct sending *s);
/* Calls done() again in a second: the result could not be stored. */
void sending_hold(struct sending *s);

uint32_t sending_line(const struct sending *s);
/* Appends the result to o; within done(). */
enum bulk_outcome sending_result(struct sending *s, struct buffer *o, struct bulk_tokens *tokens);
/* Appends the result of a line that sending_begin() refused. */
void sending_refuse(struct sending *s, const char *why, struct buffer *o);
/* Appends the result of a line that does not run, which is read for its custom_id. Not while it is on its way. */
void sending_skip(struct sending *s, uint32_t line, enum bulk_outcome outcome, struct buffer *o);

#endif
