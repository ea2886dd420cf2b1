/* The requests of a benchmark: the length of each prompt and answer, its arrival, and its tokens. Tokens are computed
 * when needed, so a workload of a hundred million tokens takes no memory. The same options, seed and vocabulary give
 * the same requests on every machine.
 *
 *   random             lengths uniform in [L (1 - R), L (1 + R)]
 *   prefix-repetition  a few long prefixes, each shared by many requests, and a separate suffix per request
 *   sharegpt           a ShareGPT file of conversations (needs a tokenizer), or a CSV of lengths (tools/bench/lib/workload.h)
 *   trace              times, lengths and shared prefixes of a recorded day (tools/bench/lib/workload.h)
 *
 * No global state; any thread may read open inputs.
 */
#ifndef QUIRE_TOOLS_BENCH_INPUTS_H
#define QUIRE_TOOLS_BENCH_INPUTS_H

#include "text/quire_text.h"
#include "tools/bench/lib/workload.h"
#include "app/command/cli.h"

struct bench_input_options {
    const char *dataset, *path;
    uint32_t num_prompts, input_len, output_len;
    bool has_output_len;
    double range_ratio;
    uint32_t num_prefixes, prefix_len, suffix_len;
    double rate_scale;
};
void bench_input_options_default(struct bench_input_options *options);

#define BENCH_INPUT_FLAGS_MAX 12
/* Writes the option rows to out[0..return value), like engine_flags(). */
size_t bench_input_flags(struct bench_input_options *options, struct cli_option out[BENCH_INPUT_FLAGS_MAX]);

/* The limits of the server or engine. */
struct bench_input_bounds {
    uint32_t vocab_size; /* ids are drawn below it */
    uint32_t max_model_len; /* prompt and answer together; 0: unknown, no limit */
    uint64_t seed;
    const struct quire_text *text; /* counts tokens of conversations; NULL: conversations are an error */
};

struct bench_input {
    double arrival_s; /* 0 if the inputs have no times */
    uint32_t n_prompt, n_output;
    uint32_t prefix; /* prefix-repetition: number of the prefix */
    const uint64_t *hashes; /* trace: of the prompt's blocks, or NULL */
    const char *text; /* sharegpt: the prompt, and its tokens; or NULL */
    const uint32_t *ids;
};

struct bench_inputs {
    struct bench_input *items;
    size_t n;
    bool is_timed; /* items have their own arrivals */
    size_t n_left_out; /* requests of the file that are longer than max_model_len */
};

/* QUIRE_INVALID names the option or the file's line. Requests of a file that are too long are left out, and fewer than
 * num_prompts may remain. Generated requests that are too long are an error. */
int bench_inputs_open(const struct bench_input_options *options, const struct bench_input_bounds *bounds,
                      struct bench_inputs **out, struct quire_error *err);
void bench_inputs_close(struct bench_inputs *in); /* NULL is allowed */

/* Writes prompt i as ids, out[n_prompt]. */
void bench_inputs_ids(const struct bench_inputs *in, size_t i, uint32_t *out);
/* Prompt i as text: the conversation's, or a common English word for each token, equal for equal ids. The caller frees
 * it. NULL: out of memory. */
char *bench_inputs_text(const struct bench_inputs *in, size_t i);

/* Parser of a cli_option: "4", or "inf", as requests per second into the double at rate. */
int bench_inputs_parse_rate(const char *text, void *rate, struct quire_error *err);

/* The send time of each request: arrivals[n] seconds from the beginning. Timed inputs keep their own times. Otherwise
 * rate requests per second, with gaps from a gamma distribution of shape burstiness (1: Poisson), scaled so that the
 * last arrives at n / rate, as in vLLM; INFINITY: all at once. */
void bench_inputs_arrivals(const struct bench_inputs *in, double rate, double burstiness, uint64_t seed,
                           double *arrivals);

#endif
