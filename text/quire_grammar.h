/* text/: compiled grammars, and which token ids one of them allows next.
 *
 * The crate `llguidance` inside, C outside. struct quire_grammars and struct quire_grammar are reference counted, and
 * any number of threads may call them at once. A struct quire_matcher belongs to one thread at a time; two matchers of
 * one grammar share nothing that changes. No call prints, aborts, lets a panic out, or reads a file or the network.
 *
 * A grammar in normal form (quire_grammar_normal.h) is Lark text as llguidance takes it, with `%json {…}` for JSON
 * schemas, `/…/` for regular expressions and `<|…|>` for special tokens, which no text matches. A line `%reasoning {…}`
 * before it describes a reasoning: its tokens are free and may be counted, and the grammar begins behind its end. No end
 * of the answer is allowed in the reasoning. When its budget is used up, the ids of its end are forced.
 *
 * The rule: where a grammar forces a byte string, the mask allows one id at a time: what quire_text_encode() gives for
 * the string. (1) Forced bytes are encoded together with the token before them. If this changes that token, they are
 * encoded alone. (2) Last tokens that may merge with the free text that follows are not forced. Their bytes are, but
 * any tokens that spell them are allowed. (3) A tokenizer that cannot encode a string without its context (its
 * normalizer adds or drops text) forces no token. Forced tokens depend on the grammar and on the accepted ids
 * alone: no call of another function changes a mask.
 */
#ifndef QUIRE_GRAMMAR_H
#define QUIRE_GRAMMAR_H

#include "base/status.h"
#include "text/quire_text.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct quire_grammars; /* the tokens of one tokenizer, and a cache of compiled grammars */
struct quire_grammar;  /* compiled, immutable */
struct quire_matcher;  /* where one choice is in its grammar */

/* 0 means the default. All but deadline_ms are counted, not timed: a grammar that one machine rejects, all reject. A
 * step's fuel pays for states of the lexer that the matcher does not have yet, so that a step that fails can succeed in
 * a matcher that was there before; its mask is the same in each matcher where it succeeds. */
struct quire_grammar_limits {
    size_t text_bytes;      /* of a normal text; 2 MiB */
    uint64_t compile_fuel;  /* nodes of regular expressions; 1,000,000 */
    size_t symbols;         /* of the grammar's rules; 500,000 */
    size_t lexer_states;    /* of one matcher, about 1 KiB each; 50,000 */
    uint64_t step_fuel;     /* new nodes of regular expressions in one mask; 200,000 */
    size_t step_items;      /* parser items of one mask; 50,000 */
    uint32_t deadline_ms;   /* of one compilation; 5,000 */
};

struct quire_grammars_options {
    uint32_t n_vocab;    /* ids of a mask: the width of a row of logits. Ids past the tokenizer are never allowed. */
    const uint32_t *eos; /* the ids that end an answer, at least one, each below n_vocab and of the tokenizer */
    size_t n_eos;
    size_t cache_entries; /* 0: 256 */
    size_t cache_bytes;   /* estimate; 0: 256 MiB. The last grammar stays even if it is larger. */
    struct quire_grammar_limits limits;
};

struct quire_grammars_stats {
    uint64_t hits, misses, evictions; /* of quire_grammar_compile() */
    uint64_t failures;                /* compilations without a grammar */
    uint64_t entries, bytes;          /* in the cache now */
    uint64_t given_up, given_up_now;  /* compilations whose thread was given up, and those whose thread still runs */
};

/* Fast: the first compilation prepares the tokens, which takes about 0.5 s for 152,000 of them. Keeps its own reference
 * to the tokenizer: quire_text_close() may come before the last release. Returns QUIRE_INVALID if an option is wrong,
 * and QUIRE_UNSUPPORTED if the decoder adds text to that of the tokens (WordPiece). */
int quire_grammars_open(const struct quire_text *text, const struct quire_grammars_options *options,
                        struct quire_grammars **out, struct quire_error *err);
struct quire_grammars *quire_grammars_retain(struct quire_grammars *grammars);
void quire_grammars_release(struct quire_grammars *grammars); /* NULL is fine */
void quire_grammars_stats(const struct quire_grammars *grammars, struct quire_grammars_stats *out);
/* The 32-bit words of a mask: n_vocab / 32, rounded up. */
size_t quire_grammars_words(const struct quire_grammars *grammars);

/* What a caller of quire_grammar_compile() may do meanwhile. The flags are set by another thread, stay until the call
 * returns, and may be NULL. */
