/* request/: the contents of a request for tokens, defined once for all modules from the front end to the scheduler.
 *
 * A request_spec is filled in where a request arrives, written into a SUBMIT frame, read from it and passed to the
 * engine, which keeps it. Recordings hold the same fields. rows.h has the fields, fields.h their table, codec.h
 * their bytes. A
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
#include "request/rows.h"

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

/* rows.h says what the fields mean. */
struct request_spec {
    REQUEST_ROWS(REQUEST_WHOLE_MEMBER, REQUEST_OPTION_MEMBER, REQUEST_NUMBER_MEMBER, REQUEST_LIST_MEMBER)
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
