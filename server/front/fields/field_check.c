#include "server/front/fields/field_check.h"

#include "base/encoding/suggest.h"
#include "request/fields.h"
#include "text/quire_chat.h"

#include <stdio.h>
#include <string.h>

/* Names that are looked up in the chat template, which takes a microsecond each. A body with more of them is not
 * written by hand, and the others count as known. */
#define MAX_LOOKUPS 200
#define NAME_SHOWN 64

struct walk {
    const struct quire_text *text;
    struct field_notes **notes;
    unsigned n_lookups;
};

/* Where a value stands: a member of the object above, or an item of the array above. */
struct place {
    const struct place *up; /* NULL: the body */
    struct quire_value key; /* empty: an item */
    size_t index;
};

/* ---- paths ---------------------------------------------------------------------------------- */

/* Appends to out, which has size bytes and n of them used; returns the new n. */
static size_t put_path(const struct place *at, char *out, size_t size)
{
    if (!at)
        return 0;
    size_t n = put_path(at->up, out, size);
    if (n >= size)
        return n;
    if (!at->key.n)
        return n + (size_t)snprintf(out + n, size - n, "[%zu]", at->index);
    const size_t n_name = at->key.n - 2;
    return n + (size_t)snprintf(out + n, size - n, "%s%.*s%s", n > 0 ? "." : "",
                                (int)(n_name < NAME_SHOWN ? n_name : NAME_SHOWN), at->key.text + 1,
                                n_name > NAME_SHOWN ? "..." : "");
}

static bool is_full(const struct walk *w)
{
    return *w->notes && (*w->notes)->n == FIELD_NOTES_MOST;
}

/* ---- names ---------------------------------------------------------------------------------- */

static bool is_name(struct quire_value key, const char *name, size_t n)
{
    return key.n == n + 2 ? memcmp(key.text + 1, name, n) == 0 : key.n > n + 2 && quire_value_says(key, name);
}

static const struct field_row *find_row(const struct field_shape *shape, struct quire_value key)
{
    for (size_t t = 0; t < FIELD_MAX_TABLES && shape->tables[t]; t++)
        for (size_t i = 0; i < shape->tables[t]->n_rows; i++)
            if (is_name(key, shape->tables[t]->rows[i].name, shape->tables[t]->rows[i].n_name))
                return &shape->tables[t]->rows[i];
    return NULL;
}

static bool is_of_spec(struct quire_value key)
{
    for (size_t i = 0; i < request_n_fields; i++)
        if (request_fields[i].flags & REQUEST_IN_BODY && quire_value_is(key, request_fields[i].name))
            return true;
    return false;
}

static bool has_name(const struct field_shape *shape, const char *name)
{
    for (size_t t = 0; t < FIELD_MAX_TABLES && shape->tables[t]; t++)
        for (size_t i = 0; i < shape->tables[t]->n_rows && !shape->tables[t]->is_quiet; i++)
            if (strcmp(shape->tables[t]->rows[i].name, name) == 0)
                return true;
    return false;
}

