/* What an engine says of its model in HELLO, as the front end needs it.
 *
 * Facts never change: an engine that takes another's place brings facts of its own. Whoever works on a request holds the facts
 * it began with, on the loop's thread or on the text pool's. Any thread may call.
 */
#ifndef QUIRE_FRONT_MODEL_FACTS_H
#define QUIRE_FRONT_MODEL_FACTS_H

#include "server/wire/wire.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct model_facts {
    _Atomic uint32_t n_holders;  /* model_facts.c's */
    uint32_t vocab_size, max_model_len;
    uint32_t vector_size;        /* numbers that a text gets; 0: the model generates */
    bool vector_is_scores;       /* they are a classifier's, of a pair of texts */
    char arithmetic[65];         /* the engine's identity_arithmetic in hex; empty: it told none */
    uint32_t n_eos, eos[];
};

/* Of a model whose engine has not spoken yet: all is 0. The caller is its first holder. NULL: no memory. */
const struct model_facts *model_facts_unknown(void);
/* Likewise, of an engine that has. */
const struct model_facts *model_facts_of(const struct wire_hello *hello);
/* One holder more; returns facts. */
const struct model_facts *model_facts_hold(const struct model_facts *facts);
/* One holder less; the last one frees them. NULL is fine. */
void model_facts_release(const struct model_facts *facts);

#endif
