/* The objects of both APIs as JSON. Pure. */
#ifndef QUIRE_BULK_REPLIES_H
#define QUIRE_BULK_REPLIES_H

#include "base/buffer.h"
#include "server/bulk/store/records.h"

/* OpenAI's names of the purposes a file of /v1/files has. */
const char *bulk_purpose_name(enum bulk_purpose purpose);
void bulk_put_file(struct buffer *o, const struct bulk_file *f);
/* OpenAI's batch, or Anthropic's message batch. */
void bulk_put_batch(struct buffer *o, const struct bulk_batch *b);

#endif
