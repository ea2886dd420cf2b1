/* What a body of the HTTP API says of a request_spec, by the table of fields (request/fields.h). */
#ifndef QUIRE_FRONT_SPEC_JSON_H
#define QUIRE_FRONT_SPEC_JSON_H

#include "request/fields.h"
#include "server/front/api/api_error.h"
#include "text/quire_json.h"

#include <stdbool.h>
#include <stdint.h>

/* Takes over each field of the table that all generating routes read (REQUEST_IN_BODY) and that is there; the others
 * stay as they are. spec owns its arrays. False: e says what is wrong. */
bool spec_json_read(struct request_spec *spec, const struct quire_doc *body, uint32_t vocab_size, struct api_error *e);
/* The same for a struct of any table (request/fields.h), by its rows alone. */
bool spec_json_read_rows(const struct request_layout *layout, void *values, const struct quire_doc *body,
                         uint32_t vocab_size, struct api_error *e);

#endif
