/* Encodes and decodes the frames between a front end and an engine. No I/O. protocol.md is the specification; it is
 * sufficient to write a client.
 *
 * A frame is a 16-byte little-endian header {u32 length of the body, u16 type, u16 flags, u64 request id} and a body
 * of at most WIRE_MAX_BODY bytes. Bodies are tagged fields {u16 tag, with the top bit set if the reader must
 * understand it; u16 zero; u32 length; bytes}. A reader rejects a frame that has an unknown tag with this bit, and
 * skips an unknown tag without it, so old and new versions work together.
 *
 * Decoders check everything and never read past the body. Decoded pointers are borrowed from the body. Encoders
 * append to a growable buffer (base/buffer.h) that the caller owns. Any thread. */
#ifndef QUIRE_SERVER_WIRE_H
#define QUIRE_SERVER_WIRE_H

#include "base/buffer.h"
#include "base/hash.h"
#include "base/stats/members.h"
#include "base/stats/rows.h"
#include "base/stats/tenant_rows.h"
#include "base/status.h"
#include "request/spec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_VERSION 1
#define WIRE_HEADER_BYTES 16
#define WIRE_MAX_BODY (32u << 20)
#define WIRE_MAX_HELLO_BODY 4096u /* before HELLO is complete, either side rejects more */
/* No frame of an engine, including its header, is longer than the smallest credit with which a front end begins. */
#define WIRE_MIN_CREDIT 65536u
#define WIRE_MAX_EVENT_BODY (WIRE_MIN_CREDIT - WIRE_HEADER_BYTES)
#define WIRE_MAX_FIELDS 256u /* in one body, including unknown ones */
#define WIRE_MAX_TEXT 1024u /* bytes of any text field; encoders cut longer ones, decoders reject them */
#define WIRE_MAX_EOS 64u
#define WIRE_MAX_TOP 20u
#define WIRE_MAX_TOKEN_RECORD (16u + 8u * WIRE_MAX_TOP)
#define WIRE_MAX_TENANTS 1024u
#define WIRE_MAX_VECTOR 8192u /* numbers; half an event's bytes */

enum wire_type {
    WIRE_HELLO = 1,   /* both ways, first */
    WIRE_SUBMIT = 2,  /* front → engine */
    WIRE_ACCEPT = 3,  /* engine → front */
    WIRE_REFUSE = 4,
    WIRE_TOKENS = 5,  /* generated tokens of one or more choices of one request */
    WIRE_PROMPT_LOGPROBS = 6,
    WIRE_DONE = 7,    /* one choice has finished */
    WIRE_CANCEL = 8,  /* front → engine: a request, or one choice of it */
    WIRE_CREDIT = 9,  /* front → engine: the number of further bytes that it can receive */
    WIRE_CONTROL = 10, /* front → engine: a command; engine → front: it is complete */
    WIRE_STATS = 11,  /* front → engine: a request (empty); engine → front: the figures */
    WIRE_DRAIN = 12,  /* either way: no new requests after this */
    WIRE_ERROR = 13,  /* engine → front: the reason why the connection closes */
    WIRE_VECTOR = 14, /* engine → front: the vector of a request's prompt, before its DONE */
    WIRE_PREDICT = 15, /* front → engine: the expected answer of a live request */
};

/* Returns the type's name ("SUBMIT") for messages. Static storage. */
const char *wire_type_name(uint16_t type);

struct wire_header {
    uint32_t body_bytes;
    uint16_t type;
    uint64_t request;
};
/* Returns 1 if it read a header, and 0 if there are fewer than WIRE_HEADER_BYTES. Returns -QUIRE_INVALID for an
 * unknown type, non-zero flags, a body over the limit, a request id on a type that has no request, or a missing one. */
int wire_header_read(const void *bytes, size_t n, struct wire_header *out, struct quire_error *err);

