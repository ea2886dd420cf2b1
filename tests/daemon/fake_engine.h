/* A null engine behind engine/engine.h: its own thread, a known token stream, no model. It tests the modules in
 * front of an engine; link it instead of quire_engine. */
#ifndef QUIRE_TESTS_FAKE_ENGINE_H
#define QUIRE_TESTS_FAKE_ENGINE_H

#include "engine/event.h"
#include "engine/stats.h"

enum fake_engine_mode {
    FAKE_ENGINE_ECHO,  /* the prompt's tokens, then eos; with ignore_eos the prompt repeatedly */
    FAKE_ENGINE_COUNT, /* last prompt token + choice + 1, + 2, ... modulo vocab_size; ends at eos */
};

struct fake_engine_options {
    enum fake_engine_mode mode;
    uint32_t vocab_size;    /* 1,000 */
    uint32_t max_model_len; /* 4,096 */
    uint32_t eos;           /* 2 */
    uint32_t interval_us;   /* pause after each step: 0 */
    uint32_t tokens_per_step; /* per choice: 1 */
    uint32_t max_live;      /* above it QUIRE_EXHAUSTED with retry_after_ms: 1,024 */
    uint32_t retry_after_ms; /* 1,500 */
    uint64_t refuse_below_us; /* a request with a deadline sooner than this ends as refused */
    uint32_t fail_token;    /* ENGINE_FINISH_ERROR replaces this token; UINT32_MAX: never */
    bool hold;              /* no step until fake_engine_release() */
    bool tells_no_arithmetic; /* like an engine of an older release */
    bool has_other_weights; /* its identity is that of another model */
    bool not_invariant; /* reports that its bits depend on other requests */
    /* At most 16: it returns vectors; number k is the sum of (id + position) mod (k + 3) over the prompt. Default 0. */
    uint32_t vector_size;
    bool vector_is_scores;
};
void fake_engine_options_default(struct fake_engine_options *options);

/* engine_open() calls this with the defaults. */
int fake_engine_open(const struct fake_engine_options *options, engine_sink sink, void *sink_context,
                     struct engine **out, struct quire_error *err);

/* For daemon_set_shadow(): constant figures. */
struct shadow *fake_engine_shadow(void);

/* Any thread. */
void fake_engine_release(struct engine *e);
uint32_t fake_engine_n_live(struct engine *e);
void fake_engine_set_stats(struct engine *e,
                           const struct engine_stats *stats); /* except that kv_usage follows n_running */
uint32_t fake_engine_n_cancelled(struct engine *e); /* requests, since the start */
uint64_t fake_engine_sum_served(struct engine *e); /* of the words of all hit reports */

#define FAKE_ENGINE_TENANTS 8
/* Its stats show the arrival of fields that it does not use otherwise: n_waiting_tokens is the sum of background
 * requests' prompt tokens, n_host_hits the sum of classes, n_recomputed the number of expected tokens. */
/* In every request's account: it waited for the request before it, whatever that did. */
#define FAKE_ENGINE_BUDGET_US 2000
#define FAKE_ENGINE_BLOCKS_US 3000

/* Logprobs at stream position i of a token: tests compare their bits. */
struct fake_logprob {
    float logprob;
    uint32_t rank;
    uint32_t top_ids[20];
    float top_logprobs[20];
};
void fake_engine_logprob(uint32_t token, uint32_t i, uint32_t vocab_size, struct fake_logprob *out);

#endif
