/* Members of JSON objects, and the parts of a Messages reply. Private to this folder. */
#ifndef QUIRE_GATEWAY_MESSAGES_PARTS_H
#define QUIRE_GATEWAY_MESSAGES_PARTS_H

#include "base/buffer.h"
#include "server/front/api/api_error.h"
#include "text/quire_json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* For "%.*s" of a value as written, in errors. */
#define SHOWN(value) ((value).n > 42 ? 42 : (int)(value).n), (value).text

/* Clients send thinking blocks back only with a signature. Nothing is signed, and nothing is checked. */
#define PART_SIGNATURE "quire"

enum block_kind { BLOCK_NONE, BLOCK_TEXT, BLOCK_THINKING, BLOCK_CALL };

/* The value of a key; empty when it is absent or null. */
struct quire_value part_member(struct quire_value object, const char *key);
struct quire_value part_field(const struct quire_doc *body, const char *key);
static inline bool part_is(struct quire_value value, enum quire_kind kind)
{
    return quire_value_kind(value) == kind;
}
/* A string that is not empty. */
static inline bool part_has_text(struct quire_value value)
{
    return part_is(value, QUIRE_STRING) && value.n > 2;
}
/* The value as written. */
static inline void part_put(struct buffer *o, struct quire_value value)
{
    buffer_append(o, value.text, value.n);
}
/* ,"key":value */
void part_put_member(struct buffer *o, const char *key, struct quire_value value);

/* ---- a reply of chat completions → one of Messages ------------------------------------------- */

/* The text of a delta or message for a kind of block, one piece after another: content may be a string or a list of
 * parts. `at` is zeroed at the beginning. Returns false at the end. */
struct part_texts {
    int step;
    struct quire_value rest;
};
bool part_next_text(struct quire_value message, struct part_texts *at, enum block_kind *kind, struct quire_value *text);

/* finish_reason → stop_reason. has_calls: the reply has a tool_use block. */
const char *part_stop_reason(struct quire_value finish_reason, bool has_calls);

struct part_usage {
    uint64_t input, cached_input, output;
};
void part_read_usage(struct quire_value usage, struct part_usage *out);
/* "usage":{…}. cost: a number, or NULL. */
void part_put_usage(struct buffer *o, const struct part_usage *usage, const char *cost);
/* "stop_reason":"…","stop_sequence":… ; stop: a string as written, or empty. */
void part_put_stop(struct buffer *o, const char *reason, struct quire_value stop);
/* {"id":"msg_…",…,"model":"…" without the closing brace */
void part_put_head(struct buffer *o, const char *id, const char *model);

/* {"type":"tool_use","id":…,"name":…,"input": with the value to follow. id may be empty: then one is made of request
 * and number. */
void part_put_call_head(struct buffer *o, const char *id, size_t n_id, const char *name, size_t n_name,
                        const char *request, uint32_t number);
/* Whether the text of arguments is a JSON object; "" is an empty one, and becomes {}. */
bool part_is_object(const char *text, size_t n);
/* A call whose arguments are not an object, as text. */
void part_put_malformed(struct buffer *text, const char *name, size_t n_name, const char *arguments, size_t n);

/* Reads an error object of the upstream server into e: 502 with its words. Returns false. */
bool part_fail(struct api_error *e, struct quire_value error);
/* The error object of a reply; empty without an error. */
struct quire_value part_error_of(struct quire_value root);

/* ---- private to requests --------------------------------------------------------------------- */

struct translate_facts;
bool request_put_turns(struct buffer *o, const struct quire_doc *body, struct translate_facts *facts,
                       struct api_error *e);
bool request_put_tools(struct buffer *o, const struct quire_doc *body, struct translate_facts *facts,
                       struct api_error *e);

#endif
