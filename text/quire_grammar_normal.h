/* Every form in which a client describes a structured answer, as one normal grammar text (quire_grammar.h compiles it).
 *
 * The function is pure. Any thread with 1 MiB of stack may call it, and it needs no tokenizer. It never prints, aborts, or
 * lets a panic out.
 * Time and memory are bounded by limits on bytes, depth, nodes and comparisons, not by a clock, so that every machine
 * rejects the same texts.
 *
 * The normal text is Lark as llguidance reads it. It is the identity of the grammar: two texts of one form that differ
 * in insignificant white space, in annotations or in the names of definitions have the same normal text. The order of
 * keys stays as written, because it decides the order of the answer's keys.
 *
 * Every answer under the normal text is valid under the client's description. A keyword that cannot be enforced is an
 * error, never ignored. Keywords that have no effect on an answer (title, description, default, examples, unknown
 * formats, unknown keywords, uniqueItems: false) are dropped.
 */
#ifndef QUIRE_GRAMMAR_NORMAL_H
#define QUIRE_GRAMMAR_NORMAL_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum quire_grammar_form {
    QUIRE_FORM_JSON_OBJECT, /* any JSON object; needs no text */
    QUIRE_FORM_JSON_SCHEMA, /* a JSON schema, drafts 4 to 2020-12, and `nullable` of OpenAPI 3.0 */
    QUIRE_FORM_REGEX, /* matches the whole answer; ^ at its start and $ at its end change nothing */
    QUIRE_FORM_CHOICE, /* a JSON array of strings */
    QUIRE_FORM_LARK, /* as llguidance takes it. Schemas after %json are treated as JSON_SCHEMA. */
    QUIRE_FORM_GBNF, /* as llama.cpp takes it, with a rule `root` */
    QUIRE_FORM_STRUCTURAL_TAG, /* {"structures", "triggers"}, or {"type": "structural_tag", "format"} */
    QUIRE_FORM_TOOLS, /* see below */
    QUIRE_FORM_FREE, /* any text; needs no text here, but a reasoning */
};

/* QUIRE_FORM_TOOLS is what a tool_choice "required" or {named} becomes in a model's format:
 *     {"calls": [{"name": "f", "begin": "<tool_call>\n{\"name\": \"f\", \"arguments\": ", "schema": {…},
 *       "end": "}\n</tool_call>"}],
 *      "before": "", "between": "\n", "after": "", "at_most": 1}
 * The answer is `before`, then one call or more with `between` between them, then `after`. A call is its `begin`, a
 * JSON value of its `schema` (any object if absent), and its `end`. `name` only names the call in messages. Without
 * at_most, the number of calls is not bounded. A named tool is a list of one call with at_most 1. Optional members:
 *   "specials": {"<tool_call>": 7}   texts that are special tokens, and their ids
 *   "trigger": "<tool_call>"         the answer is free text in which this begins calls. If it is "", the answer is a
 *                                    list of calls, or text that begins with neither "first" nor "lead"
 * and of a call:
 *   "style": "qwen" | "glm" | "python"   how its arguments are written; "loose": true, without a schema: any arguments
 *   "numbered": "…"                  behind begin comes a number of 1 to 4 digits, then this */

enum quire_grammar_whitespace {
    QUIRE_WHITESPACE_COMPACT, /* {"a":1,"b":2} */
    QUIRE_WHITESPACE_SPACED, /* {"a": 1, "b": 2}, as most tool formats write their arguments */
    QUIRE_WHITESPACE_FLEXIBLE, /* any JSON white space between tokens */
};

/* A reasoning before the answer. It is any text without `end`, and the answer's form begins behind its end. */
enum quire_grammar_begins {
    QUIRE_REASONING_INSIDE, /* the prompt has opened it */
    QUIRE_REASONING_MAY, /* the answer may begin with `open` */
    QUIRE_REASONING_MUST, /* the answer begins with `open` */
};
struct quire_grammar_reasoning {
    enum quire_grammar_begins begins;
    const char *open; /* empty or NULL if it begins inside */
    const char *end; /* for example "</think>" */
    const char
        *force; /* the text that an exhausted budget forces: end, and more text if the form is FREE; NULL means end */
    const char *then; /* NULL, or text between end and the form, whose parts <|…|> are special tokens */
    int64_t budget; /* the most tokens between open and end; negative: any number */
};

struct quire_grammar_source {
    enum quire_grammar_form form;
    const char *text; /* UTF-8 */
    size_t n_bytes; /* at most 1 MiB */
    enum quire_grammar_whitespace whitespace; /* of JSON values */
    const struct quire_grammar_reasoning *reasoning; /* NULL: the form holds from the first token */
};

/* *out is malloc'd and NUL-terminated. Messages begin with the place in the text: a JSON pointer such as
 * "/properties/a/uniqueItems", or "line 3, column 7", or "byte 12". Returns QUIRE_INVALID if the text is wrong, is too
 * large, or has a keyword that cannot be enforced; QUIRE_UNSUPPORTED if a format of a structural tag is unknown. */
int quire_grammar_normal(const struct quire_grammar_source *source, char **out, size_t *n_bytes,
                         struct quire_error *err);

/* Whether a normal text restricts an answer, or the answer behind its reasoning. normal: may be NULL if n_bytes is 0. */
bool quire_grammar_has_form(const uint8_t *normal, size_t n_bytes);

#endif
