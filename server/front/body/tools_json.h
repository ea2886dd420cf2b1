/* Function tools of the APIs that have a form of their own, written in the form of a chat. Any thread. */
#ifndef QUIRE_FRONT_TOOLS_JSON_H
#define QUIRE_FRONT_TOOLS_JSON_H

#include "base/buffer.h"
#include "text/quire_json.h"

#include <stdbool.h>
#include <stddef.h>

/* As many as a grammar of calls has at most. */
#define TOOLS_MAX 1000
#define TOOLS_MAX_NAME 128

/* A string of 1 to TOOLS_MAX_NAME of the characters A-Z a-z 0-9 _ -. Its bytes are then the name: it has no escapes. */
bool tools_is_name(struct quire_value name);
/* Whether one of n names is this one. */
bool tools_has_name(const struct quire_value *names, size_t n, struct quire_value name);
/* Appends a function, with a comma if it is not the first of the array. Absent values are empty. */
void tools_put_function(struct buffer *o, struct quire_value name, struct quire_value description,
                        struct quire_value parameters, bool is_strict);
/* Appends a chat's tool_choice that names a function. */
void tools_put_named_choice(struct buffer *o, struct quire_value name);

#endif
