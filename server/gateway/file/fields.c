#include "server/gateway/file/fields.h"

#include "base/encoding/distance.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PICO_OF_1K UINT64_C(1000000000) /* picodollars for a token of one dollar for 1,000 */
#define MAX_DOLLARS 1000
#define MAX_DECIMALS 9

int fields_wrong(const struct fields *f, const struct yaml_node *at, const char *field, const char *format, ...)
{
    char what[QUIRE_ERROR_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return quire_fail(f->err, QUIRE_INVALID, "%s:%u:%u: %s%s%s%s%s", f->path, at->line, at->column, f->where,
                      f->where[0] ? ": " : "", field ? field : "", field ? ": " : "", what);
}

int fields_no_memory(const struct fields *f)
{
    return quire_fail(f->err, QUIRE_NO_MEMORY, "%s: out of memory", f->path);
}

/* ---- names of fields ------------------------------------------------------------------------ */

static int unknown(const struct fields *f, const struct yaml_node *entry, const char *const *known, size_t n)
{
    const char *closest = NULL;
    unsigned least = 4; /* more letters than this are no slip */
    for (size_t i = 0; i < n; i++) {
        const unsigned d = quire_distance(entry->key, strlen(entry->key), known[i], strlen(known[i]));
        if (d < least) {
            least = d;
            closest = known[i];
        }
    }
    const struct yaml_node at = {.line = entry->key_line, .column = entry->key_column};
    return closest ? fields_wrong(f, &at, NULL, "\"%.*s\" is not a field here; did you mean \"%s\"?",
                                  yaml_shown(entry->key), entry->key, closest)
                   : fields_wrong(f, &at, NULL, "\"%.*s\" is not a field here", yaml_shown(entry->key), entry->key);
}

int fields_check(const struct fields *f, const struct yaml_node *node, const char *field, const char *const *known,
                 size_t n)
{
    if (node->kind != YAML_MAPPING)
        return fields_wrong(f, node, field, "must be a mapping of fields (name: value)");
    for (const struct yaml_node *entry = node->first; entry; entry = entry->next) {
        bool is_known = false;
        for (size_t i = 0; i < n; i++)
            is_known |= strcmp(known[i], entry->key) == 0;
        if (!is_known)
            return unknown(f, entry, known, n);
    }
    return QUIRE_OK;
}

/* ---- texts ---------------------------------------------------------------------------------- */

/* YAML reads these as no value. */
static bool is_null(const struct yaml_node *node)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    bool found = false;
    for (size_t i = 0; i < sizeof nulls / sizeof *nulls; i++)
        found |= strcmp(node->text, nulls[i]) == 0;
    return node->is_plain && found;
}

int fields_text_of(const struct fields *f, const struct yaml_node *node, const char *field, const char **out)
{
    if (node->kind != YAML_SCALAR || is_null(node) || node->n == 0)
        return fields_wrong(f, node, field, "must be a text");
    *out = node->text;
    return QUIRE_OK;
}

int fields_text(const struct fields *f, const struct yaml_node *map, const char *field, const char **out)
{
    const struct yaml_node *node = yaml_get(map, field);
    return node ? fields_text_of(f, node, field, out) : QUIRE_OK;
}

int fields_name(const struct fields *f, const struct yaml_node *node, const char *field, const char **out)
{
    const int status = fields_text_of(f, node, field, out);
    if (status != QUIRE_OK)
        return status;
    const size_t n = strspn(*out, FIELDS_NAME_CHARACTERS);
    if (n != node->n || n > FIELDS_MAX_NAME)
        return fields_wrong(f, node, field, "\"%.*s\" must be a name: 1 to %d of A-Z a-z 0-9 - _ . : / @ +",
                            yaml_shown(*out), *out, FIELDS_MAX_NAME);
    return QUIRE_OK;
}

/* ---- numbers -------------------------------------------------------------------------------- */

