/* The texts of results: lines of OpenAI's output and error files, or of Anthropic's results. Pure. */
#ifndef QUIRE_BULK_RESULT_TEXT_H
#define QUIRE_BULK_RESULT_TEXT_H

#include "base/buffer.h"
#include "server/bulk/run/line.h"
#include "server/bulk/run/results.h"

/* Whose result it is. */
struct result_of {
    enum bulk_dialect dialect;
    const char *id; /* of the request */
    const struct bulk_line *line; /* its custom_id may be NULL */
};

struct result_reply {
    int status; /* of HTTP */
    const char *request_id; /* NULL: absent */
    char *body; /* its line ends become spaces */
    size_t n_body;
};

/* Appends the result of a reply to o. tokens: zeroed, then those that the reply's usage names, and its cost. Returns QUIRE_INVALID if
 * the body is not JSON: the result is then result_text_error()'s. */
int result_text_reply(struct buffer *o, const struct result_of *of, const struct result_reply *reply,
                      struct bulk_tokens *tokens, struct quire_error *err);
/* The result of a line without a reply. code: "invalid_line", "connection_error"; why: for people. */
void result_text_error(struct buffer *o, const struct result_of *of, const char *code, const char *why);
/* The result of a line that did not run: BULK_CANCELLED or BULK_EXPIRED. */
void result_text_ended(struct buffer *o, const struct result_of *of, enum bulk_outcome outcome);

#endif
