/* route_choose() selects the model of a request: by its name, an alias, a tenant's override, a rule on its prompt, or
 * the arm of an experiment. Pure: no clock, no state. `quire route explain` prints the same decision.
 *
 * The rule of complexity: a prompt is split at white space into words, and compared in lower case. Fewer than 50 words
 * and a simple indicator ("what is", "define", "list", "name", "yes or no", "true or false"): simple. Else a complex
 * indicator ("analyze", "compare", "evaluate", "synthesize", "explain in detail", "step by step", "comprehensive") or
 * more than 200 words: complex. Else moderate. Indicators are found as parts of words too, as the rule was published.
 *
 * The rule was published in Python, and the result is equal to Python's for every text: words end where str.split() ends
 * them, at Unicode's white space too. Lower case matters for A-Z only, because no other character becomes a letter of an
 * indicator (U+0130 becomes an i with a combining dot after it, which no indicator has). A byte that is not UTF-8 is part of a word.
 */
#ifndef QUIRE_GATEWAY_ROUTE_H
#define QUIRE_GATEWAY_ROUTE_H

#include "server/gateway/file/models_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum route_complexity { ROUTE_SIMPLE, ROUTE_MODERATE, ROUTE_COMPLEX };

struct route_reading {
    enum route_complexity complexity;
    uint32_t n_words;
    const char *indicator; /* static; NULL: none decided */
};
void route_read(const char *prompt, size_t n_bytes, struct route_reading *out);

/* Milliseconds to the whole answer, as measured at the moment; 0: not known. */
struct route_latencies {
    uint32_t (*of)(void *context, uint32_t model);
    void *context;
};

/* What the choice depends on. Texts may be NULL where n is 0. */
struct route_question {
    const char *asked; /* "" means the first model */
    size_t n_asked;
    const char *tenant; /* a name, or NULL */
    const char *prompt; /* the text of the last user message; used by rules only */
    size_t n_prompt;
    const char *user; /* who asks, for experiments by user; "" means that nobody is known: the request decides */
    size_t n_user;
    const char *request_id; /* NULL: "" */
};

#define ROUTE_NO_ARM UINT32_MAX

struct route_choice {
    uint32_t model; /* has targets */
    uint32_t experiment; /* the model that is an experiment, if the request belongs to one */
    uint32_t arm;        /* of it; ROUTE_NO_ARM: the request belongs to no experiment */
    uint32_t bucket;     /* of the request's unit (assign.h) */
    char why
        [96]; /* "name", "alias", "override", "complexity: simple (9 words, \"what is\")", "latency: 120 ms", "arm: new" */
};
/* Returns false if no model has the name. */
bool route_choose(const struct gateway_config *config, const struct route_question *q,
                  const struct route_latencies *latencies, struct route_choice *out);

#endif