int fields_u32(const struct fields *f, const struct yaml_node *map, const char *field, uint32_t min, uint32_t max,
               uint32_t *out)
{
    const struct yaml_node *node = yaml_get(map, field);
    uint64_t value = 0;
    if (!node)
        return QUIRE_OK;
    const bool is_text = node->kind == YAML_SCALAR && node->is_plain && node->n > 0 && node->n <= 10;
    /* YAML 1.1 reads 010 as eight: no number here begins with a zero. */
    bool is_number = is_text && strspn(node->text, "0123456789") == node->n && (node->text[0] != '0' || node->n == 1);
    for (size_t i = 0; is_number && i < node->n; i++)
        value = value * 10 + (uint64_t)(node->text[i] - '0');
    if (!is_number || value < min || value > max)
        return fields_wrong(f, node, field, "must be a whole number from %u to %u", min, max);
    *out = (uint32_t)value;
    return QUIRE_OK;
}

struct decimal {
    const char *digits, *point; /* the first digit; where the point is or would be */
    size_t n_whole, n_fraction;
    long exponent;
};

/* [+]digits[.digits][e[+-]digits] */
static bool read_decimal(const char *text, struct decimal *d)
{
    const char *at = text + (*text == '+');
    *d = (struct decimal){.digits = at, .n_whole = strspn(at, "0123456789")};
    d->point = at + d->n_whole;
    at = d->point;
    if (*at == '.') {
        d->n_fraction = strspn(at + 1, "0123456789");
        at += 1 + d->n_fraction;
    }
    if (d->n_whole + d->n_fraction == 0)
        return false;
    if (*at == 'e' || *at == 'E') {
        const bool is_negative = at[1] == '-';
        at += 1 + (at[1] == '-' || at[1] == '+');
        const size_t n = strspn(at, "0123456789");
        if (n == 0 || n > 4)
            return false;
        for (size_t i = 0; i < n; i++)
            d->exponent = d->exponent * 10 + (at[i] - '0');
        d->exponent = is_negative ? -d->exponent : d->exponent;
        at += n;
    }
    return *at == '\0';
}

/* Why it is no price; NULL: *out is set. */
static const char *read_price(const struct decimal *d, uint64_t *out)
{
    uint64_t sum = 0;
    const size_t n = d->n_whole + d->n_fraction;
    for (size_t i = 0; i < n; i++) {
        const char digit = i < d->n_whole ? d->digits[i] : d->point[1 + i - d->n_whole];
        /* The power of ten of this digit in dollars, then in picodollars for a token. */
        long power = (long)d->n_whole - 1 - (long)i + d->exponent + MAX_DECIMALS;
        if (digit == '0')
            continue;
        if (power < 0)
            return "has more than nine decimals";
        if (power > 12)
            return "must be at most 1000 dollars";
        uint64_t value = (uint64_t)(digit - '0');
        while (power-- > 0)
            value *= 10;
        sum += value;
    }
    *out = sum;
    return sum <= MAX_DOLLARS * PICO_OF_1K ? NULL : "must be at most 1000 dollars";
}

int fields_price(const struct fields *f, const struct yaml_node *map, const char *field, uint64_t *out)
{
    const struct yaml_node *node = yaml_get(map, field);
    struct decimal d;
    if (!node)
        return QUIRE_OK;
    const bool is_plain = node->kind == YAML_SCALAR && node->is_plain;
    if (is_plain && node->text[0] == '-' && read_decimal(node->text + 1, &d))
        return fields_wrong(f, node, field, "%.*s must not be negative", yaml_shown(node->text), node->text);
    if (!is_plain || !read_decimal(node->text, &d))
        return fields_wrong(f, node, field, "must be a number of dollars such as 0.0025");
    const char *why = read_price(&d, out);
    return why ? fields_wrong(f, node, field, "%.*s %s", yaml_shown(node->text), node->text, why) : QUIRE_OK;
}

/* ---- lists ---------------------------------------------------------------------------------- */

int fields_list(const struct fields *f, const struct yaml_node *map, const char *field, size_t max,
                const struct yaml_node **out)
{
    const struct yaml_node *node = yaml_get(map, field);
    if (!node)
        return QUIRE_OK;
    if (node->kind != YAML_SEQUENCE || node->n == 0 || node->n > max)
        return fields_wrong(f, node, field, "must be a list of 1 to %zu entries", max);
    *out = node;
    return QUIRE_OK;
}
