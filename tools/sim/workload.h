/* The requests of a simulation: when each comes, how long it is, who sends it and what it shares with others. Prompts are
 * made when they are asked for, so that a workload of a hundred million tokens takes no memory. The same options and seed give
 * the same requests on every machine.
 *
 *   mooncake   lines of JSON, milliseconds, a hash is 512 tokens                    (tools/bench/lib/workload.h has the forms)
 *   timed      lines of JSON as vllm bench's timed traces: seconds, a hash is 16 tokens; what hash_ids do not cover is the
 *              request's own
 *   azure      CSV with times
 *   synthetic  no file: arrivals and lengths are drawn, for each tenant from streams of its own, so that a tenant's
 *              requests stay the same whoever else is there
 *
 * No global state; any thread may read what is open.
 */
#ifndef QUIRE_TOOLS_SIM_WORKLOAD_H
#define QUIRE_TOOLS_SIM_WORKLOAD_H

#include "tools/sim/tenants.h"

#include <stddef.h>

struct sim_workload_options {
    const char *path, *format;
    double rate_scale; /* requests come so many times as fast; 0 = 1 */
    uint32_t num_requests; /* the first of a file, or that many are made; 0 = all, or 1,000 */
    uint32_t max_model_len; /* longer requests are left out; 0 = no bound */
    uint64_t seed;
    const char *tenants; /* tools/sim/tenants.h; NULL = those of the file, or one */
    uint32_t hash_tokens; /* that a hash stands for; 0 = the format's */
    bool milliseconds; /* timed: the unit of timestamps, not seconds */
    bool full_blocks; /* a request's last hash counts as a full block too: its prompt is all of them, and one token
                                more, since a hit never covers a whole prompt */
    /* synthetic */
    double request_rate; /* a second; 0 = all at once */
    double burstiness; /* shape of the gamma distribution of gaps: 1 = Poisson; 0 = 1 */
    double duration_s; /* arrivals stop; 0 = after num_requests */
    const char *ramp; /* "FROM:TO": rates go evenly from FROM times to TO times theirs; NULL = none */
    const char *input_len, *output_len, *lengths_path; /* lengths_path: pairs drawn from a CSV; else NULL */
};

struct sim_request {
    double arrival_s; /* never falls */
    uint32_t n_prompt, n_output;
    uint32_t tenant, class_index;
    int32_t priority;
    double deadline_ms; /* after arrival; 0 = none */
    const uint64_t *hashes; /* the prompt begins with these blocks of hash_tokens */
    uint32_t n_hashes;
    uint32_t domain; /* requests with the same one share prefixes; below n_domains */
    uint32_t max_tokens; /* what it asked for; 0 = n_output */
    bool background;
    const struct sim_guess *guesses; /* [n_output]: what was proposed when so many tokens were there; NULL: not known */
};
struct sim_guess {
    uint8_t n, n_right; /* drafts, and how many of them, from the first on, were what came */
    bool gated; /* drafts came from the host: nothing was planned past a token that is being sampled */
};

struct sim_workload {
    struct sim_request *requests;
    size_t n;
    struct sim_tenant *tenants;
    uint32_t n_tenants, n_domains; /* a domain for each tenant, unless a recording says otherwise */
    uint32_t hash_tokens;
    uint64_t seed;
    /* Prompts that are known, as a recording's; NULL: they are made. */
    void (*read_prompt)(void *context, size_t i, uint32_t *out);
    void *context;
    size_t n_left_out; /* longer than max_model_len */
    uint32_t max_prompt, max_total; /* the longest prompt; prompt and answer */
    struct bench_workload file; /* owns hashes */
};

/* QUIRE_INVALID names the option or the file's line. Out is freed by sim_workload_close(), also after a failure. */
int sim_workload_open(const struct sim_workload_options *options, struct sim_workload *out, struct quire_error *err);
void sim_workload_close(struct sim_workload *workload);

/* Prompt i as ids, out[n_prompt]. */
void sim_workload_prompt(const struct sim_workload *workload, size_t i, uint32_t *out);

#endif
