#include "golden.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COUNT 100000

/* Reads whitespace-separated words; after the first failure every call fails. */
struct reader {
    FILE *file;
    bool failed;
};

static const char *word(struct reader *r, char buffer[80])
{
    if (r->failed || fscanf(r->file, "%79s", buffer) != 1) {
        r->failed = true;
        buffer[0] = '\0';
    }
    return buffer;
}

static double number(struct reader *r)
{
    char buffer[80], *end;
    word(r, buffer);
    double value = strtod(buffer, &end);
    if (end == buffer || *end || !isfinite(value))
        r->failed = true;
    return r->failed ? 0.0 : value;
}

static uint32_t whole(struct reader *r, uint32_t max)
{
    double value = number(r);
    if (!(value >= 0.0 && value <= max) || value != floor(value))
        r->failed = true;
    return r->failed ? 0 : (uint32_t)value;
}

/* A count and that many entries. An array that is there already means a line given twice. */
static uint32_t *read_ids(struct reader *r, uint32_t *n, uint32_t *old)
{
    *n = whole(r, MAX_COUNT);
    uint32_t *ids = old ? NULL : calloc((size_t)*n + 1, sizeof *ids);
    if (!ids) {
        r->failed = true;
        return old;
    }
    for (uint32_t i = 0; i < *n; i++)
        ids[i] = whole(r, UINT32_MAX);
    return ids;
}

static double *read_numbers(struct reader *r, uint32_t expected, double *old)
{
    uint32_t n = whole(r, MAX_COUNT);
    double *values = old || n != expected ? NULL : calloc((size_t)n + 1, sizeof *values);
    if (!values) {
        r->failed = true;
        return old;
    }
    for (uint32_t i = 0; i < n; i++)
        values[i] = number(r);
    return values;
}

static void read_top(struct reader *r, struct golden *g)
{
    if (g->n_tops == GOLDEN_MAX_TOPS) {
        r->failed = true;
        return;
    }
    struct golden_top *top = &g->tops[g->n_tops++];
    top->position = whole(r, g->n_prompt);
    if (top->position == 0 || whole(r, GOLDEN_TOP) != GOLDEN_TOP)
        r->failed = true;
    for (uint32_t i = 0; i < GOLDEN_TOP; i++) {
        top->ids[i] = whole(r, UINT32_MAX);
        top->logprobs[i] = number(r);
    }
}

static void read_line(struct reader *r, const char *key, struct golden *g)
{
    char buffer[80];
    if (strcmp(key, "name") == 0)
        snprintf(g->name, sizeof g->name, "%.63s", word(r, buffer));
    else if (strcmp(key, "naive_error") == 0)
        g->naive_error = number(r);
    else if (strcmp(key, "fp32_noise") == 0)
        g->fp32_noise = number(r);
    else if (strcmp(key, "tolerance") == 0)
        g->tolerance = number(r);
    else if (strcmp(key, "streaming") == 0) {
        g->attention_sinks = whole(r, MAX_COUNT);
        g->attention_window = whole(r, MAX_COUNT);
    } else if (strcmp(key, "prompt") == 0)
        g->prompt = read_ids(r, &g->n_prompt, g->prompt);
    else if (strcmp(key, "next") == 0)
        g->next_logprob = read_numbers(r, g->n_prompt - 1, g->next_logprob);
    else if (strcmp(key, "top") == 0)
        read_top(r, g);
    else if (strcmp(key, "greedy") == 0)
        g->greedy = read_ids(r, &g->n_greedy, g->greedy);
    else if (strcmp(key, "greedy_logprob") == 0)
        g->greedy_logprob = read_numbers(r, g->n_greedy, g->greedy_logprob);
    else if (strcmp(key, "greedy_margin") == 0)
        g->greedy_margin = read_numbers(r, g->n_greedy, g->greedy_margin);
    else
        r->failed = true;
}

int golden_read(const char *path, struct golden *out, struct quire_error *err)
{
    struct reader r = {0};
    char key[80] = "";
    memset(out, 0, sizeof *out);
    r.file = fopen(path, "r");
    if (!r.file)
        return quire_fail(err, QUIRE_NOT_FOUND, "%.300s: cannot be opened: %m", path);
    if (strcmp(word(&r, key), "quire-golden") != 0 || whole(&r, 1) != 1)
        r.failed = true;
    while (!r.failed && strcmp(word(&r, key), "end") != 0)
        read_line(&r, key, out);
    fclose(r.file);
    if (r.failed)
        return quire_fail(err, QUIRE_INVALID, "%.300s: malformed at '%.40s'", path, key);
    if (!out->next_logprob || !out->greedy_logprob || !out->greedy_margin || out->n_tops == 0 ||
        !(out->tolerance > 0.0))
        return quire_fail(err, QUIRE_INVALID, "%.300s: a line is missing", path);
    return QUIRE_OK;
}

void golden_free(struct golden *g)
{
    free(g->prompt);
    free(g->next_logprob);
    free(g->greedy);
    free(g->greedy_logprob);
    free(g->greedy_margin);
    memset(g, 0, sizeof *g);
}

uint32_t golden_certain_steps(const struct golden *g)
{
    uint32_t n = 0;
    while (n < g->n_greedy && g->greedy_margin[n] >= g->tolerance)
        n++;
    return n;
}
