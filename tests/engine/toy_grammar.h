/* Grammars for tests of the engine, written in token ids: an automaton whose edges have sets of ids. It shares nothing
 * with text/quire_grammar.h.
 *
 * Text: states, separated by ';'. A state is a list of edges "LOW-HIGH>STATE", separated by ','. A state that begins with
 * '!' may end the answer. "slow:" before the first state makes compiling take 200 ms, "bad" fails, "weak:" makes the
 * matcher fail after 3 tokens.
 */
#ifndef QUIRE_TESTS_TOY_GRAMMAR_H
#define QUIRE_TESTS_TOY_GRAMMAR_H

#include "engine/grammars.h"

#include <stdatomic.h>

struct toy_grammars {
    uint32_t n_vocab, eos;
    atomic_uint n_compiled, n_live; /* grammars and matchers that exist */
};

/* The functions; context is t, which must outlive the engine. */
struct engine_grammars toy_grammars(struct toy_grammars *t);
/* Whether the automaton of this text allows the tokens, and may end after them. */
bool toy_accepts(struct toy_grammars *t, const char *text, const uint32_t *tokens, uint32_t n);

#endif
