/* The requests of a simulation: their arrival times, lengths, tenants and shared prefixes. Prompts are computed when
 * needed, so a workload of a hundred million tokens takes no memory. The same options and seed give the same requests
 * on every machine.
 *
 *   mooncake   JSON lines, milliseconds, a hash is 512 tokens                    (formats: tools/bench/lib/workload.h)
 *   timed      JSON lines as vllm bench's timed traces: seconds, a hash is 16 tokens; tokens not covered by hash_ids
 *              belong to the request alone
 *   azure      CSV with times
 *   synthetic  no file: arrivals and lengths are drawn from separate streams per tenant, so that a tenant's requests do
 *              not depend on other tenants; tenants with turns have sessions
 *
 * No global state; any thread may read an open workload.
 */
#ifndef QUIRE_TOOLS_SIM_WORKLOAD_H
#define QUIRE_TOOLS_SIM_WORKLOAD_H

#include "tools/sim/tenants.h"

#include <stddef.h>

struct sim_workload_options {
    const char *path, *format;
    double rate_scale; /* speed-up of arrivals; 0 = 1 */
    uint32_t num_requests; /* the first requests of a file, or the number of synthetic ones; 0 = all, or 1,000 */
    uint32_t max_model_len; /* longer requests are left out; 0: no limit */
    uint64_t seed;
    const char *tenants; /* tools/sim/tenants.h; NULL: those of the file, or one */
    uint32_t hash_tokens; /* per hash; 0: the format's */
    bool milliseconds; /* timed: timestamps are in milliseconds, not seconds */
    /* a request's last hash also counts as a full block: its prompt is all of them plus one token, because a hit never
     * covers a whole prompt */
    bool full_blocks;
    /* synthetic */
    double request_rate; /* per second; 0: all at once */
    double burstiness; /* shape of the gamma distribution of gaps: 1 = Poisson; 0 = 1 */
    double duration_s; /* end of arrivals; 0: after num_requests */
    const char *ramp; /* "FROM:TO": rates change linearly from FROM times to TO times their value; NULL: constant */
    const char *input_len, *output_len, *lengths_path; /* lengths_path: pairs drawn from a CSV; otherwise NULL */
};

struct sim_request {
    double arrival_s; /* never falls; of a later turn: that of the first */
    uint32_t n_prompt, n_output;
    uint32_t tenant, class_index;
    int32_t priority;
    double deadline_ms; /* after arrival; 0: no deadline */
    const uint64_t *hashes; /* the prompt begins with these blocks of hash_tokens */
    uint32_t n_hashes;
    uint32_t domain; /* requests of the same domain share prefixes; below n_domains */
    uint32_t max_tokens; /* max_tokens of the request; 0 = n_output */
    bool background;
    /* Turns of a session (tools/sim/sessions.h), adjacent: the turn before and after it, plus one; 0: none. Those with a
     * turn before them arrive gap_s after its end, and their prompt begins with its prompt and answer. */
    uint32_t previous, next;
    double gap_s;
    const struct sim_guess *guesses; /* [n_output]: drafts proposed at this number of tokens; NULL: unknown */
};
struct sim_guess {
    uint8_t n, n_right; /* drafts, and how many of them, from the first on, equal the answer */
    bool gated; /* drafts come from the host: nothing is planned past a token that is still being sampled */
};

struct sim_workload {
    struct sim_request *requests;
    size_t n;
    struct sim_tenant *tenants;
    uint32_t n_tenants, n_domains; /* a domain for each tenant, unless a recording says otherwise */
    uint32_t hash_tokens;
    uint64_t seed;
    /* Reads known prompts, such as a recording's; NULL: prompts are computed. */
    void (*read_prompt)(void *context, size_t i, uint32_t *out);
    void *context;
    size_t n_left_out; /* longer than max_model_len */
    uint32_t max_prompt, max_total; /* longest prompt; longest sum of prompt and answer */
    struct bench_workload file; /* owns hashes */
};

/* QUIRE_INVALID names the option or the file's line. Call sim_workload_close(), also after an error. */
int sim_workload_open(const struct sim_workload_options *options, struct sim_workload *out, struct quire_error *err);
void sim_workload_close(struct sim_workload *workload);

/* Writes prompt i as ids, out[n_prompt]. */
void sim_workload_prompt(const struct sim_workload *workload, size_t i, uint32_t *out);
/* Token `at` of the answer of request i: different for any two positions of any two requests. */
uint32_t sim_workload_token(uint32_t i, uint32_t at);

#endif
