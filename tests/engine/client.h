/* A test's side of an engine: submits requests, collects every event of each, waits for ends.
 * Calls abort the program on what no test expects, so that tests read as what they check. */
#ifndef QUIRE_TESTS_ENGINE_CLIENT_H
#define QUIRE_TESTS_ENGINE_CLIENT_H

#include "engine/event.h"
#include "engine/plan.h"
#include "engine/stats.h"
#include "kernels/args/sample.h"
#include "request/spec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that grow: every number of an event, bit for bit, in order. */
struct record {
    unsigned char *bytes;
    size_t n, capacity;
};

struct choice_answer {
    uint32_t n_tokens;
    uint32_t *tokens;
    float *logprobs;        /* logprob of each token, if requested */
    struct record record;   /* token, position, logprob, rank and best tokens of each */
    bool done;
    enum engine_finish finish;
    bool has_stop_token;
    uint32_t stop_token, n_cached, n_generated, n_cache_created, retry_after_ms;
    struct engine_account account;
    char message[QUIRE_ERROR_BYTES];
    const char *parameter;
    enum quire_status status;
};

struct answer {
    uint64_t id;
    uint32_t n, n_prompt;
    uint32_t n_prompt_logprobs;
    float *prompt_logprobs; /* [n_prompt]; entry p is prompt token p's, 0 unused */
    struct record prompt_record;
    bool over;              /* the last DONE came */
    struct choice_answer choices[128];
    struct answer *next;
};

/* For a test with several ranks: main() calls it first if engine_is_rank(). */
int rank_main(void);

struct client;

#define CLIENT_FIRST_ID 1000u /* of a client's requests, in order */

/* model: a directory. The caller sets every option except the model directory. */
struct client *client_open(const char *model, const struct engine_options *options);
/* The same, NULL and the error where the engine does not open. */
struct client *client_try_open(const char *model, const struct engine_options *options, struct quire_error *err);
/* Closes the engine and frees every answer. */
void client_close(struct client *c);
/* Closes the engine; answers stay readable until client_close. */
void client_stop_engine(struct client *c);
struct engine *client_engine(struct client *c);

/* The request's id is set here. NULL when refused, with status, retry and text where asked for. */
struct answer *client_try(struct client *c, const struct request_spec *request, int *status, uint32_t *retry_after_ms,
                          struct quire_error *err);
struct answer *client_submit(struct client *c, const struct request_spec *request);
void client_wait(struct client *c, const struct answer *a);
/* Until the answer's choice 0 has at least n tokens or is over. */
void client_wait_tokens(struct client *c, const struct answer *a, uint32_t n);
/* Holds the engine thread in the sink at the next step that has events, until resumed;
 * wait_paused returns once it is there. */
void client_pause(struct client *c);
void client_wait_paused(struct client *c);
void client_resume(struct client *c);
void client_wait_order(struct client *c, uint64_t order); /* until it is carried out */
/* Passes the answer's prediction to the engine while the request runs. */
void client_predict(struct client *c, const struct answer *a, const uint32_t *tokens, uint32_t n);
/* Submits, and predicts between the first step with events and the next; then waits. */
struct answer *client_ask_late(struct client *c, const struct request_spec *request, const uint32_t *tokens,
                               uint32_t n);
/* Submit and wait. */
struct answer *client_ask(struct client *c, const struct request_spec *request);
/* Stats once nothing runs or waits. */
struct engine_stats client_idle_stats(struct client *c);

/* Entry `index` of a record whose events all carry n_top best tokens. */
struct recorded {
    uint32_t token, position, rank, n_top;
    float logprob;
    uint32_t ids[K_MAX_LOGPROBS];
    float logprobs[K_MAX_LOGPROBS];
};
struct recorded record_entry(const struct record *r, uint32_t index, uint32_t n_top);

bool records_equal(const struct record *a, const struct record *b);
/* Tokens, logprobs, best tokens, finish, and prompt logprobs of choice 0: the same bits. */
bool answers_equal(const struct answer *a, const struct answer *b);

/* A request with the engine's sampling defaults and greedy temperature. */
struct request_spec client_request(const uint32_t *prompt, uint32_t n_prompt, uint32_t max_tokens);
/* The i-th of many that differ: greedy and sampled, with choices, logprobs, those of the prompt, top_p, least lengths. */
struct request_spec client_varied_request(uint32_t i, const uint32_t *prompt, uint32_t n_prompt);
/* n pseudo-random ids below n_vocab. */
void client_random_prompt(uint32_t *out, uint32_t n, uint32_t n_vocab, uint64_t seed);

#endif
