/* A struct as tagged fields (base/encoding/tagged.h), by the rows of its table: a request_spec in SUBMIT frames and
 * recordings, and the sections of recordings. A field that has its default is left out. So bytes of an older program
 * keep their meaning, and a new field needs a row and no new version. A reader skips a field that it does not know, or
 * rejects the bytes if the row has REQUEST_MUST. Any thread. */
#ifndef QUIRE_REQUEST_CODEC_H
#define QUIRE_REQUEST_CODEC_H

#include "base/buffer.h"
#include "request/fields.h"

enum request_for {
    REQUEST_FOR_FRAME, /* every field except those of older programs (REQUEST_OLD) */
    REQUEST_FOR_RECORDING, /* without private fields */
};

/* Appends the fields in the order of their tags. prompt_at may be NULL. Otherwise the prompt's ids are left out, and
 * *prompt_at is the position in b where they belong, in memory order, so that a writer can send them from their own
 * array. Errors: QUIRE_INVALID: a list is too long; QUIRE_NO_MEMORY: b->failed is set. Appended bytes are not removed
 * on an error. */
int request_spec_put(struct buffer *b, const struct request_spec *spec, enum request_for what_for, size_t *prompt_at);

/* Fills in an owned spec from n unchecked bytes. Ranges are checked by request_spec_check(). Errors: QUIRE_INVALID
 * names the field after `what`; QUIRE_UNSUPPORTED: a field that must be understood is unknown. On an error there is
 * nothing to free. */
int request_spec_get(const char *what, const uint8_t *bytes, size_t n, struct request_spec *out,
                     struct quire_error *err);

/* The same for a struct of any table. `prompt_at` is for a row whose member is "prompt". Members without a row stay as
 * they are. */
int request_layout_put(struct buffer *b, const struct request_layout *layout, const void *values,
                       enum request_for what_for, size_t *prompt_at);
int request_layout_get(const char *what, const struct request_layout *layout, const uint8_t *bytes, size_t n, void *out,
                       struct quire_error *err);

#endif