struct wire_hello {
    uint32_t version;
    struct key256 identity_text;   /* quire_text_identity() */
    struct key256 identity_config; /* SHA-256 of config.json */
    struct key256
        identity_generation; /* SHA-256 of generation_config.json, of no bytes without that file; zero: unknown */
    const char *model;             /* name for messages, n_model bytes, not NUL-terminated */
    size_t n_model;
    /* engine → front only (zero from a front end): */
    uint32_t vocab_size, max_model_len, max_num_seqs, block_tokens, max_num_batched_tokens, max_queued_requests;
    uint32_t n_eos;
    const uint8_t *eos;            /* n_eos × u32, unaligned little endian: wire_u32() */
    uint64_t initial_credit;       /* front → engine: bytes that it can receive */
    const char *description;       /* engine → front: description of the device for people */
    size_t n_description;
    /* Both ways if a key is required: the challenge, and wire_key_proof(). 0 or 32 bytes. */
    const uint8_t *key_proof;
    size_t n_key_proof;
    const uint8_t *nonce;
    size_t n_nonce;
    struct key256 identity_arithmetic; /* engine → front: responses may be cached and served under this value, */
    const char *arithmetic;            /* the SHA-256 of this text. Zero and empty: unknown */
    size_t n_arithmetic;
    uint32_t vector_size; /* engine → front: numbers in a prompt's vector; 0: the model generates tokens */
    bool vector_is_scores; /* engine → front: the vector holds a classifier's scores for a pair of texts */
    bool takes_predict; /* engine → front: the engine supports PREDICT */
};

struct wire_vector {
    uint32_t n_values;
    const uint8_t *values; /* decoded: n_values × f32, unaligned little endian: wire_f32() */
    const float *numbers;  /* for the encoder */
};

struct wire_predict { /* decoded: n_tokens × u32, unaligned little endian: wire_u32() */
    uint32_t n_tokens;
    const uint8_t *tokens; /* decoded: n_tokens × u32, unaligned little endian: wire_u32() */
    const uint32_t *ids;   /* for the encoder */
};

struct wire_token {                /* one generated or prompt token */
    uint32_t choice;               /* 0 for prompt logprobs */
    uint32_t token;
    bool has_logprob;
    float logprob;                 /* sent as its bits */
    uint32_t rank;
    uint32_t n_top;                /* <= 20 */
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
    const char *message;           /* the error's message if finish is ERROR */
    size_t n_message;
    const char *parameter;         /* the invalid field of the request; empty: no single field */
    size_t n_parameter;
    uint32_t status;               /* enum quire_status if finish is ERROR; 0: unknown */
    uint32_t retry_after_ms;       /* if status is exhausted: the policy rejected it before it ran */
    uint32_t n_created;            /* prompt tokens that the request added to the prefix cache */
    uint32_t n_drafted, n_accepted; /* drafts that its steps verified, and those that were accepted */
    uint32_t n_predicted, n_predicted_right; /* the part of these that came from the request's prediction */
    struct wire_account account;
};
struct wire_refuse {
    uint32_t status;               /* enum quire_status */
    uint32_t retry_after_ms;
    const char *message;
    size_t n_message;
    const char *parameter;         /* as in wire_done */
    size_t n_parameter;
};
/* The first members come from base/stats/rows.h. Texts are not NUL-terminated. A list has an array for the encoder,
 * and bytes that the decoder sets and NAME_get() reads. */
