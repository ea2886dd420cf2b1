/* Fields of a models file, with errors that name the place and the field: "FILE:LINE:COLUMN: WHERE: field: what is wrong".
 * A field that is absent leaves its target as it was and is QUIRE_OK, so that a default is written before the call.
 * All memory is the arena's. Any thread on its own values.
 */
#ifndef QUIRE_GATEWAY_FIELDS_H
#define QUIRE_GATEWAY_FIELDS_H

#include "server/gateway/file/yaml.h"

/* A name of a model, alias, target or tenant: 1 to 128 of A-Z a-z 0-9 - _ . : / @ + */
#define FIELDS_MAX_NAME 128
#define FIELDS_NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/@+"

struct fields {
    const char *path; /* the file, for messages */
    char where[FIELDS_MAX_NAME + 48]; /* "model small: target 2"; "": the file's own fields */
    struct arena *arena;
    struct quire_error *err;
};

/* Reports what is wrong at a node; field may be NULL. */
int fields_wrong(const struct fields *f, const struct yaml_node *at, const char *field, const char *format, ...)
    __attribute__((format(printf, 4, 5), cold));
int fields_no_memory(const struct fields *f);

/* Whether a node is a mapping that has only fields of known[n]. field: its own name, or NULL. */
int fields_check(const struct fields *f, const struct yaml_node *node, const char *field, const char *const *known,
                 size_t n);

/* A text: not empty, not null. *out is in the tree's arena. */
int fields_text(const struct fields *f, const struct yaml_node *map, const char *field, const char **out);
/* The same for a node. */
int fields_text_of(const struct fields *f, const struct yaml_node *node, const char *field, const char **out);
/* A text that is a name. */
int fields_name(const struct fields *f, const struct yaml_node *node, const char *field, const char **out);
/* Whole decimal digits without quotes. */
int fields_u32(const struct fields *f, const struct yaml_node *map, const char *field, uint32_t min, uint32_t max,
               uint32_t *out);
/* Dollars for 1,000 tokens as picodollars for a token: a decimal number with at most nine decimals, read exactly. At most
 * 1,000 dollars. */
int fields_price(const struct fields *f, const struct yaml_node *map, const char *field, uint64_t *out);
/* A sequence of at most max entries, not empty. */
int fields_list(const struct fields *f, const struct yaml_node *map, const char *field, size_t max,
                const struct yaml_node **out);

#endif
