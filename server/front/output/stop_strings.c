#include "server/front/output/stop_strings.h"

#include <stdlib.h>
#include <string.h>

bool stop_set_add(struct stop_set **set, const char *text, size_t n_bytes)
{
    char *copy = malloc(n_bytes);
    struct stop_set *to = *set ? *set : calloc(1, sizeof *to);
    if (!copy || !to) {
        free(copy);
        if (!*set)
            free(to);
        return false;
    }
    memcpy(copy, text, n_bytes);
    to->strings[to->n] = copy;
    to->bytes[to->n++] = n_bytes;
    if (n_bytes > to->longest)
        to->longest = n_bytes;
    *set = to;
    return true;
}

void stop_set_free(struct stop_set *set)
{
    for (size_t i = 0; set && i < set->n; i++)
        free(set->strings[i]);
    free(set);
}

void stop_holder_free(struct stop_holder *h)
{
    free(h->text);
    *h = (struct stop_holder){0};
}

/* Removes the text that the last call released and adds the piece. */
static bool append(struct stop_holder *h, const char *piece, size_t n_piece)
{
    if (h->n_given > 0) {
        h->n -= h->n_given;
        memmove(h->text, h->text + h->n_given, h->n);
        h->n_given = 0;
    }
    if (n_piece > h->capacity - h->n) {
        size_t capacity = h->capacity ? h->capacity : 64;
        while (capacity - h->n < n_piece)
            capacity *= 2;
        char *grown = realloc(h->text, capacity);
        if (!grown)
            return false;
        h->text = grown;
        h->capacity = capacity;
    }
    if (n_piece > 0)
        memcpy(h->text + h->n, piece, n_piece);
    h->n += n_piece;
    return true;
}

/* Returns the stop string that is complete first, at an end past n_old; -1: no match. */
static int find(const struct stop_holder *h, const struct stop_set *set, size_t n_old, size_t *start)
{
    int found = -1;
    size_t best_end = 0;
    for (size_t i = 0; i < set->n; i++) {
        size_t n = set->bytes[i];
        /* The earlier text can contain the beginning of a match, but not all of it. */
        size_t from = n_old >= n ? n_old - n + 1 : 0;
        if (h->n < from + n)
            continue;
        const char *at = memmem(h->text + from, h->n - from, set->strings[i], n);
        if (!at)
            continue;
        size_t begin = (size_t)(at - h->text), end = begin + n;
        if (found < 0 || end < best_end || (end == best_end && begin < *start)) {
            found = (int)i;
            best_end = end;
            *start = begin;
        }
    }
    return found;
}

/* Number of bytes at the end that may begin a stop string. */
static size_t held_back(const struct stop_holder *h, const struct stop_set *set)
{
    size_t most = 0;
    for (size_t i = 0; i < set->n; i++) {
        size_t k = set->bytes[i] - 1;
        if (k > h->n)
            k = h->n;
        for (; k > most; k--)
            if (memcmp(h->text + h->n - k, set->strings[i], k) == 0) {
                most = k;
                break;
            }
    }
    return most;
}

int stop_holder_push(struct stop_holder *h, const struct stop_set *set, bool armed, bool include, const char *piece,
                     size_t n_piece, const char **out, size_t *n_out)
{
    if (!set) { /* without stop strings nothing is copied */
        *out = piece;
        *n_out = n_piece;
        return -1;
    }
    if (!append(h, piece, n_piece)) {
        *out = "";
        *n_out = 0;
        return -2;
    }
    size_t start = 0;
    int found = armed ? find(h, set, h->n - n_piece, &start) : -1;
    if (found >= 0) {
        h->n = h->n_given = include ? start + set->bytes[found] : start;
    } else {
        h->n_given = h->n - held_back(h, set);
    }
    *out = h->text ? h->text : "";
    *n_out = h->n_given;
    return found;
}

void stop_holder_finish(struct stop_holder *h, const char **out, size_t *n_out)
{
    *out = h->text ? h->text + h->n_given : "";
    *n_out = h->n - h->n_given;
    h->n_given = h->n;
}