/* Returns the field of this route that means the same as another route's field, or NULL if this route has no such field. */
static const char *counterpart(const struct field_shape *shape, struct quire_value key)
{
    static const char *const names[][2] = {
        {"max_tokens", "max_output_tokens"},
        {"max_completion_tokens", "max_output_tokens"},
        {"max_output_tokens", "max_tokens"},
        {"prompt", "messages"},
        {"prompt", "input"},
        {"input", "messages"},
        {"input", "prompt"},
        {"messages", "input"},
        {"messages", "prompt"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is_name(key, names[i][0], strlen(names[i][0])) && has_name(shape, names[i][1]))
            return names[i][1];
    return NULL;
}

static struct suggest suggest_for(const struct field_shape *shape, struct quire_value key)
{
    struct suggest near = suggest_begin(key.text + 1, key.n - 2);
    const char *other = counterpart(shape, key);
    if (other) {
        near.best = other;
        near.n_best = strlen(other);
        return near;
    }
    for (size_t t = 0; t < FIELD_MAX_TABLES && shape->tables[t]; t++)
        for (size_t i = 0; i < shape->tables[t]->n_rows && !shape->tables[t]->is_quiet; i++)
            suggest_try(&near, shape->tables[t]->rows[i].name, shape->tables[t]->rows[i].n_name);
    for (size_t i = 0; shape->has_spec && i < request_n_fields; i++)
        if (request_fields[i].flags & REQUEST_IN_BODY)
            suggest_try(&near, request_fields[i].name, strlen(request_fields[i].name));
    return near;
}

/* ---- names that the chat template knows ----------------------------------------------------- */

/* Returns whether the string may be looked up; otherwise *known is the answer. */
static bool may_look_up(struct walk *w, struct quire_value string, bool *known)
{
    *known = w->n_lookups >= MAX_LOOKUPS;
    if (*known || string.n > NAME_SHOWN + 2)
        return false;
    w->n_lookups++;
    return true;
}

static bool template_has_member(struct walk *w, struct quire_value key)
{
    bool known;
    return may_look_up(w, key, &known) ? quire_text_chat_uses(w->text, key.text + 1, key.n - 2) : known;
}

/* A template compares roles with strings. */
static bool template_has_role(struct walk *w, struct quire_value role)
{
    char words[NAME_SHOWN + 3];
    bool known;
    if (!may_look_up(w, role, &known))
        return known;
    snprintf(words, sizeof words, "%.*s", (int)role.n, role.text);
    if (quire_text_chat_mentions(w->text, words))
        return true;
    words[0] = words[role.n - 1] = '\'';
    return quire_text_chat_mentions(w->text, words);
}

/* ---- notes ---------------------------------------------------------------------------------- */

static void note_unknown(struct walk *w, const struct field_shape *shape, const struct place *at)
{
    char path[160];
    if (shape->is_of_template && template_has_member(w, at->key))
        return;
    const bool is_shown = !*w->notes || (*w->notes)->n < FIELD_NOTES_SHOWN;
    const struct suggest near = is_shown ? suggest_for(shape, at->key) : (struct suggest){.best = NULL};
    put_path(at, path, sizeof path);
    if (near.best)
        field_notes_add(w->notes, path, "unknown field; did you mean %.*s?", (int)near.n_best, near.best);
    else
        field_notes_add(w->notes, path, "unknown field");
}

static void check_role(struct walk *w, const struct field_shape *shape, struct quire_value role, const struct place *at)
{
    char path[160];
    if (quire_value_kind(role) != QUIRE_STRING || role.n == 2)
        return;
    for (const char *const *known = shape->roles; *known; known++)
        if (quire_value_is(role, *known))
            return;
    if (template_has_role(w, role))
        return;
    put_path(at, path, sizeof path);
    field_notes_add(w->notes, path, "%.*s is not a role of this API, and the model's chat template does not name it",
                    (int)(role.n < NAME_SHOWN ? role.n : NAME_SHOWN), role.text);
}

static void check_only(struct walk *w, const struct field_row *row, struct quire_value value, const struct place *at)
{
    char path[160];
    if (quire_value_kind(value) == QUIRE_NULL ||
        (value.n == strlen(row->only) && memcmp(value.text, row->only, value.n) == 0))
        return;
    put_path(at, path, sizeof path);
    field_notes_add(w->notes, path, "has no effect: only %s is supported", row->only);
}

/* ---- the walk ------------------------------------------------------------------------------- */

static void check_value(struct walk *w, const struct field_shape *shape, struct quire_value value,
                        const struct place *at);

static void check_member(struct walk *w, const struct field_shape *shape, struct quire_value value,
                         const struct place *at)
{
    const struct field_row *row = find_row(shape, at->key);
    if (row && row->inner)
        check_value(w, row->inner, value, at);
    else if (row && shape->roles && quire_value_is(at->key, "role"))
        check_role(w, shape, value, at);
    else if (row && row->only)
        check_only(w, row, value, at);
    else if (!row && quire_value_kind(value) != QUIRE_NULL && !(shape->has_spec && is_of_spec(at->key)))
        note_unknown(w, shape, at);
}

static void check_object(struct walk *w, const struct field_shape *shape, struct quire_value object,
                         const struct place *up)
{
    struct place at = {.up = up};
    struct quire_value value;
    while (!is_full(w) && quire_value_next(&object, &at.key, &value))
        check_member(w, shape, value, &at);
}

/* Recursion ends at the document's depth. */
static void check_value(struct walk *w, const struct field_shape *shape, struct quire_value value,
                        const struct place *at)
{
    struct place item = {.up = at};
    struct quire_value one;
    if (quire_value_kind(value) == QUIRE_OBJECT)
        check_object(w, shape, value, at);
    if (quire_value_kind(value) != QUIRE_ARRAY)
        return;
    for (; !is_full(w) && quire_value_next(&value, NULL, &one); item.index++)
        check_value(w, shape, one, &item);
}

void field_check(const struct field_shape *shape, struct quire_value body, const struct quire_text *text,
                 struct field_notes **notes)
{
    struct walk w = {.text = text, .notes = notes};
    check_object(&w, shape, body, NULL);
}