struct wire_stats {
    STATS_ROWS(STATS_WIRE_MEMBER)
    const char *policy;
    size_t n_policy;
    const char *figure_name; /* name of the policy's own figure; empty: the policy has no figure */
    size_t n_figure_name;
    const uint32_t *tenants; /* WIRE_TENANT_WORDS each, wire_tenant_get() */
    const uint8_t *tenant_bytes;
    uint32_t n_tenants;
    const char *shadow_policy; /* the shadow policy; n_shadow_policy 0: no shadow policy */
    size_t n_shadow_policy;
    const uint32_t *shadow_buckets; /* WIRE_SHADOW_BUCKET_WORDS, wire_shadow_bucket_get() */
    const uint8_t *shadow_bucket_bytes;
    uint32_t n_shadow_buckets;
    const uint32_t *step_buckets; /* WIRE_STEP_BUCKET_WORDS, wire_step_bucket_get() */
    const uint8_t *step_bucket_bytes;
    uint32_t n_step_buckets;
    const char *cache_dtype; /* dtype of the KV cache: "float16" */
    size_t n_cache_dtype;
    const uint32_t *accepted_at; /* WIRE_ACCEPTED_WORDS, wire_accepted_get(). For each position of a draft in a */
    const uint8_t *accepted_at_bytes; /* row: the rows whose draft at this position was accepted */
    uint32_t n_accepted_at;
    const char *draft_method; /* the server's: "none", "ngram", "suffix" */
    size_t n_draft_method;
    const uint32_t *rank_waits; /* WIRE_RANK_WAIT_WORDS, wire_rank_wait_get(). For each rank in order, the time it */
    const uint8_t *rank_wait_bytes; /* waited for each rank: the square of the number of ranks */
    uint32_t n_rank_waits;
};
struct wire_step_bucket { /* steps with at most n_tokens tokens */
    uint64_t n_tokens, n_steps;
};
#define WIRE_STEP_BUCKET_WORDS 4u
#define WIRE_MAX_STEP_BUCKETS 64u
void wire_step_bucket_put(uint32_t *words, const struct wire_step_bucket *bucket);
void wire_step_bucket_get(const struct wire_stats *stats, uint32_t index, struct wire_step_bucket *out);
#define WIRE_ACCEPTED_WORDS 2u
#define WIRE_MAX_ACCEPTED 64u
void wire_accepted_put(uint32_t *words, uint64_t n_rows);
uint64_t wire_accepted_get(const struct wire_stats *stats, uint32_t place);
#define WIRE_RANK_WAIT_WORDS 2u
#define WIRE_MAX_RANK_WAITS 64u
void wire_rank_wait_put(uint32_t *words, uint64_t us);
uint64_t wire_rank_wait_get(const struct wire_stats *stats, uint32_t index);
struct wire_shadow_bucket { /* requests whose first token came within the bound */
    uint64_t bound_us, n_live, n_shadow;
};
#define WIRE_SHADOW_BUCKET_WORDS 6u
#define WIRE_MAX_SHADOW_BUCKETS 64u
void wire_shadow_bucket_put(uint32_t *words, const struct wire_shadow_bucket *bucket);
void wire_shadow_bucket_get(const struct wire_stats *stats, uint32_t index, struct wire_shadow_bucket *out);
struct wire_tenant { /* the engine's counters of one tenant */
    STATS_TENANT_ROWS(STATS_TENANT_MEMBER)
};
#define WIRE_TENANT_WORDS 12u
/* words holds WIRE_TENANT_WORDS. */
void wire_tenant_put(uint32_t *words, const struct wire_tenant *tenant);
/* index must be below stats->n_tenants. */
void wire_tenant_get(const struct wire_stats *stats, uint32_t index, struct wire_tenant *out);

/* Encoders append one whole frame. They return QUIRE_NO_MEMORY (b->failed), or QUIRE_INVALID if a count or the body
 * is over its limit; then b is unchanged. They omit fields that have their default. They cut texts to WIRE_MAX_TEXT
 * bytes, and before a byte that is not UTF-8. */
