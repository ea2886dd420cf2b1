/* request/: what a request for tokens says, once, for everybody from the front end to the scheduler.
 *
 * A request_spec is filled in where a request comes in, written into a SUBMIT frame, read from one and given to the
 * engine, which keeps it; recordings hold the same fields. fields.h is the table of them, codec.h their bytes. Ids of
 * requests, times of day and text are not in it.
 *
 * Ownership: arrays of an owned spec come from malloc and go with request_spec_free(); whoever is given a spec says in
 * its header whether it takes it. A spec may also borrow, as tests and callers with arrays of their own do: such a one
 * is never freed and never given to somebody who takes it, but copied. Nobody writes to an array that a spec has.
 * Any thread; a struct belongs to one at a time.
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
#define REQUEST_MAX_BAD_WORDS 16384u /* a row where all of them match costs 0.06 ms, 0.24 with 60,000 biases */
#define REQUEST_MAX_US ((int64_t)1 << 50) /* about 35 years: sums of such times do not overflow */

struct request_bias {
    uint32_t id;
    float bias;
};

struct request_spec {
    const uint32_t *prompt; /* token ids */
    uint32_t n_prompt;
    uint32_t max_tokens; /* of each choice; 0 = only the prompt is computed */
    uint32_t n; /* choices */
    uint32_t min_tokens; /* before them no eos and no stop token */

    float temperature, top_p, min_p; /* temperature 0: greedy */
    uint32_t top_k; /* 0 = all */
    float repetition_penalty, presence_penalty, frequency_penalty;
    bool has_seed;
    uint64_t seed;
    bool ignore_eos;
    int32_t n_logprobs; /* -1: none; 0: the token's; up to 20: the most likely ones too */
    int32_t n_prompt_logprobs; /* the same, of the prompt */

    int32_t priority; /* lower goes first */
    uint64_t deadline_us; /* after arrival, of the first token; 0 = none */
    struct key256 cache_domain; /* prefixes are shared within one only; zero = default */
    uint32_t tenant; /* who pays; 0 = default */
    uint32_t class_index; /* of service; 0 = default */
    bool background; /* runs on what live requests leave, and gives way to them */
    uint64_t pin_us; /* > 0: when choice 0 ends, the prompt's full blocks stay cached so long after their last use */
    /* > 0: the answer is kept by who asks. When it ends by itself its full blocks, generated ones too, stay cached at most so long,
     * as far as the share of pins goes and nothing is worth more. keep_name: what `given` calls it later. */
    uint64_t keep_us, keep_name;
    /* Threes of a keep_name's low and high half and how often that answer was given so far; a name of zero: all are forgotten. */
    const uint32_t *given;
    uint32_t n_given;
    uint32_t expected_tokens; /* that will be generated, where somebody knows; 0 = unknown */

    uint32_t max_drafts; /* of a row; 0: no speculation. It never moves a bit, only when tokens are known */
    uint32_t draft_method; /* an enum draft_method; 0: the server's */
    /* Token ids that the answer is expected to be, or much of it: by the client, or by who has a stored answer to a similar
     * question (server/link/completion_source.h). */
    const uint32_t *prediction;
    uint32_t n_prediction;

    const uint32_t *stop_token_ids;
    uint32_t n_stop_token_ids;
    const struct request_bias *biases; /* added to the logits of these ids; -infinity forbids */
    uint32_t n_biases;
    const uint32_t *allowed_token_ids; /* only these may be drawn; n_allowed_token_ids 0: all may */
    uint32_t n_allowed_token_ids;
    bool wants_vector; /* the model's vector of the prompt (an embedding, or a classifier's scores); max_tokens is 0 */
    uint32_t
        segment_from; /* tokens of the prompt from this one on are the second text of a pair; 0: there is one text */

    const uint32_t *bad_words; /* word after word: how many ids it has, then the ids. Its last id is forbidden where
                                  the generated tokens end in the others */
    uint32_t n_bad_words; /* numbers in bad_words */
};

/* Every field as it is where nothing is said of it. */
void request_spec_default(struct request_spec *spec);

/* What a checkpoint's generation_config.json has for requests that say nothing. has_* false: the default of the field. */
struct sampling_defaults {
    bool has_temperature, has_top_p, has_top_k, has_min_p, has_repetition_penalty;
    double temperature, top_p, min_p, repetition_penalty;
    uint32_t top_k;
};
void request_spec_take_defaults(struct request_spec *spec, const struct sampling_defaults *defaults);

/* Of an owned spec; it is as request_spec_default() leaves it afterwards. */
void request_spec_free(struct request_spec *spec);
/* Gives up the prompt, when nobody needs it any more. */
void request_spec_drop_prompt(struct request_spec *spec);
/* An owned copy of whatever kind of spec. QUIRE_NO_MEMORY: nothing is to be freed. */
int request_spec_copy(struct request_spec *to, const struct request_spec *from, struct quire_error *err);
/* What `from` has, and nothing is left in it. */
struct request_spec request_spec_move(struct request_spec *from);

/* Ranges, and ids below the vocabulary: all that can be said of a spec without knowing who else is served.
 * QUIRE_INVALID names the field. */
int request_spec_check(const struct request_spec *spec, uint32_t n_vocab, struct quire_error *err);

#endif
