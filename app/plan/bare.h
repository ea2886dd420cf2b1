/* `quire plan` from config.json alone: the memory of a model for several contexts and batches, the GPUs that hold it, and
 * predicted times. What the command and its two printers share. Main thread. */
#ifndef QUIRE_APP_PLAN_BARE_H
#define QUIRE_APP_PLAN_BARE_H

#include "app/command/cli.h"
#include "engine/plan_bare.h"
#include "engine/plan_model.h"
#include "kernels/devices.h"
#include "scheduler/cost.h"

#include <stdbool.h>
#include <stdint.h>

#define BARE_MAX_LIST 8
#define BARE_MAX_GPUS 8u /* of one host: what -tp goes up to */

struct bare_list {
    uint32_t n, items[BARE_MAX_LIST];
};
#define BARE_FLAGS_MAX 4
struct bare_flags {
    const char *weights;
    struct bare_list contexts, batches;
};
/* Writes the option rows with their heading, without a terminating row. Returns their number. */
size_t bare_flags(struct bare_flags *flags, struct cli_option out[BARE_FLAGS_MAX]);

/* Predicted, never measured. All 0: there is no prediction. */
struct bare_times {
    double first_token_s; /* a prompt of the context alone, until its first token */
    double token_s; /* a step of the whole batch at the end of the context */
    double tokens_per_s; /* of the whole batch */
};

/* How GPUs of one kind hold a case. n_gpus 0: they do not. */
struct bare_fit {
    uint32_t n_gpus;
    const struct bare_format *made; /* NULL, or weights that --quantization makes */
    const char *kv_dtype; /* NULL, or --kv-cache-dtype */
    uint64_t used_bytes, budget_bytes; /* of each GPU; used: with the driver's part */
    uint64_t kv_tokens; /* that fit in all beside the rest, in requests as long as the case's */
    struct bare_times times;
};
/* At most `batch` sequences of `context` tokens, of a model planned with these options. */
struct bare_fits {
    const struct k_device *gpu;
    struct bare_fit planned; /* fewest GPUs with the options as they are */
    struct bare_fit fewest; /* fewest GPUs with other flags; n_gpus 0: no fewer */
};
void bare_fit_gpu(const struct bare_model *m, const struct engine_options *options, uint32_t context, uint32_t batch,
                  const struct k_device *gpu, struct bare_fits *out);

/* The cost model of a GPU for one of n_gpus ranks, from its data sheet, and the times that it predicts. */
void bare_gpu_cost(const struct bare_model *m, const struct engine_plan *plan, const struct k_device *gpu,
                   uint32_t n_gpus, struct sched_cost *out);
struct bare_times bare_predict(const struct sched_cost *cost, const struct engine_plan *plan, uint32_t context,
                               uint32_t batch);
uint64_t bare_kv_bytes(const struct engine_plan *plan, uint32_t context, uint32_t batch);

struct bare_case {
    uint32_t context, batch;
    struct engine_plan *plan; /* owned; on the device of the options, one rank */
    struct bare_times times; /* of --cost-model */
    struct bare_fits *fits; /* [n_gpus], owned */
};
struct bare_report {
    const char *name;
    struct bare_model model;
    struct bare_weights weights;
    uint32_t max_position; /* that the model was made for */
    double utilization;
    uint32_t n_gpus, n_cases;
    struct bare_case cases[BARE_MAX_LIST * BARE_MAX_LIST]; /* contexts in turn, of each all batches */
};
/* "MHA", "GQA" or "MQA", of the first layer with attention; else "none". */
const char *bare_attention_name(const struct model_config *config);
int bare_print_json(const struct bare_report *report); /* returns the exit status */
void bare_print_table(const struct bare_report *report);

/* Whether MODEL has no weights: a file *.json, or a directory with config.json and no checkpoint. */
bool bare_is_config(const char *given);
/* Plans and prints. given: MODEL. Returns the exit status. */
int bare_command(const char *given, const struct engine_options *options, const struct bare_flags *flags, bool json);

#endif
