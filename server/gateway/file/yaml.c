#include "server/gateway/file/yaml.h"

#include "base/encoding/utf8.h"

#include <string.h>
#include <yaml.h>

struct yaml_reading {
    yaml_parser_t parser;
    const char *name, *text;
    size_t n_bytes;
    struct arena *arena;
    struct quire_error *err;
    uint32_t n_nodes, depth;
    struct yaml_node *open[YAML_MAX_DEPTH]; /* the mappings and sequences around the next node */
    struct yaml_node *root;
    const char *key; /* read, its value is next; NULL: none */
    yaml_mark_t key_at;
};

/* ---- errors --------------------------------------------------------------------------------- */

static int wrong(struct yaml_reading *r, yaml_mark_t at, const char *what)
{
    return quire_fail(r->err, QUIRE_INVALID, "%s:%zu:%zu: %s", r->name, at.line + 1, at.column + 1, what);
}

/* The place of a byte: lines end with LF. */
static yaml_mark_t place_of(const struct yaml_reading *r, size_t offset)
{
    yaml_mark_t at = {.index = offset};
    for (size_t i = 0; i < offset && i < r->n_bytes; i++) {
        const bool ends = r->text[i] == '\n';
        at.line += ends;
        at.column = ends ? 0 : at.column + ((r->text[i] & 0xC0) != 0x80);
    }
    return at;
}

/* libyaml's own message: static text. */
static int not_yaml(struct yaml_reading *r)
{
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR)
        return quire_fail(r->err, QUIRE_NO_MEMORY, "out of memory");
    const yaml_mark_t at = p->error == YAML_READER_ERROR ? place_of(r, p->problem_offset) : p->problem_mark;
    return quire_fail(r->err, QUIRE_INVALID, "%s:%zu:%zu: is not YAML: %s%s%s", r->name, at.line + 1, at.column + 1,
                      p->context ? p->context : "", p->context ? ": " : "",
                      p->problem ? p->problem : "it cannot be read");
}

static int check_text(struct yaml_reading *r)
{
    if (r->n_bytes > YAML_MAX_BYTES)
        return quire_fail(r->err, QUIRE_INVALID, "%s: has more than %zu bytes", r->name, YAML_MAX_BYTES);
    for (size_t i = 0, n; i < r->n_bytes; i += n) {
        n = utf8_character((const uint8_t *)r->text + i, r->n_bytes - i);
        if (n == 0)
            return wrong(r, place_of(r, i), "is not UTF-8 text");
    }
    return QUIRE_OK;
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static struct yaml_node *innermost(const struct yaml_reading *r)
{
    return r->depth ? r->open[r->depth - 1] : NULL;
}

static bool wants_key(const struct yaml_reading *r)
{
    return r->depth && innermost(r)->kind == YAML_MAPPING && !r->key;
}

/* C0, DEL and C1: a terminal may act on them. */
static bool is_control(const char *text)
{
    const unsigned char c = (unsigned char)text[0], second = (unsigned char)text[1];
    return c < 0x20 || c == 0x7f || (c == 0xC2 && second >= 0x80 && second < 0xA0);
}

static int check_scalar(struct yaml_reading *r, const char *text, size_t n, yaml_mark_t at)
{
    if (n > YAML_MAX_SCALAR)
        return wrong(r, at, "a text has more than 8192 bytes");
    for (size_t i = 0; i < n; i++)
        if (is_control(text + i)) /* libyaml ends a text with a NUL */
            return wrong(r, at, "a text has a control character or a line break");
    return QUIRE_OK;
}

static int take_key(struct yaml_reading *r, const char *text, size_t n, yaml_mark_t at)
{
    const struct yaml_node *same = yaml_get(innermost(r), text);
    if (same)
        return quire_fail(r->err, QUIRE_INVALID,
                          "%s:%zu:%zu: \"%.*s\" stands here a second time; the first is in line %u", r->name,
                          at.line + 1, at.column + 1, yaml_shown(text), text, same->key_line);
    r->key = arena_text(r->arena, text, n);
    r->key_at = at;
    return r->key ? QUIRE_OK : quire_fail(r->err, QUIRE_NO_MEMORY, "out of memory");
}

/* Hangs a new node into the innermost one. */
static int add(struct yaml_reading *r, enum yaml_kind kind, yaml_mark_t at, struct yaml_node **out)
{
    struct yaml_node *parent = innermost(r);
    if (wants_key(r))
        return wrong(r, at, "the name of a field must be a text");
    if (++r->n_nodes > YAML_MAX_NODES || (parent && parent->n >= YAML_MAX_ENTRIES))
        return wrong(r, at, parent ? "a list or mapping has too many entries" : "the file has too many values");
    struct yaml_node *node = arena_new(r->arena, sizeof *node);
    if (!node)
        return quire_fail(r->err, QUIRE_NO_MEMORY, "out of memory");
    node->kind = kind;
    node->line = (uint32_t)at.line + 1;
    node->column = (uint32_t)at.column + 1;
    node->key = r->key;
    node->key_line = r->key ? (uint32_t)r->key_at.line + 1 : node->line;
    node->key_column = r->key ? (uint32_t)r->key_at.column + 1 : node->column;
    r->key = NULL;
    if (!parent)
        r->root = node;
    else if (parent->last)
        parent->last->next = node;
    else
        parent->first = node;
    if (parent) {
        parent->last = node;
        parent->n++;
    }
    *out = node;
    return QUIRE_OK;
}

static int open_node(struct yaml_reading *r, enum yaml_kind kind, yaml_mark_t at)
{
    struct yaml_node *node;
    if (r->depth == YAML_MAX_DEPTH)
        return wrong(r, at, "is nested more than 16 levels deep");
    const int status = add(r, kind, at, &node);
    if (status == QUIRE_OK)
        r->open[r->depth++] = node;
    return status;
}

static int take_scalar(struct yaml_reading *r, const yaml_event_t *e)
{
    struct yaml_node *node;
    const char *text = (const char *)e->data.scalar.value;
    const size_t n = e->data.scalar.length;
    int status = check_scalar(r, text, n, e->start_mark);
    if (status == QUIRE_OK && wants_key(r))
        return take_key(r, text, n, e->start_mark);
    if (status == QUIRE_OK)
        status = add(r, YAML_SCALAR, e->start_mark, &node);
    if (status != QUIRE_OK)
        return status;
    node->is_plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    node->n = n;
    node->text = arena_text(r->arena, text, n);
    return node->text ? QUIRE_OK : quire_fail(r->err, QUIRE_NO_MEMORY, "out of memory");
}

/* ---- events --------------------------------------------------------------------------------- */

/* Refuses what a node may have before its value. */
static int check_properties(struct yaml_reading *r, const yaml_event_t *e)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;
    if (e->type == YAML_SCALAR_EVENT) {
        anchor = e->data.scalar.anchor;
        tag = e->data.scalar.tag;
    } else if (e->type == YAML_SEQUENCE_START_EVENT) {
        anchor = e->data.sequence_start.anchor;
        tag = e->data.sequence_start.tag;
    } else if (e->type == YAML_MAPPING_START_EVENT) {
        anchor = e->data.mapping_start.anchor;
        tag = e->data.mapping_start.tag;
    }
    if (anchor || e->type == YAML_ALIAS_EVENT)
        return wrong(r, e->start_mark, "anchors (&name) and aliases (*name) are not supported; write the value again");
    if (tag)
        return wrong(r, e->start_mark, "tags (!name) are not supported");
    return QUIRE_OK;
}

