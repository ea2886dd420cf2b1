#include "server/bulk/run/prefix.h"

#include "base/checksum.h"
#include "text/quire_json.h"

#include <stdlib.h>
#include <string.h>

/* The beginning that is not hashed yet, in pieces: a checksum covers a level's bytes from the level before. */
struct reader {
    struct bulk_prefix *out;
    uint64_t sum;
    char piece[1024];
    size_t n, left; /* bytes in the piece; bytes missing from the level */
    unsigned level;
};

static const uint32_t ends[BULK_PREFIX_LEVELS] = {
    64,    91,    128,   181,   256,   362,   512,   724,    1024,   1448,   2048,   2896,   4096,   5793,   8192,
    11585, 16384, 23170, 32768, 46341, 65536, 92682, 131072, 185364, 262144, 370728, 524288, 741455, 1048576};

static void flush(struct reader *r)
{
    r->sum = quire_checksum(r->sum, r->piece, r->n);
    r->n = 0;
}

static void add(struct reader *r, const char *text, size_t n)
{
    while (n > 0 && r->level < BULK_PREFIX_LEVELS) {
        size_t take = sizeof r->piece - r->n;
        take = take < n ? take : n;
        take = take < r->left ? take : r->left;
        memcpy(r->piece + r->n, text, take);
        r->n += take;
        r->left -= take;
        text += take;
        n -= take;
        if (r->n == sizeof r->piece || r->left == 0)
            flush(r);
        if (r->left > 0)
            continue;
        r->out->begins[r->level] = (uint32_t)(r->sum ^ r->sum >> 32);
        r->level++;
        r->left = r->level < BULK_PREFIX_LEVELS ? ends[r->level] - ends[r->level - 1] : 0;
    }
}

/* A value without the blanks that a writer may put between its parts at the upper levels. */
static void add_value(struct reader *r, struct quire_value value, unsigned depth)
{
    const enum quire_kind kind = quire_value_kind(value);
    if (depth == 0 || (kind != QUIRE_OBJECT && kind != QUIRE_ARRAY)) {
        add(r, value.text, value.n);
        return;
    }
    add(r, value.text, 1);
    for (struct quire_value rest = value, key, item;
         quire_value_next(&rest, &key, &item) && r->level < BULK_PREFIX_LEVELS;) {
        add(r, key.text, key.n);
        add_value(r, item, depth - 1);
        add(r, ",", 1);
    }
}

#define N_FIELDS 7

void bulk_prefix_of(const char *body, size_t n_bytes, uint32_t line, struct bulk_prefix *out)
{
    /* In the order in which templates render them. */
    static const char *const names[N_FIELDS] = {"model",    "tools",  "system", "instructions",
                                                "messages", "prompt", "input"};
    struct quire_value fields[N_FIELDS] = {{0}};
    struct reader r = {.out = out, .left = ends[0]};
    *out = (struct bulk_prefix){.line = line};
    for (struct quire_value rest = {body, n_bytes}, key, value; quire_value_next(&rest, &key, &value);)
        for (size_t i = 0; i < N_FIELDS; i++)
            if (quire_value_is(key, names[i]))
                fields[i] = value;
    for (size_t i = 0; i < N_FIELDS; i++)
        add_value(&r, fields[i], 4);
    /* The levels above the prompt's length have the checksum of all of it. */
    flush(&r);
    for (; r.level < BULK_PREFIX_LEVELS; r.level++)
        out->begins[r.level] = (uint32_t)(r.sum ^ r.sum >> 32);
}

static int compare(const void *a, const void *b)
{
    const struct bulk_prefix *x = a, *y = b;
    for (int i = 0; i < BULK_PREFIX_LEVELS; i++)
        if (x->begins[i] != y->begins[i])
            return x->begins[i] < y->begins[i] ? -1 : 1;
    return x->line < y->line ? -1 : x->line > y->line;
}

/* Within each run of prompts that are equal up to a level, the lowest line takes the checksum's place. */
static void name_groups(struct bulk_prefix *all, uint32_t n, int level)
{
    for (uint32_t i = 0, end; i < n; i = end) {
        uint32_t first = all[i].line;
        for (end = i + 1;
             end < n && memcmp(all[i].begins, all[end].begins, ((size_t)level + 1) * sizeof(uint32_t)) == 0; end++)
            first = all[end].line < first ? all[end].line : first;
        for (uint32_t j = i; j < end; j++)
            all[j].begins[level] = first;
    }
}

void bulk_prefix_sort(struct bulk_prefix *all, uint32_t n)
{
    qsort(all, n, sizeof *all, compare);
    /* The longest first: a level's runs are told by the checksums below it. */
    for (int level = BULK_PREFIX_LEVELS - 1; level >= 0; level--)
        name_groups(all, n, level);
    qsort(all, n, sizeof *all, compare);
}
