/* The records of a recording, as its reader gives them (engine/record/recording.h). docs/reference/recording.md has their
 * bytes. Plain data. */
#ifndef QUIRE_ENGINE_RECORDS_H
#define QUIRE_ENGINE_RECORDS_H

#include "engine/event.h"
#include "engine/plan.h"
#include "request/spec.h"
#include "scheduler/types/config.h"
#include "scheduler/types/plan.h"
#include "scheduler/types/request.h"
#include "speculation/length.h"

#define RECORDING_DOMAIN_BYTES 16

/* The engine that computed the answers. */
struct recording_engine {
    uint32_t numerics; /* K_NUMERICS_VERSION of the program that computed the answers; 1 in version 1 */
    struct key256 identity; /* identity_arithmetic (engine/identity.h); zero in version 1 */
    char model[256];
    struct key256 config_sha256;
    char device[16];
    enum k_gemm_form gemm_form;
    bool not_invariant; /* answers depended on other requests: a replay cannot reproduce their bits */
    const char *quantization; /* NULL, or --quantization's name of the conversion of plain weights; static */
    enum k_dtype weight_dtype, kv_dtype; /* weight_dtype applies if quantization is NULL */
    uint32_t vocab_size;
};

struct recording_header {
    uint32_t version; /* 1 or 2 */
    const struct recording_engine *engine; /* belongs to the recording */
    const struct sched_config *config; /* without the secret; it and what it points to belong to the recording */
};

enum recording_kind {
    RECORDING_END, /* the end of the recording */
    RECORDING_HEADER, /* recording_next() never returns it */
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
    RECORDING_CLOSE, /* the engine was closed, not killed: the last record */
    RECORDING_PROPOSE,
    RECORDING_GATE,
    RECORDING_LENGTHS, /* the reason for the following proposals; a replay does not use it */
    RECORDING_SERVED, /* a hit report; older programs recorded it in the following submit (spec.given) */
    RECORDING_COST, /* the engine fitted another cost model */
};

struct recording_submit {
    uint64_t request; /* the id that the engine's caller passed */
    struct sched_request sched; /* without chain_first and hashes */
    uint8_t domain[RECORDING_DOMAIN_BYTES]; /* requests with the same domain share prefixes */
    const struct request_spec *spec; /* the request with its seed */
    int status; /* result of sched_submit() */
    uint64_t retry_us;
    const uint32_t *seqs; /* [n] if status is QUIRE_OK */
};

struct recording_plan {
    uint64_t step;
    uint32_t n_rows, n_tokens, token_budget;
    uint32_t n_preempted, n_admitted, n_refused, n_moves, n_drafts;
    struct key256 decisions; /* digest of the decision log up to and including this plan */
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

struct recording_served {
    uint32_t n; /* at most ENGINE_MAX_SERVED */
    const uint32_t *items; /* [3 * n], as sched_served() takes them */
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

/* Everything that it points to belongs to the reader and is valid until the next call that reads. */
struct recording_entry {
    enum recording_kind kind;
    uint64_t offset; /* file offset of the record */
    uint64_t now_us; /* set for cancels, no_more, plan, policy, unpin, served, cost */
    union {
        const struct recording_submit *submit;
        uint64_t cancel; /* sched_request.id */
        uint32_t seq; /* cancel_choice, retired */
        struct recording_propose propose;
        struct recording_served served;
        const struct length_reason *lengths;
        const struct sched_cost *cost;
        struct recording_gate gate;
        struct recording_plan plan;
        struct recording_commit commit;
        struct {
            const struct sched_policy *policy;
            const struct sched_policy_options *options;
        } policy;
        uint32_t tenant; /* unpin */
        struct recording_finish finish;
        struct recording_close close;
    };
};

#endif
