/* An engine in this process that gets requests as token ids and is timed. It needs no tokenizer, and the weights may be
 * random.
 *
 * One thread calls. Reports of the engine's own thread are collected inside.
 */
#ifndef QUIRE_TOOLS_BENCH_ENGINE_H
#define QUIRE_TOOLS_BENCH_ENGINE_H

#include "engine/info.h"
#include "engine/plan.h"
#include "tools/bench/lib/inputs.h"
#include "tools/bench/lib/metrics.h"
#include "app/command/progress.h"

struct bench_engine;

int bench_engine_open(const struct engine_options *options, struct bench_engine **out, struct quire_error *err);
void bench_engine_close(struct bench_engine *b); /* NULL is allowed */
const struct engine_info *bench_engine_info(const struct bench_engine *b);

struct bench_run {
    double elapsed_s; /* from before the first submission to the end of the last request */
    double prefill_s; /* until each request has its first token */
    uint64_t n_prompt, n_output;
    uint64_t n_output_prefill; /* part of n_output that had arrived by then */
    struct bench_result *results; /* [in->n], without ITLs; bench_run_free() */
    size_t n;
};

/* Greedy, ignoring the end of text, n_output tokens each. arrivals: submission times in ascending seconds from the
 * beginning, or NULL: all at once. progress counts answer tokens; may be NULL. The first request that the engine cannot
 * answer ends the run with its message. */
int bench_engine_run(struct bench_engine *b, const struct bench_inputs *in, const double *arrivals,
                     struct bench_progress *progress, struct bench_run *out, struct quire_error *err);
void bench_run_free(struct bench_run *run);

/* The requests of the options, for this engine's vocabulary and context. Conversations are counted with the model's own
 * tokenizer, which is then in *text (NULL if not needed). The caller closes both. */
int bench_engine_open_inputs(const struct bench_engine *b, const char *model_dir,
                             const struct bench_input_options *options, uint64_t seed, struct quire_text **text,
                             struct bench_inputs **in, struct quire_error *err);

/* One short request, so that the weights are in memory and the threads have run before the measurement. */
int bench_engine_warm_up(struct bench_engine *b, struct quire_error *err);

#endif
