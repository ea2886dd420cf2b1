/* The facts about a model from its engine's HELLO that the front end needs.
 *
 * Facts never change: another engine brings its own facts. Each request holds the facts from its beginning, on the
 * loop's thread or on the text pool's. Any thread may call.
 */
#ifndef QUIRE_FRONT_MODEL_FACTS_H
#define QUIRE_FRONT_MODEL_FACTS_H

#include "server/wire/records.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct model_facts {
    _Atomic uint32_t n_holders;  /* private to model_facts.c */
    uint32_t vocab_size, max_model_len, max_num_seqs;
    uint32_t vector_size;        /* numbers of a text's vector; 0: the model generates */
    bool vector_is_scores;       /* they are a classifier's scores for a pair of texts */
    char arithmetic[65];         /* the engine's identity_arithmetic in hex; empty: unknown */
    uint32_t n_eos, eos[];
};

/* Facts before the engine's HELLO: all values are 0. The caller is the first holder. NULL: out of memory. */
const struct model_facts *model_facts_unknown(void);
/* Likewise, from an engine's HELLO. */
const struct model_facts *model_facts_of(const struct wire_hello *hello);
/* Adds a holder; returns facts. */
const struct model_facts *model_facts_hold(const struct model_facts *facts);
/* Removes a holder; the last one frees the facts. NULL is allowed. */
void model_facts_release(const struct model_facts *facts);

#endif
