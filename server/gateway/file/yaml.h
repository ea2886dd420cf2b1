/* One YAML document as a tree of nodes with their places, by libyaml. The subset that configuration needs: mappings with
 * text keys, sequences, scalars. Anchors, aliases, tags, a second document, repeated keys, text that is not UTF-8
 * or has control characters, and sizes beyond the limits below are rejected. Nothing is interpreted: the reader of a field says
 * what a scalar means. All memory is the arena's. Any thread on its own values.
 */
#ifndef QUIRE_GATEWAY_YAML_H
#define QUIRE_GATEWAY_YAML_H

#include "base/status.h"
#include "server/gateway/file/arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define YAML_MAX_BYTES ((size_t)1 << 20)
#define YAML_MAX_DEPTH 16
#define YAML_MAX_NODES 65536
#define YAML_MAX_ENTRIES 1024 /* entries in a mapping or sequence */
#define YAML_MAX_SCALAR 8192 /* bytes */

enum yaml_kind { YAML_SCALAR, YAML_SEQUENCE, YAML_MAPPING };

struct yaml_node {
    enum yaml_kind kind;
    uint32_t line, column; /* from 1; characters */
    bool is_plain; /* a scalar without quotes */
    const char *text; /* a scalar's UTF-8 without control characters */
    size_t n; /* bytes of text, or number of children */
    const char *key; /* in a mapping: its name; the place is key_line, key_column */
    uint32_t key_line, key_column;
    struct yaml_node *first, *last, *next; /* children; the next sibling */
};

/* Errors are QUIRE_INVALID: "NAME:LINE:COLUMN: what is wrong". */
int yaml_parse(const char *text, size_t n_bytes, const char *name, struct arena *arena, const struct yaml_node **out,
               struct quire_error *err);

/* Bytes of a text that a message shows: whole characters, at most 64 bytes. */
int yaml_shown(const char *text);

/* A mapping's entry; NULL: absent. */
const struct yaml_node *yaml_get(const struct yaml_node *mapping, const char *key);

#endif
