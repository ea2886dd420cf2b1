/* Finds the fields of a body that its route does not know. Any thread on its own body.
 *
 * Members that are null count as absent. Values are not checked: the readers do that. */
#ifndef QUIRE_FRONT_FIELD_CHECK_H
#define QUIRE_FRONT_FIELD_CHECK_H

#include "server/front/fields/field_notes.h"
#include "server/front/fields/field_shape.h"
#include "text/quire_json.h"
#include "text/quire_text.h"

/* Adds a note for each unknown field, with its path, and for each message of an unknown role. text: the model's, whose
 * chat template may know further members and roles of messages. */
void field_check(const struct field_shape *shape, struct quire_value body, const struct quire_text *text,
                 struct field_notes **notes);

#endif
