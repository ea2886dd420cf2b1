/* The fields that a body of a route may have, as tables: field_check.h compares bodies with them. Constant; any thread
 * may read them.
 *
 * A field that every generating route reads by a row of request/rows.h needs no row here (has_spec). */
#ifndef QUIRE_FRONT_FIELD_SHAPE_H
#define QUIRE_FRONT_FIELD_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct field_shape;

struct field_row {
    const char *name;
    size_t n_name;
    const struct field_shape *inner; /* the shape of the value, or of the items of an array; NULL: any value */
    const char *only; /* the field is known with this value only, as JSON; NULL: with every value */
};

/* A name, the shape of its value, and a name with its only value. */
#define FIELD(name) {name, sizeof name - 1, NULL, NULL}
#define FIELD_OF(name, inner) {name, sizeof name - 1, inner, NULL}
#define FIELD_ONLY(name, only) {name, sizeof name - 1, NULL, only}

struct field_table {
    const struct field_row *rows;
    size_t n_rows;
    bool is_quiet; /* fields without effect, or that the reader rejects: "did you mean" does not name them */
};
#define FIELD_TABLE(rows) {rows, sizeof rows / sizeof *rows, false}
#define FIELD_QUIET_TABLE(rows) {rows, sizeof rows / sizeof *rows, true}

/* Frequent fields come first, because they are looked up in this order. */
#define FIELD_MAX_TABLES 8
struct field_shape {
    const struct field_table *tables[FIELD_MAX_TABLES]; /* ends with NULL, or is full */
    bool has_spec; /* also has the fields of request/rows.h */
    bool is_of_template; /* the chat template gets all members: those that it names are known */
    const char *const *roles; /* the values of "role", with a NULL at the end; NULL: any value */
};

/* One for each kind of body. */
extern const struct field_shape field_shape_chat, field_shape_completions, field_shape_tokenize, field_shape_detokenize,
    field_shape_pins;
extern const struct field_shape field_shape_responses, field_shape_messages;
extern const struct field_shape field_shape_embeddings, field_shape_score, field_shape_rerank;
extern const struct field_shape field_shape_llama_cpp;
extern const struct field_shape field_shape_ollama_chat, field_shape_ollama_generate, field_shape_ollama_embed,
    field_shape_ollama_embeddings, field_shape_ollama_show;

/* Parts of several shapes. */
extern const struct field_table field_table_generation; /* fields of every generating route without a row of rows.h */
extern const struct field_table field_table_variables; /* of the chat template */
extern const struct field_table field_table_grammar;
extern const struct field_table field_table_peers; /* fields of clients and of other servers that change nothing here */
extern const struct field_shape field_shape_format; /* response_format */
extern const struct field_shape field_shape_tool, field_shape_call; /* of a chat's tools, and of their calls */

#endif
