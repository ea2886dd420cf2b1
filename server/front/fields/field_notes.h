/* Notes about fields of a body that the server does not know or cannot use. They become headers of
 * the reply, a line of the log and a counter; or an error with --strict-fields.
 *
 * One thread at a time; the caller owns the struct. */
#ifndef QUIRE_FRONT_FIELD_NOTES_H
#define QUIRE_FRONT_FIELD_NOTES_H

#include "server/front/api/api_error.h"

#include <stdbool.h>
#include <stddef.h>

#define FIELD_NOTES_SHOWN 8
#define FIELD_NOTES_MOST 100 /* further ones are not looked for */
#define FIELD_NOTE_BYTES 200

struct field_notes {
    size_t n; /* found; the first FIELD_NOTES_SHOWN have a text */
    char fields[FIELD_NOTES_SHOWN][96]; /* the path of each field, as in an error's param */
    char texts[FIELD_NOTES_SHOWN][FIELD_NOTE_BYTES]; /* "field: why", printable ASCII */
};

/* Adds a note to *notes, which is allocated with the first; the caller frees it. Other bytes than printable ASCII are
 * shown as \xNN, and long texts are cut. Does nothing if there are too many, or if memory is short. */
void field_notes_add(struct field_notes **notes, const char *field, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Fills in e from the first note, and returns false. */
bool field_notes_fail(const struct field_notes *notes, struct api_error *e);

#endif
