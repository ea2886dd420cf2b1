/* request/: the contents of a request for tokens, defined once for all modules from the front end to the scheduler.
 *
 * A request_spec is filled in where a request arrives, written into a SUBMIT frame, read from it and passed to the
 * engine, which keeps it. Recordings hold the same fields. fields.h has the table of fields, codec.h their bytes. A
 * spec does not contain request ids, times of day or text.
 *
 * Ownership: arrays of an owned spec come from malloc, and request_spec_free() frees them. A function that takes a spec
 * says in its header whether it takes ownership. A spec may also borrow its arrays, for example in tests. A borrowing
 * spec is never freed; pass a copy to a function that takes ownership. Nothing writes to the arrays of a spec. Any
 * thread; one thread at a time may use a struct.
 */
#ifndef QUIRE_REQUEST_SPEC_H
#define QUIRE_REQUEST_SPEC_H

#include "base/hash.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REQUEST_MAX_PROMPT (8u << 20)
#define REQUEST_MAX_CHOICES 128u
#define REQUEST_MAX_LOGPROBS 20
#define REQUEST_MAX_STOP_TOKEN_IDS 4096u
#define REQUEST_MAX_BIASES 65536u
#define REQUEST_MAX_ALLOWED_TOKEN_IDS (1u << 22)
#define REQUEST_MAX_GIVEN 3072u
#define REQUEST_MAX_BAD_WORDS 16384u /* a row where all of them match costs 0.06 ms, or 0.24 ms with 60,000 biases */
#define REQUEST_MAX_GRAMMAR (2u << 20)
#define REQUEST_MAX_US ((int64_t)1 << 50) /* about 35 years: sums of such times do not overflow */

struct request_bias {
    uint32_t id;
    float bias;
};

struct request_spec {
    const uint32_t *prompt; /* token ids */
    uint32_t n_prompt;
    uint32_t max_tokens; /* of each choice; 0: only the prompt is computed */
    uint32_t n; /* choices */
    uint32_t min_tokens; /* no eos and no stop token before this many tokens */

    float temperature, top_p, min_p; /* temperature 0: greedy */
    uint32_t top_k; /* 0 = all */
    float repetition_penalty, presence_penalty, frequency_penalty;
    bool has_seed;
    uint64_t seed;
    bool ignore_eos;
    int32_t n_logprobs; /* -1: no logprobs; 0: of the chosen token; up to 20: also of the most likely ones */
    int32_t n_prompt_logprobs; /* the same for the prompt */

    int32_t priority; /* lower values run first */
    uint64_t deadline_us; /* after arrival, for the first token; 0: no deadline */
    struct key256 cache_domain; /* prefixes are shared only within one domain; zero: the default domain */
    uint32_t tenant; /* the tenant that is charged; 0: default */
    uint32_t class_index; /* service class; 0: default */
    bool background; /* uses only capacity that live requests leave, and is preempted for them */
    /* > 0: after choice 0 ends, the prompt's full blocks stay cached for this long after their last use */
    uint64_t pin_us;
    /* keep_us > 0: the client caches the answer. When the answer ends by itself, its full blocks, including generated
     * ones, stay cached for at most keep_us, within the share of pinned blocks and as long as no other cached answer
     * has more hits. Hit reports refer to the answer by keep_name. */
    uint64_t keep_us, keep_name;
    /* Only from clients and recordings older than hit reports (HIT_REPORT frames, sched_served()), and never written. A
     * hit report before this request, as triples: low and high half of a keep_name, and how often that answer was served
     * so far. A name of zero removes all of them. */
    const uint32_t *given;
    uint32_t n_given;
    uint32_t expected_tokens; /* expected number of generated tokens; 0: unknown */

    uint32_t max_drafts; /* per row; 0: no speculation. It changes only the time of tokens, never their bits */
    uint32_t draft_method; /* an enum draft_method; 0: the server's method */
    /* Token ids of the expected answer, or of much of it. They come from the client, or from a stored answer to a
     * similar question (server/link/completion_source.h). */
    const uint32_t *prediction;
    uint32_t n_prediction;

    const uint32_t *stop_token_ids;
    uint32_t n_stop_token_ids;
    const struct request_bias *biases; /* added to the logits of these ids; -infinity forbids a token */
    uint32_t n_biases;
    const uint32_t *allowed_token_ids; /* only these tokens may be sampled; n_allowed_token_ids 0: all tokens */
    uint32_t n_allowed_token_ids;
    /* compute the model's vector of the prompt (an embedding, or a classifier's scores); max_tokens is 0 */
    bool wants_vector;
    uint32_t segment_from; /* first token of the second text of a pair; 0: there is only one text */

    /* for each word, the number of ids and the ids. The last id is forbidden if the generated tokens end in the others */
    const uint32_t *bad_words;
    uint32_t n_bad_words; /* numbers in bad_words */

    /* The answer is a text of this grammar: its normal form, UTF-8 (text/quire_grammar.h). n_grammar 0: any text */
    const uint8_t *grammar;
    uint32_t n_grammar;
};

/* Sets every field to its default. */
void request_spec_default(struct request_spec *spec);

/* Defaults from a checkpoint's generation_config.json. If has_* is false, the field's own default applies. */
struct sampling_defaults {
    bool has_temperature, has_top_p, has_top_k, has_min_p, has_repetition_penalty;
    double temperature, top_p, min_p, repetition_penalty;
    uint32_t top_k;
};
void request_spec_take_defaults(struct request_spec *spec, const struct sampling_defaults *defaults);

/* Frees the arrays of an owned spec and resets it as request_spec_default() does. */
void request_spec_free(struct request_spec *spec);
/* Hands the prompt of an owned spec to the caller, who frees it. */
uint32_t *request_spec_take_prompt(struct request_spec *spec);
/* Makes an owned copy of an owned or borrowing spec. On QUIRE_NO_MEMORY there is nothing to free. */
int request_spec_copy(struct request_spec *to, const struct request_spec *from, struct quire_error *err);
/* Moves the contents of `from`, which becomes empty. */
struct request_spec request_spec_move(struct request_spec *from);

/* Checks ranges, and ids against the vocabulary: everything that does not depend on other requests. QUIRE_INVALID names
 * the field. */
int request_spec_check(const struct request_spec *spec, uint32_t n_vocab, struct quire_error *err);

#endif
