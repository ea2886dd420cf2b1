#include "server/gateway/account/usage_table.h"

#include <stdlib.h>
#include <string.h>

/* FNV-1a over the model's name, and the addresses of the others. */
static uint32_t bucket_of(const struct ledger_usage_row *row)
{
    uint64_t h = 14695981039346656037u;
    for (const char *c = row->model; *c; c++)
        h = (h ^ (uint8_t)*c) * 1099511628211u;
    h = (h ^ (uintptr_t)row->key ^ (uintptr_t)row->tenant << 1 ^ (uint64_t)row->day) * 1099511628211u;
    return (uint32_t)(h >> 32) % USAGE_BUCKETS;
}

static bool is_same(const struct ledger_usage_row *a, const struct ledger_usage_row *b)
{
    return a->day == b->day && a->key == b->key && a->tenant == b->tenant && a->organisation == b->organisation &&
           strcmp(a->layer, b->layer) == 0 && strcmp(a->model, b->model) == 0;
}

static uint64_t sum(uint64_t a, uint64_t b)
{
    return __builtin_add_overflow(a, b, &a) ? UINT64_MAX : a;
}

static void add_sums(struct ledger_sums *to, const struct ledger_sums *more)
{
    to->requests = sum(to->requests, more->requests);
    to->input = sum(to->input, more->input);
    to->cached_input = sum(to->cached_input, more->cached_input);
    to->output = sum(to->output, more->output);
    to->cost = sum(to->cost, more->cost);
    to->saved = sum(to->saved, more->saved);
}

bool usage_table_add(struct usage_table *t, const struct ledger_usage_row *row)
{
    struct usage_entry **bucket = &t->buckets[bucket_of(row)];
    for (struct usage_entry *e = *bucket; e; e = e->next) {
        if (!is_same(&e->row, row))
            continue;
        add_sums(&e->row.sums, &row->sums);
        e->row.used = row->used > e->row.used ? row->used : e->row.used;
        return true;
    }
    const size_t n = strlen(row->model) + 1;
    struct usage_entry *e = malloc(sizeof *e + n);
    if (!e)
        return false;
    e->row = *row;
    memcpy(e->model, row->model, n);
    e->row.model = e->model;
    e->next = *bucket;
    *bucket = e;
    t->n++;
    return true;
}

bool usage_table_move(struct usage_table *from, struct usage_table *to)
{
    bool ok = true;
    if (to->n == 0) {
        *to = *from;
        *from = (struct usage_table){0};
        return true;
    }
    for (size_t i = 0; i < USAGE_BUCKETS; i++)
        for (const struct usage_entry *e = from->buckets[i]; e; e = e->next)
            ok &= usage_table_add(to, &e->row);
    usage_table_free(from);
    return ok;
}

void usage_table_free(struct usage_table *t)
{
    for (size_t i = 0; i < USAGE_BUCKETS; i++) {
        for (struct usage_entry *e = t->buckets[i], *next; e; e = next) {
            next = e->next;
            free(e);
        }
    }
    *t = (struct usage_table){0};
}