struct quire_grammar_caller {
    const atomic_bool *cancel; /* the result is not needed: the compilation stops before its next phase */
    const atomic_bool *leave; /* the call returns within 0.1 s */
    uint32_t owner; /* whose compilation it is, for the limit below: a tenant's number, for example */
};

/* From the cache, or compiled and then cached; calls with the same text at once compile it once. caller: NULL has no
 * flags, and is the owner UINT32_MAX. Needs no deep stack.
 *
 * A compilation has a thread of its own, because nothing stops llguidance in the middle of a phase. At the deadline, or
 * when the caller leaves, the thread is given up: the call returns, the thread goes on at nice 19, and its result is
 * freed when it ends. It keeps its own references, so that the process may release everything, and exit, before it
 * ends. While 4 threads that were given up still run, or 2 of one owner, texts that are not cached are
 * QUIRE_UNAVAILABLE; compilations that run at that time may be given up too. A text that such a thread compiles is
 * QUIRE_EXHAUSTED at once.
 *
 * QUIRE_INVALID with the place: text that is no grammar, exceeds a limit, or that no string matches.
 * QUIRE_EXHAUSTED after the deadline; QUIRE_UNAVAILABLE after cancel or leave. None of the two is cached. */
int quire_grammar_compile(struct quire_grammars *grammars, const char *normal, size_t n,
                          const struct quire_grammar_caller *caller, struct quire_grammar **out,
                          struct quire_error *err);
/* Only from the cache: fast. NULL: it is not there. The caller releases the result. */
struct quire_grammar *quire_grammar_find(struct quire_grammars *grammars, const char *normal, size_t n);
struct quire_grammar *quire_grammar_retain(struct quire_grammar *grammar);
void quire_grammar_release(struct quire_grammar *grammar); /* NULL is fine */
/* SHA-256 of the normal text: the cache's key. */
void quire_grammar_digest(const struct quire_grammar *grammar, uint8_t sha256[32]);
/* Of the compilation; a hit of the cache has the figures of the first time. */
uint64_t quire_grammar_compile_ns(const struct quire_grammar *grammar);
size_t quire_grammar_bytes(const struct quire_grammar *grammar); /* estimate */

/* At the grammar's start. The matcher keeps its own reference to the grammar. */
int quire_matcher_open(struct quire_grammar *grammar, struct quire_matcher **out, struct quire_error *err);
/* In the same state, and independent from then on. */
int quire_matcher_clone(const struct quire_matcher *matcher, struct quire_matcher **out, struct quire_error *err);
void quire_matcher_close(struct quire_matcher *matcher); /* NULL is fine */

/* All functions below: QUIRE_INVALID "... too complex ..." if a limit of a step is exceeded. The matcher then stays
 * in that state, and each further call returns the same error: close it. */

/* Sets each word; bit words[id / 32] >> id % 32 & 1: id may be next. An eos is allowed exactly if the grammar may stop
 * here. After an eos nothing is allowed. */
int quire_matcher_mask(struct quire_matcher *matcher, uint32_t *words, struct quire_error *err);
/* QUIRE_INVALID if the mask does not allow id; the state is then as it was. */
int quire_matcher_accept(struct quire_matcher *matcher, uint32_t id, struct quire_error *err);
/* Accepts ids up to the first that is not allowed. *n_ok: how many; fewer than n is no error. */
int quire_matcher_accept_many(struct quire_matcher *matcher, const uint32_t *ids, size_t n, size_t *n_ok,
                              struct quire_error *err);
/* *n_ok: how many of the ids accept_many() would accept. The state does not change. */
int quire_matcher_check(struct quire_matcher *matcher, const uint32_t *ids, size_t n, size_t *n_ok,
                        struct quire_error *err);
/* Takes the last n accepted ids back. QUIRE_INVALID if there are fewer. */
int quire_matcher_rollback(struct quire_matcher *matcher, size_t n, struct quire_error *err);
/* Up to max ids that are forced next, one after the other; *n may be 0. An eos is never one of them, even if
 * it is the only id that the mask allows. */
int quire_matcher_forced(struct quire_matcher *matcher, uint32_t *ids, size_t max, size_t *n, struct quire_error *err);
/* The number of ids accepted so far: an eos included. */
size_t quire_matcher_n_accepted(const struct quire_matcher *matcher);
/* The grammar is complete here: the mask allows an eos. False after an eos. */
int quire_matcher_may_stop(struct quire_matcher *matcher, bool *may, struct quire_error *err);
/* The grammar is complete and no text can follow, or an eos was accepted. */
int quire_matcher_is_over(struct quire_matcher *matcher, bool *over, struct quire_error *err);

#endif
