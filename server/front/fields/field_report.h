/* How a client and the operator see field_notes.h: headers of the reply, and lines of the log. Loop's thread. */
#ifndef QUIRE_FRONT_FIELD_REPORT_H
#define QUIRE_FRONT_FIELD_REPORT_H

#include "server/front/fields/field_notes.h"
#include "server/front/tenant/bucket.h"

#include <stdint.h>

struct http_exchange;

/* Of the server. Clients decide how many lines there would be, so most of them are left out. */
struct field_log {
    struct bucket lines;
    uint64_t n_left_out; /* since the last line */
};

void field_log_init(struct field_log *log);

/* Adds a header x-quire-warning for each note, and one for those without a text; and writes a line to the log. Before the
 * reply begins. */
void field_report(struct field_log *log, struct http_exchange *x, const struct field_notes *notes);

#endif
