/* Reads the body of an HTTP request into a request_spec, by the table of fields (request/fields.h). Any thread on its
 * own body. */
#ifndef QUIRE_FRONT_SPEC_JSON_H
#define QUIRE_FRONT_SPEC_JSON_H

#include "request/fields.h"
#include "server/front/api/api_error.h"
#include "text/quire_json.h"

#include <stdbool.h>
#include <stdint.h>

/* Reads each field that the table lists for all generating routes (REQUEST_IN_BODY) and that is present; the others
 * stay unchanged. spec owns its arrays. Returns false with an error in e. */
bool spec_json_read(struct request_spec *spec, const struct quire_doc *body, uint32_t vocab_size, struct api_error *e);
/* The same for a struct of any table (request/fields.h), by its rows alone. */
bool spec_json_read_rows(const struct request_layout *layout, void *values, const struct quire_doc *body,
                         uint32_t vocab_size, struct api_error *e);

#endif
