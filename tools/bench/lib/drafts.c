#include "tools/bench/lib/drafts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_VALUE 40u
#define MOST 9e15 /* whole numbers up to here are exact */

struct line {
    const char *text;
    size_t n;
};

/* The text after the name if the line is of this metric: "{labels} value" or " value". */
static bool is_of(struct line line, const char *name, struct line *rest)
{
    size_t n = strlen(name);
    if (line.n <= n || memcmp(line.text, name, n) != 0 || (line.text[n] != '{' && line.text[n] != ' '))
        return false;
    *rest = (struct line){line.text + n, line.n - n};
    return true;
}

/* The value after the labels, which may contain blanks; a time may follow. NAN: missing, or not a count. */
static double value_of(struct line rest)
{
    char text[LONGEST_VALUE];
    size_t at = rest.n, end;
    for (size_t i = 0; i < rest.n; i++)
        if (rest.text[i] == '}')
            at = i + 1;
    if (rest.text[0] != '{')
        at = 0;
    while (at < rest.n && rest.text[at] == ' ')
        at++;
    for (end = at; end < rest.n && rest.text[end] != ' '; end++)
        ;
    if (end == at || end - at >= sizeof text)
        return NAN;
    memcpy(text, rest.text + at, end - at);
    text[end - at] = 0;
    char *stopped;
    double value = strtod(text, &stopped);
    return *stopped == 0 && value >= 0 && value <= MOST ? value : NAN;
}

/* The label position="N"; BENCH_MAX_PLACES: not a counted position. */
static size_t place_of(struct line rest)
{
    static const char label[] = "position=\"";
    const size_t n = sizeof label - 1;
    for (size_t i = 1; i + n < rest.n; i++) {
        size_t place = 0, at = i + n;
        if ((rest.text[i - 1] != '{' && rest.text[i - 1] != ',') || memcmp(rest.text + i, label, n) != 0)
            continue;
        for (; at < rest.n && rest.text[at] >= '0' && rest.text[at] <= '9' && place < BENCH_MAX_PLACES; at++)
            place = place * 10 + (size_t)(rest.text[at] - '0');
        return at > i + n && at < rest.n && rest.text[at] == '"' && place < BENCH_MAX_PLACES ? place : BENCH_MAX_PLACES;
    }
    return BENCH_MAX_PLACES;
}

static void read_place(struct line rest, struct bench_drafts *out)
{
    size_t place = place_of(rest);
    double value = value_of(rest);
    if (place == BENCH_MAX_PLACES || isnan(value))
        return;
    out->accepted_at[place] += value;
    if (place >= out->n_places)
        out->n_places = place + 1;
}

void bench_drafts_read(const char *text, size_t n, struct bench_drafts *out)
{
    static const char *const names[] = {"vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_draft_tokens_total",
                                        "vllm:spec_decode_num_accepted_tokens_total"};
    double *const counters[] = {&out->n_drafts, &out->n_draft_tokens, &out->n_accepted};
    bool found[3] = {false};
    *out = (struct bench_drafts){0};
    for (size_t at = 0; at < n;) {
        const char *end = memchr(text + at, '\n', n - at);
        struct line line = {text + at, end ? (size_t)(end - text) - at : n - at}, rest;
        at += line.n + 1;
        for (int i = 0; i < 3; i++)
            if (is_of(line, names[i], &rest)) {
                *counters[i] += value_of(rest);
                found[i] = true;
            }
        if (is_of(line, "vllm:spec_decode_num_accepted_tokens_per_pos_total", &rest))
            read_place(rest, out);
    }
    /* Comparisons with NAN are false. */
    out->known = found[0] && found[1] && found[2] && out->n_drafts <= MOST && out->n_draft_tokens <= MOST &&
                 out->n_accepted <= MOST;
    if (!out->known)
        *out = (struct bench_drafts){0};
}

struct bench_drafts bench_drafts_between(const struct bench_drafts *before, const struct bench_drafts *after)
{
    struct bench_drafts d = *after;
    if (!before->known || !after->known || after->n_drafts < before->n_drafts ||
        after->n_draft_tokens < before->n_draft_tokens || after->n_accepted < before->n_accepted)
        return (struct bench_drafts){0};
    d.n_drafts -= before->n_drafts;
    d.n_draft_tokens -= before->n_draft_tokens;
    d.n_accepted -= before->n_accepted;
    for (size_t i = 0; i < d.n_places; i++)
        d.accepted_at[i] = fmax(0, d.accepted_at[i] - before->accepted_at[i]);
    return d;
}