static int take(struct yaml_reading *r, const yaml_event_t *e)
{
    const int status = check_properties(r, e);
    if (status != QUIRE_OK)
        return status;
    switch (e->type) {
    case YAML_DOCUMENT_START_EVENT:
        return r->root ? wrong(r, e->start_mark, "a second document begins here; a file has one") : QUIRE_OK;
    case YAML_SCALAR_EVENT: return take_scalar(r, e);
    case YAML_SEQUENCE_START_EVENT: return open_node(r, YAML_SEQUENCE, e->start_mark);
    case YAML_MAPPING_START_EVENT: return open_node(r, YAML_MAPPING, e->start_mark);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: r->depth--; return QUIRE_OK;
    default: return QUIRE_OK;
    }
}

static int read_events(struct yaml_reading *r)
{
    for (bool is_over = false; !is_over;) {
        yaml_event_t e;
        if (!yaml_parser_parse(&r->parser, &e))
            return not_yaml(r);
        const int status = take(r, &e);
        is_over = e.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&e);
        if (status != QUIRE_OK)
            return status;
    }
    return r->root ? QUIRE_OK : wrong(r, (yaml_mark_t){0}, "the file is empty");
}

int yaml_parse(const char *text, size_t n_bytes, const char *name, struct arena *arena, const struct yaml_node **out,
               struct quire_error *err)
{
    struct yaml_reading r = {.name = name, .text = text, .n_bytes = n_bytes, .arena = arena, .err = err};
    *out = NULL;
    int status = check_text(&r);
    if (status != QUIRE_OK)
        return status;
    if (!yaml_parser_initialize(&r.parser))
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, n_bytes);
    status = read_events(&r);
    yaml_parser_delete(&r.parser);
    *out = status == QUIRE_OK ? r.root : NULL;
    return status;
}

int yaml_shown(const char *text)
{
    size_t n = strnlen(text, 64);
    while (n > 0 && (text[n] & 0xC0) == 0x80) /* within a character */
        n--;
    return (int)n;
}

const struct yaml_node *yaml_get(const struct yaml_node *mapping, const char *key)
{
    for (const struct yaml_node *n = mapping->first; n; n = n->next)
        if (strcmp(n->key, key) == 0)
            return n;
    return NULL;
}
