#include "server/similar/guards.h"

#include "server/similar/said.h"

#include <string.h>

#define TALLY_SLOTS 2048 /* at most half are used, by both texts' items */

/* How often each item is in the first text, less how often in the second. */
struct tally {
    uint64_t keys[TALLY_SLOTS];
    int32_t counts[TALLY_SLOTS];
};

static int32_t *count_of(struct tally *t, uint64_t key)
{
    size_t at = key % TALLY_SLOTS;
    while (t->keys[at] != key && t->keys[at] != 0)
        at = (at + 1) % TALLY_SLOTS;
    t->keys[at] = key;
    return &t->counts[at];
}

/* The kinds of what only this text says, as bits; sign: +1 of the first text. */
static unsigned only_here(const struct said *said, struct tally *t, int sign)
{
    unsigned kinds = 0;
    for (size_t i = 0; i < said->n; i++)
        if (*count_of(t, said->items[i].hash) * sign > 0)
            kinds |= 1u << said->items[i].kind;
    return kinds;
}

/* Whether one text has a word of its own, and the other the same word with "un-". */
static bool is_undone(const struct said *said, struct tally *t, int sign)
{
    for (size_t i = 0; i < said->n; i++) {
        const struct said_item *item = &said->items[i];
        if (item->bare && *count_of(t, item->hash) * sign > 0 && *count_of(t, item->bare) * sign < 0)
            return true;
    }
    return false;
}

/* Whether each text has one of these leans that the other does not have. */
static bool apart(const struct said *a, const struct said *b, uint32_t of)
{
    return a->leans & ~b->leans & of && b->leans & ~a->leans & of;
}

static bool opposed(const struct said *a, const struct said *b)
{
    for (size_t i = 0; i < MAX_POLES / 64; i++) {
        uint64_t a_only[2] = {a->poles[0][i] & ~a->poles[1][i], a->poles[1][i] & ~a->poles[0][i]};
        uint64_t b_only[2] = {b->poles[0][i] & ~b->poles[1][i], b->poles[1][i] & ~b->poles[0][i]};
        if ((a_only[0] & b_only[1]) || (a_only[1] & b_only[0]))
            return true;
    }
    /* "Who hired", "who was hired", "who has hired"; "who owns", "who owned", "who will own". */
    const uint32_t strict = LEAN_PAST | LEAN_FUTURE | (a->has_past || b->has_past ? LEAN_VERBS : 0) |
                            (a->marks & b->marks & 1u << MARK_YES_NO ? LEAN_PERSONS : 0);
    return (a->leans ^ b->leans) & strict || apart(a, b, LEAN_TENSES) || apart(a, b, LEAN_PERSONS) ||
           apart(a, b, LEAN_VERBS);
}

static bool in_one_order(const struct said *a, const struct said *b)
{
    for (size_t i = 0; i < a->n; i++)
        if (a->items[i].hash != b->items[i].hash)
            return false;
    return true;
}

/* For texts with equal items in one order: whether all verbs have the same form. */
static bool in_one_form(const struct said *a, const struct said *b)
{
    for (size_t i = 0; i < a->n; i++) {
        const uint8_t x = a->items[i].form, y = b->items[i].form;
        const bool nouns = (x == FORM_NOUN && y != FORM_PAST) || (y == FORM_NOUN && x != FORM_PAST);
        if (x != y && x != FORM_ANY && y != FORM_ANY && !nouns)
            return false;
    }
    return true;
}

/* Likewise, whether one word is written with other capitals that say something. */
static const struct said_item *other_case(const struct said *a, const struct said *b)
{
    for (size_t i = 0; i < a->n; i++) {
        const struct said_item *x = &a->items[i], *y = &b->items[i];
        if ((x->is_cased || y->is_cased) && x->folded == y->folded && x->cased && y->cased && x->cased != y->cased)
            return x;
    }
    return NULL;
}

static enum guard compare(const struct said *a, const struct said *b, struct tally *t)
{
    for (size_t i = 0; i < a->n; i++)
        ++*count_of(t, a->items[i].hash);
    for (size_t i = 0; i < b->n; i++)
        --*count_of(t, b->items[i].hash);
    unsigned kinds = only_here(a, t, 1) | only_here(b, t, -1), marks = a->marks ^ b->marks;
    const unsigned ways = 1u << MARK_FROM | 1u << MARK_BY;
    if (kinds & 1u << SAID_NUMBER)
        return GUARD_NUMBERS;
    if (kinds & 1u << SAID_NAME)
        return GUARD_NAMES;
    if (kinds & 1u << SAID_UNIT)
        return GUARD_UNITS;
    if (a->nots != b->nots || is_undone(a, t, 1) || is_undone(b, t, -1))
        return GUARD_NEGATION;
    if (opposed(a, b))
        return GUARD_POLARITY;
    if (marks & ways || apart(a, b, LEAN_PREPOSITIONS))
        return GUARD_DIRECTION;
    if (kinds || marks)
        return GUARD_WORDS;
    if (!in_one_order(a, b))
        return GUARD_DIRECTION;
    if (!in_one_form(a, b))
        return GUARD_POLARITY;
    const struct said_item *cased = other_case(a, b);
    if (cased)
        return cased->kind == SAID_UNIT ? GUARD_UNITS : GUARD_NAMES;
    /* "Are the mushrooms edible", "are mushrooms edible": asked for yes or no, these are some and all. */
    if (a->marks & 1u << MARK_YES_NO && a->n_the != b->n_the)
        return GUARD_WORDS;
    return (a->only_plain || b->only_plain) && a->plain != b->plain ? GUARD_WORDS : GUARD_NONE;
}

enum guard guard_differs(const char *a, size_t n_a, const char *b, size_t n_b)
{
    struct said said_a, said_b;
    struct tally tally;
    if (n_a == n_b && (n_a == 0 || memcmp(a, b, n_a) == 0))
        return GUARD_NONE;
    said_read(a, n_a, &said_a);
    said_read(b, n_b, &said_b);
    if (said_a.plain == said_b.plain && said_a.cased == said_b.cased)
        return GUARD_NONE;
    if (said_a.script != said_b.script || (said_a.language && said_b.language && said_a.language != said_b.language))
        return GUARD_LANGUAGE;
    memset(&tally, 0, sizeof tally);
    return compare(&said_a, &said_b, &tally);
}

const char *guard_name(enum guard guard)
{
    static const char *const names[N_GUARDS] = {"none",     "numbers",   "names",    "units", "negation",
                                                "polarity", "direction", "language", "words"};
    return guard < N_GUARDS ? names[guard] : "none";
}
