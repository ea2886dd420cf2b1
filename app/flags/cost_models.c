#include "app/flags/cost_models.h"

#include <stdio.h>
#include <string.h>

/* Predicted: 8.0e9 parameters in bf16 on one GPU with 3.35 TB/s of memory and 400 TFLOP/s in matrix products in practice.
 *   T(n)              = max(16 GB / (0.75 x 3.35 TB/s), n x 16 GFLOP / 400 TFLOP/s)
 *   context_us        = 128 KiB of keys and values / (0.8 x 3.35 TB/s): 32 layers, 8 KV heads of 128, f16
 *   pair_us           = 32 layers x 32 heads x 128 x 4 FLOP / 400 TFLOP/s
 *   block_copy_us     = 16 positions x 128 KiB / 50 GB/s
 * Rows and logits have no cost of their own. */
#define GPU_8B \
    "{\"about\": \"an 8B model in bf16 on one H100, from the limits of its data sheet\", " \
    "\"points\": [[1, 6368], [159, 6368], [160, 6400], [8192, 327680]], \"context_us\": 0.0489, " \
    "\"pair_us\": 0.00131, \"block_copy_us\": 42, " \
    "\"model\": {\"n_layers\": 32, \"hidden_size\": 4096, \"vocab_size\": 128256}}"

/* Measured: quire bench steps MODEL --threads 1 --output FILE, rounded to four digits. */
#define DEMO_CPU \
    "{\"about\": \"the demo model on 1 thread of an AMD EPYC (Zen 4, AVX-512, 2 shared vCPUs), " \
    "2026-11-27, 7.4 % off on steps that it was not fitted on\", \"points\": [[1, 100.4], [2, " \
    "137.3], [4, 189.7], [8, 454.8], [16, 941.7], [32, 2038], [64, 4359], [128, 7661], [256, 17150], " \
    "[512, 33700]], \"row_us\": 7.691, \"logit_us\": 32.25, \"context_us\": 0.111, \"pair_us\": " \
    "0.05318, \"block_copy_us\": 3.441, \"micro_batch_tokens\": 64, \"model\": {\"n_layers\": 4, " \
    "\"hidden_size\": 256, \"vocab_size\": 2048}}"

static const struct cost_model models[] = {
    {"8b-h100-predicted", false, GPU_8B},
    {"demo-cpu", true, DEMO_CPU},
};
#define N_MODELS (sizeof models / sizeof models[0])

const struct cost_model *cost_models(size_t *n)
{
    *n = N_MODELS;
    return models;
}

static int no_such(const char *name, struct quire_error *err)
{
    char names[200] = "";
    for (size_t i = 0, at = 0; i < N_MODELS && at < sizeof names; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "", models[i].name);
    return quire_fail(err, QUIRE_INVALID,
                      "%.200s: is neither a file nor one of %s; quire bench steps MODEL writes a file", name, names);
}

int cost_model_read(const char *name_or_path, struct sched_cost *out, struct cost_shape *shape,
                    const struct cost_model **named, struct quire_error *err)
{
    *named = NULL;
    for (size_t i = 0; i < N_MODELS; i++) {
        if (strcmp(models[i].name, name_or_path) != 0)
            continue;
        *named = &models[i];
        return cost_file_parse(models[i].text, strlen(models[i].text), models[i].name, out, shape, err);
    }
    int status = cost_file_read(name_or_path, out, shape, err);
    return status == QUIRE_NOT_FOUND ? no_such(name_or_path, err) : status;
}
