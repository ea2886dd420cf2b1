/* A request's fields, one row each: struct request_spec (spec.h) and its table (fields.h) are made of the rows. A new
 * field is a row here, a default in fields.c if it is not 0, and the code that uses it. Macros only.
 *
 *   WHOLE(kind, member, name, tag, flags, least, most, ...)
 *   OPTION(kind, member, name, tag, flags, least, most, ...)   also has has_<member>
 *   NUMBER(member, tag, flags, low, high, ...)                 a float; its name is the member's
 *   LIST(kind, member, name, tag, flags, most, ...)            a pointer, and n_<member>
 *
 * kind    One of enum request_kind, without REQUEST_.
 * name    Its name in the HTTP API. tag: in frames and recordings; it never changes.
 * flags   Of enum request_flags; DRAWS and BODY are sets of them in fields.c.
 * ...     Further members of struct request_field.
 *
 * Rows are in ascending order of tags. The next free tag is 37. */
#ifndef QUIRE_REQUEST_ROWS_H
#define QUIRE_REQUEST_ROWS_H

/* clang-format off */
#define REQUEST_ROWS(WHOLE, OPTION, NUMBER, LIST) \
    LIST(IDS, prompt, "prompt", 1, DRAWS | REQUEST_REQUIRED, REQUEST_MAX_PROMPT) \
    /* Of each choice; 0: only the prompt is computed. */ \
    WHOLE(U32, max_tokens, "max_tokens", 2, DRAWS | REQUEST_REQUIRED, 0, UINT32_MAX) \
    WHOLE(U32, n, "n", 3, BODY, 1, REQUEST_MAX_CHOICES, \
          .about = "Number of choices. Must be 1 in responses and messages.") \
    /* No eos and no stop token before this many tokens. */ \
    WHOLE(U32, min_tokens, "min_tokens", 4, BODY, 0, UINT32_MAX, .body = {.most = INT32_MAX}) \
    NUMBER(temperature, 5, BODY | REQUEST_MODELS, 0, 1000, .body = {.high = 2}, .about = "0 is greedy.") \
    NUMBER(top_p, 6, BODY | REQUEST_MODELS | REQUEST_ABOVE, 0, 1, .body = {.high = 1}, .about = "0 is greedy.") \
    NUMBER(min_p, 7, BODY | REQUEST_MODELS, 0, 1) \
    /* 0 = all. */ \
    WHOLE(U32, top_k, "top_k", 8, BODY | REQUEST_MODELS, 0, UINT32_MAX, \
          .body = {.least = -1, .most = INT32_MAX}, .about = "-1 and 0: off.") \
    /* The lower bound excludes values such as 1 / 10^38, which turn a logit of 4 into infinity. */ \
    NUMBER(repetition_penalty, 9, BODY | REQUEST_MODELS, 0.001, 1000) \
    NUMBER(presence_penalty, 10, BODY, -2, 2) \
    NUMBER(frequency_penalty, 11, BODY, -2, 2) \
    OPTION(U64, seed, "seed", 12, BODY, 0, 0, .body = {.least = INT64_MIN, .most = UINT64_MAX}, \
           .about = "The same request with the same seed gets the same bits.") \
    WHOLE(BOOL, ignore_eos, "ignore_eos", 13, BODY, 0, 1) \
    /* -1: no logprobs; 0: of the chosen token; up to 20: also of the most likely ones. */ \
    WHOLE(I32, n_logprobs, "logprobs", 14, DRAWS, -1, REQUEST_MAX_LOGPROBS) \
    /* The same for the prompt. */ \
    WHOLE(I32, n_prompt_logprobs, "prompt_logprobs", 15, DRAWS, -1, REQUEST_MAX_LOGPROBS) \
    WHOLE(I32, priority, "priority", 16, REQUEST_IN_BODY, INT32_MIN, INT32_MAX, .about = "Lower values run first.") \
    /* After arrival, for the first token; 0: no deadline. */ \
    WHOLE(U64, deadline_us, "deadline", 17, 0, 0, REQUEST_MAX_US) \
    /* Prefixes are shared only within one domain; zero: the default domain. */ \
    WHOLE(KEY, cache_domain, "cache_domain", 18, REQUEST_MUST | REQUEST_PRIVATE, 0, 0) \
    LIST(IDS, stop_token_ids, "stop_token_ids", 19, BODY, REQUEST_MAX_STOP_TOKEN_IDS) \
    /* Added to the logits of these ids; -infinity forbids a token. */ \
    LIST(BIASES, biases, "logit_bias", 20, BODY, REQUEST_MAX_BIASES, .body = {.low = -100, .high = 100}, \
         .about = "Bias per token id.") \
    /* The tenant that is charged, and the service class; 0: default. */ \
    WHOLE(U32, tenant, "tenant", 21, 0, 0, UINT32_MAX) \
    WHOLE(U32, class_index, "class", 22, 0, 0, UINT32_MAX) \
    /* Uses only capacity that live requests leave, and is preempted for them. */ \
    WHOLE(BOOL, background, "background", 23, REQUEST_IN_BODY, 0, 1, \
          .about = "Runs after every request without this flag. Not supported in responses.") \
    /* > 0: after choice 0 ends, the prompt's full blocks stay cached for this long after their last use. */ \
    WHOLE(U64, pin_us, "pin", 24, REQUEST_MUST, 0, REQUEST_MAX_US) \
    /* Expected number of generated tokens; 0: unknown. */ \
    WHOLE(U32, expected_tokens, "expected_tokens", 25, 0, 0, UINT32_MAX) \
    /* Only these tokens may be sampled; none: all tokens. */ \
    LIST(IDS, allowed_token_ids, "allowed_token_ids", 26, BODY | REQUEST_NOT_EMPTY, REQUEST_MAX_ALLOWED_TOKEN_IDS, \
         .about = "Restricts sampling to these tokens.") \
    /* For each word, the number of ids and the ids. The last id is forbidden if the generated tokens end in the others. \
     * n_bad_words: numbers in bad_words. */ \
    LIST(IDS, bad_words, "bad_words", 27, DRAWS, REQUEST_MAX_BAD_WORDS) \
    /* Per row; 0: no speculation. It changes only the time of tokens, never their bits. */ \
    WHOLE(U32, max_drafts, "num_speculative_tokens", 28, 0, 0, UINT32_MAX) \
    /* An enum draft_method; 0: the server's method. */ \
    WHOLE(U32, draft_method, "speculative", 29, 0, 0, UINT32_MAX) \
    /* Token ids of the expected answer, or of much of it. They come from the client, or from a stored answer to a \
     * similar question (server/link/completion_source.h). */ \
    LIST(IDS, prediction, "prediction", 30, 0, REQUEST_MAX_PROMPT) \
    /* Compute the model's vector of the prompt (an embedding, or a classifier's scores); max_tokens is 0. */ \
    WHOLE(BOOL, wants_vector, "wants_vector", 31, DRAWS, 0, 1) \
    /* First token of the second text of a pair; 0: there is only one text. */ \
    WHOLE(U32, segment_from, "segment_from", 32, DRAWS, 0, REQUEST_MAX_PROMPT) \
    /* keep_us > 0: the client caches the answer. When the answer ends by itself, its full blocks, including generated \
     * ones, stay cached for at most keep_us, within the share of pinned blocks and as long as no other cached answer \
     * has more hits. Hit reports refer to the answer by keep_name. */ \
    WHOLE(U64, keep_us, "keep", 33, 0, 0, REQUEST_MAX_US) \
    WHOLE(U64, keep_name, "keep_name", 34, 0, 0, 0) \
    /* Only from clients and recordings older than hit reports (HIT_REPORT frames, sched_served()), and never written. A \
     * hit report before this request, as triples: low and high half of a keep_name, and how often that answer was served \
     * so far. A name of zero removes all of them. */ \
    LIST(IDS, given, "given", 35, REQUEST_OLD, REQUEST_MAX_GIVEN) \
    /* The answer is a text of this grammar: its normal form, UTF-8 (text/quire_grammar.h). Empty: any text. */ \
    LIST(BYTES, grammar, "grammar", 36, DRAWS, REQUEST_MAX_GRAMMAR)
/* clang-format on */

/* What a row becomes in struct request_spec. */
#define REQUEST_C_BOOL bool
#define REQUEST_C_U32 uint32_t
#define REQUEST_C_I32 int32_t
#define REQUEST_C_U64 uint64_t
#define REQUEST_C_KEY struct key256
#define REQUEST_C_IDS uint32_t
#define REQUEST_C_BIASES struct request_bias
#define REQUEST_C_BYTES uint8_t
#define REQUEST_WHOLE_MEMBER(kind, member, ...) REQUEST_C_##kind member;
#define REQUEST_OPTION_MEMBER(kind, member, ...) \
    bool has_##member; \
    REQUEST_C_##kind member;
#define REQUEST_NUMBER_MEMBER(member, ...) float member;
#define REQUEST_LIST_MEMBER(kind, member, ...) \
    const REQUEST_C_##kind *member; \
    uint32_t n_##member;

#endif