int wire_put_hello(struct buffer *b, const struct wire_hello *hello);
int wire_put_submit(struct buffer *b, uint64_t request, const struct request_spec *spec);
/* The same without the prompt's ids. The caller sends these from their own memory at *prompt_at in b. */
int wire_put_submit_around(struct buffer *b, uint64_t request, const struct request_spec *spec, size_t *prompt_at);
/* id: the engine's id of the request, equal for every client, as in wire_account.blocker. 0: unknown. */
int wire_put_accept(struct buffer *b, uint64_t request, uint64_t id);
int wire_put_refuse(struct buffer *b, uint64_t request, const struct wire_refuse *refuse);
int wire_put_tokens(struct buffer *b, uint64_t request, const struct wire_token *tokens, uint32_t n_tokens);
int wire_put_prompt_logprobs(struct buffer *b, uint64_t request, const struct wire_token *tokens, uint32_t n_tokens);
/* The same in parts, for one pass over a step's events: begin, add at least one, end. type is WIRE_TOKENS or
 * WIRE_PROMPT_LOGPROBS; pass *mark to end. The caller must end a frame before it exceeds its limit. */
int wire_tokens_begin(struct buffer *b, uint16_t type, uint64_t request, size_t *mark);
int wire_tokens_add(struct buffer *b, const struct wire_token *token);
int wire_tokens_end(struct buffer *b, size_t mark);
int wire_put_done(struct buffer *b, uint64_t request, const struct wire_done *done);
int wire_put_vector(struct buffer *b, uint64_t request, const struct wire_vector *vector);
int wire_put_predict(struct buffer *b, uint64_t request, const struct wire_predict *predict);
int wire_put_cancel(struct buffer *b, uint64_t request, int64_t choice); /* choice -1: all choices */
int wire_put_credit(struct buffer *b, uint64_t n_bytes);
int wire_put_control(struct buffer *b, const char *command);
/* n_tenants: also request the counters of tenants 0 to n_tenants - 1. */
int wire_put_stats_request(struct buffer *b, uint32_t n_tenants);
int wire_put_stats(struct buffer *b, const struct wire_stats *stats);
int wire_put_drain(struct buffer *b);
int wire_put_error(struct buffer *b, uint32_t status, const char *message);

/* Decoders of a body. The message of QUIRE_INVALID names the field. QUIRE_UNSUPPORTED: the body has an unknown field
 * that must be understood. */
int wire_get_hello(const uint8_t *body, size_t n, struct wire_hello *out, struct quire_error *err);
/* The caller owns the contents of out. */
int wire_get_submit(const uint8_t *body, size_t n, struct request_spec *out, struct quire_error *err);
int wire_get_refuse(const uint8_t *body, size_t n, struct wire_refuse *out, struct quire_error *err);
int wire_get_done(const uint8_t *body, size_t n, struct wire_done *out, struct quire_error *err);
int wire_get_vector(const uint8_t *body, size_t n, struct wire_vector *out, struct quire_error *err);
int wire_get_predict(const uint8_t *body, size_t n, struct wire_predict *out, struct quire_error *err);
int wire_get_cancel(const uint8_t *body, size_t n, int64_t *choice, struct quire_error *err);
int wire_get_credit(const uint8_t *body, size_t n, uint64_t *n_bytes, struct quire_error *err);
int wire_get_control(const uint8_t *body, size_t n, const char **command, size_t *n_command, struct quire_error *err);
int wire_get_accept(const uint8_t *body, size_t n, uint64_t *id, struct quire_error *err);
int wire_get_stats_request(const uint8_t *body, size_t n, uint32_t *n_tenants, struct quire_error *err);
int wire_get_stats(const uint8_t *body, size_t n, struct wire_stats *out, struct quire_error *err);
int wire_get_error(const uint8_t *body, size_t n, uint32_t *status, const char **message, size_t *n_message,
                   struct quire_error *err);
/* DRAIN has no fields: only the framing and the must-understand bits are checked. */
int wire_get_drain(const uint8_t *body, size_t n, struct quire_error *err);

/* TOKENS and PROMPT_LOGPROBS: call with *cursor = 0 until it returns 0. 1: *out holds a token. Negative:
 * -QUIRE_INVALID or -QUIRE_UNSUPPORTED. */
int wire_next_token(const uint8_t *body, size_t n, size_t *cursor, struct wire_token *out, struct quire_error *err);

uint32_t wire_u32(const void *bytes, size_t index);
float wire_f32(const void *bytes, size_t index);

#endif
