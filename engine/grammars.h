/* What an engine needs in order to restrict answers to grammars. The caller of engine_open() implements it
 * (options.h, `grammars`), because an engine has no tokenizer: text/quire_grammar.h is the implementation for models,
 * and tests bring their own.
 *
 * A grammar is compiled once and then constant: any thread may use it. A matcher is the state of one choice: one thread
 * at a time uses it. A matcher is a function of its grammar and the accepted tokens alone: no other call may change what
 * a later call returns.
 */
#ifndef QUIRE_ENGINE_GRAMMARS_H
#define QUIRE_ENGINE_GRAMMARS_H

#include "base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine_grammars {
    uint32_t n_threads; /* of the engine, for masks; 0: as many as computing leaves CPUs, 1 to 4 */
    bool one_by_one; /* forced tokens take a step each; otherwise they are verified like drafts, many in one step */
    void *context;
    /* Returns the compiled grammar of this text if it is cached, otherwise NULL. Fast. */
    void *(*find)(void *context, const char *text, size_t n_text);
    /* Compiles a text, or finds it. May take seconds, but never without a bound, and returns soon after another thread
     * sets *leave: the engine is closed then. QUIRE_INVALID: the text is no grammar, or one that nothing can satisfy, or
     * it exceeds a limit. */
    int (*compile)(void *context, const char *text, size_t n_text, const atomic_bool *leave, void **grammar,
                   struct quire_error *err);
    void (*release)(void *grammar); /* of find() and compile() */

    int (*open)(void *grammar, void **matcher, struct quire_error *err); /* the matcher keeps its grammar alive */
    void (*close)(void *matcher);
    /* Each of these also fails with QUIRE_INVALID if the grammar is too complex at this place. Every later call fails
     * then. */
    int (*accept)(void *matcher, uint32_t token, struct quire_error *err); /* appends a token that mask() allows */
    int (*rollback)(void *matcher, uint32_t n, struct quire_error *err); /* takes back the last n tokens */
    /* The next tokens, if only one text can follow: its canonical tokens, at most `most` of them, *n may be 0. mask()
     * allows the first one only. */
    int (*forced)(void *matcher, uint32_t *ids, uint32_t most, uint32_t *n, struct quire_error *err);
    /* *n_ok: how many of these tokens could follow one after the other. Changes nothing. */
    int (*check)(void *matcher, const uint32_t *ids, uint32_t n, uint32_t *n_ok, struct quire_error *err);
    int (*is_over)(void *matcher, bool *over, struct quire_error *err); /* complete, and nothing may follow */
    /* Bit id % 32 of words[id / 32] is set if the token may follow; eos tokens may where the text may end. */
    int (*mask)(void *matcher, uint32_t *words, struct quire_error *err);
};

#endif
