/* Reads recordings (recorder.h writes them, recording.md is the format).
 *
 * Nothing of a file is believed: every length, count, range and checksum is looked at before it is
 * used, and an error names the byte offset of the record that is wrong. A file that ends within a
 * record, as kill -9 leaves it, is whole up to there; recording_left_out() says how many bytes
 * follow. One thread at a time.
 */
#ifndef QUIRE_ENGINE_RECORDING_H
#define QUIRE_ENGINE_RECORDING_H

#include "engine/engine.h"
#include "engine/plan.h"
#include "speculation/length.h"

struct recording;

#define RECORDING_DOMAIN_BYTES 16

struct recording_header {
    uint32_t version;             /* 1 or 2 */
    uint32_t law;                 /* K_LAW_VERSION of what computed the answers; 1 in version 1 */
    struct key256 identity;       /* identity_arithmetic (engine/identity.h); zero in version 1 */
    uint64_t began_unix_us;       /* wall clock, for people; all other times are CLOCK_MONOTONIC's */
    char model[256];
    struct key256 config_sha256;
    char device[16];
    enum k_gemm_form gemm_form;
    bool not_invariant; /* answers depended on what else was served: they cannot be computed again to the bit */
    const char *quantization; /* NULL, or --quantization's name of what plain weights were made into; static */
    enum k_dtype weight_dtype, kv_dtype; /* the first where quantization is NULL */
    uint32_t vocab_size;
    struct sched_config config;   /* without the secret; what it points to is the recording's */
};

enum recording_kind {
    RECORDING_END,           /* nothing follows */
    RECORDING_HEADER,        /* never given by recording_next() */
    RECORDING_SUBMIT,
    RECORDING_CANCEL,
    RECORDING_CANCEL_CHOICE,
    RECORDING_NO_MORE,
    RECORDING_PLAN,
    RECORDING_COMMIT,
    RECORDING_RETIRED,
    RECORDING_POLICY,
    RECORDING_UNPIN,
    RECORDING_FINISH,
    RECORDING_CLOSE,         /* the engine was closed, not killed: the last record */
    RECORDING_PROPOSE,
    RECORDING_GATE,
    RECORDING_LENGTHS,       /* what was proposed next followed from this; it decides nothing in a replay */
};

struct recording_submit {
    uint64_t request;                       /* the id that the engine's caller gave */
    struct sched_request sched;             /* without chain_first and hashes */
    uint8_t domain[RECORDING_DOMAIN_BYTES]; /* requests with the same one share prefixes */
    struct request_spec spec;               /* what it asked for, with its seed; borrowed, like everything here */
    int status;                             /* of sched_submit() */
    uint64_t retry_us;
    const uint32_t *seqs;                   /* [n] when status is QUIRE_OK */
};

struct recording_plan {
    uint64_t step;
    uint32_t n_rows, n_tokens, token_budget;
    uint32_t n_preempted, n_admitted, n_refused, n_moves, n_drafts;
    struct key256 decisions; /* the decision log up to and with this plan */
};

struct recording_commit {
    uint64_t step, launched_us, done_us;
    uint32_t n_results;
    const struct sched_result *results;
};

struct recording_propose {
    uint32_t seq, n;
    const uint32_t *tokens;
};

struct recording_gate {
    uint32_t seq;
    bool gated;
};

struct recording_choice {
    enum engine_finish finish;
    uint32_t n_tokens, n_prompt_logprobs;
    struct key256 digest; /* engine/record/digest.h */
};

struct recording_finish {
    uint64_t id;
    uint32_t n;
    const struct recording_choice *choices; /* [n] */
};

struct recording_close {
    uint64_t n_plans;
    struct key256 decisions;
};

/* Pointers are valid until the next call that reads. */
struct recording_entry {
    enum recording_kind kind;
    uint64_t offset; /* of the record in the file */
    uint64_t now_us; /* of cancels, no_more, plan, policy, unpin */
    union {
        struct recording_submit submit;
        uint64_t cancel;            /* sched_request.id */
        uint32_t seq;               /* cancel_choice, retired */
        struct recording_propose propose;
        struct length_reason lengths;
        struct recording_gate gate;
        struct recording_plan plan;
        struct recording_commit commit;
        struct {
            const struct sched_policy *policy;
            struct sched_policy_options options;
        } policy;
        uint32_t tenant;            /* unpin */
        struct recording_finish finish;
        struct recording_close close;
    };
};

/* The file is mapped and must not be cut while it is open; it may grow, unseen. */
int recording_open(const char *path, struct recording **out, struct quire_error *err);
/* The same of bytes in memory, which must outlive it. */
int recording_open_memory(const void *data, size_t n, struct recording **out, struct quire_error *err);
void recording_close(struct recording *r); /* NULL is fine */

const struct recording_header *recording_header(const struct recording *r);
/* The next record, or RECORDING_END. QUIRE_INVALID: corrupt. */
int recording_next(struct recording *r, struct recording_entry *out, struct quire_error *err);
/* Back to the record after the header. */
void recording_rewind(struct recording *r);
/* Reads the record at an offset that recording_next() gave; the next one stays the next. */
int recording_read_at(struct recording *r, uint64_t offset, struct recording_entry *out, struct quire_error *err);
/* Bytes after the last complete record, once recording_next() gave RECORDING_END. */
uint64_t recording_left_out(const struct recording *r);
uint64_t recording_bytes(const struct recording *r);
uint64_t recording_position(const struct recording *r); /* of the next record, for progress */

#endif
