/* The contents of frames as structs, except for STATS (stats_frame.h). Data only. Decoded pointers are borrowed from
 * the frame's body. Texts are not NUL-terminated. */
#ifndef QUIRE_SERVER_WIRE_RECORDS_H
#define QUIRE_SERVER_WIRE_RECORDS_H

#include "base/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wire_hello {
    uint32_t version;
    struct key256 identity_text; /* quire_text_identity() */
    struct key256 identity_config; /* SHA-256 of config.json */
    struct key256
        identity_generation; /* SHA-256 of generation_config.json, of no bytes without that file; zero: unknown */
    const char *model; /* name for messages, n_model bytes, not NUL-terminated */
    size_t n_model;
    /* engine → front only (zero from a front end): */
    uint32_t vocab_size, max_model_len, max_num_seqs, block_tokens, max_num_batched_tokens, max_queued_requests;
    uint32_t n_eos;
    const uint8_t *eos; /* n_eos × u32, unaligned little endian: wire_u32() */
    uint64_t initial_credit; /* front → engine: bytes that it can receive */
    const char *description; /* engine → front: description of the device for people */
    size_t n_description;
    /* Both ways if a key is required: the challenge, and wire_key_proof(). 0 or 32 bytes. */
    const uint8_t *key_proof;
    size_t n_key_proof;
    const uint8_t *nonce;
    size_t n_nonce;
    struct key256 identity_arithmetic; /* engine → front: responses may be cached and served under this value, */
    const char *arithmetic; /* the SHA-256 of this text. Zero and empty: unknown */
    size_t n_arithmetic;
    uint32_t vector_size; /* engine → front: numbers in a prompt's vector; 0: the model generates tokens */
    bool vector_is_scores; /* engine → front: the vector holds a classifier's scores for a pair of texts */
    bool takes_predict; /* engine → front: the engine supports PREDICT */
    bool takes_hit_report; /* engine → front: the engine supports HIT_REPORT */
};

struct wire_vector {
    uint32_t n_values;
    const uint8_t *values; /* decoded: n_values × f32, unaligned little endian: wire_f32() */
    const float *numbers; /* for the encoder */
};

struct wire_predict { /* decoded: n_tokens × u32, unaligned little endian: wire_u32() */
    uint32_t n_tokens;
    const uint8_t *tokens; /* decoded: n_tokens × u32, unaligned little endian: wire_u32() */
    const uint32_t *ids; /* for the encoder */
};

struct wire_hit_report { /* triples of u32: low and high half of a keep_name, and how often that answer was served */
    uint32_t n_served;
    const uint8_t *served; /* decoded: 3 * n_served × u32, unaligned little endian: wire_u32() */
    const uint32_t *words; /* for the encoder */
};

struct wire_token { /* one generated or prompt token */
    uint32_t choice; /* 0 for prompt logprobs */
    uint32_t token;
    bool has_logprob;
    float logprob; /* sent as its bits */
    uint32_t rank;
    uint32_t n_top; /* <= 20 */
    uint32_t top_ids[20];
    float top_logprobs[20];
};

/* Where a choice's time went: microseconds in the queue by the resource that was short, and counts. Holds the values
 * of struct sched_account. */
struct wire_account {
    uint64_t queue_nothing_us, queue_budget_us, queue_seqs_us, queue_blocks_us, queue_batch_us, queue_prefix_us;
    uint64_t preempted_us;
    uint64_t blocker; /* as in ACCEPT; 0: no blocker */
    uint32_t blocker_tenant, n_overtaken, n_chunks, n_preemptions, n_loaded, n_recomputed;
};

enum wire_finish { WIRE_FINISH_STOP, WIRE_FINISH_LENGTH, WIRE_FINISH_CANCELLED, WIRE_FINISH_ERROR };
struct wire_done {
    uint32_t choice;
    uint32_t finish;
    bool last;
    bool has_stop_token;
    uint32_t stop_token;
    uint32_t n_prompt, n_cached, n_generated;
    const char *message; /* the error's message if finish is ERROR */
    size_t n_message;
    const char *parameter; /* the invalid field of the request; empty: no single field */
    size_t n_parameter;
    uint32_t status; /* enum quire_status if finish is ERROR; 0: unknown */
    uint32_t retry_after_ms; /* if status is exhausted: the policy rejected it before it ran */
    uint32_t n_created; /* prompt tokens that the request added to the prefix cache */
    uint32_t n_drafted, n_accepted; /* drafts that its steps verified, and those that were accepted */
    uint32_t n_predicted, n_predicted_right; /* the part of these that came from the request's prediction */
    struct wire_account account;
};
struct wire_refuse {
    uint32_t status; /* enum quire_status */
    uint32_t retry_after_ms;
    const char *message;
    size_t n_message;
    const char *parameter; /* as in wire_done */
    size_t n_parameter;
};

#endif
