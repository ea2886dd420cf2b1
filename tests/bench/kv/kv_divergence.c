/* The effect of a KV cache's dtype, and of quantized weights, on a model's distributions: Kullback-Leibler divergence
 * of all positions of a text.
 *
 * build/tests/bench/kv_divergence [--at-most NATS] MODEL TEXT WINDOW N_TOKENS DTYPE DTYPE...
 *
 * The first N_TOKENS of the file TEXT are cut into prompts of WINDOW tokens. They are computed with each DTYPE of
 * --kv-cache-dtype, or DTYPE,QUANTIZATION,ACTIVATION of --quantization and --activation-dtype too, in chunks, as a
 * server computes prompts. The whole row of logits of every position is taken where the engine passes it to the
 * sampler, and compared with the row of the first DTYPE: KL(first || other), in nats, over the whole vocabulary. One
 * line of JSON for each DTYPE. --at-most: exit status 1 if a mean is above it. On CPUs, whose logits the host can read;
 * memory: WINDOW rows of logits.
 */
#include "engine/engine.h"
#include "engine/event.h"
#include "engine/info.h"
#include "engine/model/sizes.h"
#include "engine/options.h"
#include "engine/plan.h"
#include "kernels/args/sample.h"
#include "kernels/backend.h"
#include "kernels/open.h"
#include "text/quire_text.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 512u

int __real_k_backend_open(const struct k_backend_options *options, struct k_backend **out, const char **why,
                          struct quire_error *err);
int __wrap_k_backend_open(const struct k_backend_options *options, struct k_backend **out, const char **why,
                          struct quire_error *err);

struct sums {
    double kl, kl_most, nll;
    uint64_t n, n_same_best;
    float *each; /* KL of every position */
};

/* Written by the engine's thread while a request runs. */
static struct {
    float *reference; /* [window, vocab]: rows of the first dtype, */
    double *reference_sums; /* the logarithm of its exponentials' sum for each, */
    uint32_t *reference_bests; /* and its largest */
    bool is_reference;
    struct sums *sums;
    int (*sample)(struct k_backend *b, const struct k_sample_args *a, struct quire_error *err);
} taking;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool is_over, has_failed;

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("kv_divergence: ", stderr);
    vfprintf(stderr, format, arguments);
    fputs("\n", stderr);
    va_end(arguments);
    exit(2);
}

static double log_sum(const float *row, uint32_t n, uint32_t *best)
{
    double sum = 0;
    *best = 0;
    for (uint32_t i = 1; i < n; i++)
        *best = row[i] > row[*best] ? i : *best;
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)row[i] - row[*best]);
    return row[*best] + log(sum);
}

static void take_row(const struct k_sample_row *at, const float *row, uint32_t n)
{
    if (at->forced < 0) /* the answer's one token */
        return;
    struct sums *s = taking.sums;
    float *reference = taking.reference + (uint64_t)at->position * n;
    uint32_t best;
    const double sum = log_sum(row, n, &best);
    if (taking.is_reference) {
        memcpy(reference, row, n * sizeof *row);
        taking.reference_sums[at->position] = sum;
        taking.reference_bests[at->position] = best;
    }
    const double reference_sum = taking.reference_sums[at->position];
    double kl = 0;
    for (uint32_t i = 0; i < n; i++) {
        const double p = reference[i] - reference_sum;
        kl += exp(p) * (p - (row[i] - sum));
    }
    s->each[s->n++] = (float)kl;
    s->kl += kl;
    s->kl_most = kl > s->kl_most ? kl : s->kl_most;
    s->nll += sum - row[at->forced];
    s->n_same_best += best == taking.reference_bests[at->position];
}

static int sample(struct k_backend *b, const struct k_sample_args *a, struct quire_error *err)
{
    for (uint32_t i = 0; i < a->n_rows; i++)
        take_row(&a->rows[i], a->logits_dev + (uint64_t)i * a->n_vocab, a->n_vocab);
    return taking.sample(b, a, err);
}

int __wrap_k_backend_open(const struct k_backend_options *options, struct k_backend **out, const char **why,
                          struct quire_error *err)
{
    static struct k_backend_ops ops;
    int status = __real_k_backend_open(options, out, why, err);
    if (status != QUIRE_OK)
        return status;
    if (!(*out)->ops->planner->on_host)
        die("the host does not read this device's logits");
    ops = *(*out)->ops;
    taking.sample = ops.sample;
    ops.sample = sample;
    (*out)->ops = &ops;
    return QUIRE_OK;
}

static void sink(void *context, const struct engine_event *events, size_t n_events)
{
    (void)context;
    for (size_t i = 0; i < n_events; i++)
        if (events[i].kind == ENGINE_EVENT_DONE) {
            pthread_mutex_lock(&mutex);
            is_over = true;
            has_failed = events[i].finish == ENGINE_FINISH_ERROR;
            pthread_cond_signal(&changed);
            pthread_mutex_unlock(&mutex);
        }
}

/* how: "DTYPE", "DTYPE,QUANTIZATION" or "DTYPE,QUANTIZATION,ACTIVATION". */
static struct engine *open_engine(const char *model, const char *how, uint32_t window)
{
    struct engine_options o;
    struct engine *e;
    struct quire_error err;
    engine_options_default(&o);
    o.model_dir = model;
    static char *texts[64]; /* the engines', while the program runs */
    static unsigned n_texts;
    char *rest = n_texts < sizeof texts / sizeof *texts ? texts[n_texts++] = strdup(how) : NULL;
    if (!rest)
        die("out of memory, or more than 64 dtypes");
    o.kv_cache_dtype = strsep(&rest, ",");
    o.quantization = strsep(&rest, ",");
    o.activation_dtype = rest ? rest : o.activation_dtype;
    o.max_model_len = window + 1;
    o.max_num_seqs = 1;
    o.max_num_batched_tokens = CHUNK;
    o.prefix_caching = false;
    if (engine_open(&o, sink, NULL, &e, &err) != QUIRE_OK)
        die("%s", err.text);
    return e;
}

static void compute(struct engine *e, const uint32_t *ids, uint32_t n)
{
    struct request_spec spec, owned;
    struct quire_error err;
    request_spec_default(&spec);
    spec.prompt = ids;
    spec.n_prompt = n;
    spec.max_tokens = 1;
    spec.n_prompt_logprobs = 0;
    is_over = false;
    if (request_spec_copy(&owned, &spec, &err) != QUIRE_OK || engine_submit(e, 1, &owned, NULL, &err) != QUIRE_OK)
        die("%s", err.text);
    pthread_mutex_lock(&mutex);
    while (!is_over)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    if (has_failed)
        die("a request failed");
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Ends the reading of sums. */
static double print(struct sums *s, const char *model, const char *dtype, const char *first, uint32_t window,
                    const struct engine *e)
{
    const struct engine_info *info = engine_info(e);
    const double n = (double)s->n;
    qsort(s->each, s->n, sizeof *s->each, by_value);
    printf("{\"model\": \"%s\", \"kv_dtype\": \"%s\", \"against\": \"%s\", \"window\": %u, \"positions\": %llu,"
           " \"head_dim\": %u, \"bytes_a_token\": %llu, \"kl_mean\": %.3g, \"kl_median\": %.3g, \"kl_p99\": %.3g,"
           " \"kl_most\": %.3g, \"same_best\": %.5f, \"nll\": %.5f}\n",
           model, dtype, first, window, (unsigned long long)s->n, model_heads_of(info->desc, 0).k_dim,
           (unsigned long long)(info->plan->kv_block_bytes / info->block_tokens), s->kl / n, s->each[s->n / 2],
           s->each[s->n - 1 - s->n / 100], s->kl_most, (double)s->n_same_best / n, s->nll / n);
    fflush(stdout);
    return s->kl / n;
}

static uint32_t *read_ids(const char *model, const char *path, size_t n_wanted)
{
    struct quire_text *text;
    struct quire_error err;
    uint32_t *ids;
    size_t n;
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) != 0)
        die("%s: cannot be read", path);
    const long length = ftell(f);
    char *bytes = malloc((size_t)length + 1);
    rewind(f);
    if (!bytes || fread(bytes, 1, (size_t)length, f) != (size_t)length)
        die("%s: cannot be read", path);
    fclose(f);
    if (quire_text_open(model, &text, &err) != QUIRE_OK ||
        quire_text_encode(text, bytes, (size_t)length, false, &ids, &n, &err) != QUIRE_OK)
        die("%s", err.text);
    if (n < n_wanted)
        die("%s: has %zu tokens, %zu are wanted", path, n, n_wanted);
    quire_text_close(text);
    free(bytes);
    return ids;
}

int main(int argc, char **argv)
{
    double at_most = INFINITY;
    if (argc > 2 && strcmp(argv[1], "--at-most") == 0) {
        at_most = atof(argv[2]);
        argv += 2;
        argc -= 2;
    }
    if (argc < 7)
        die("[--at-most NATS] MODEL TEXT WINDOW N_TOKENS DTYPE DTYPE...");
    const char *model = argv[1], **dtypes = (const char **)argv + 5;
    const uint32_t window = (uint32_t)atoi(argv[3]), n_tokens = (uint32_t)atoi(argv[4]);
    const uint32_t n_dtypes = (uint32_t)argc - 5;
    if (window < 2 || n_tokens < window)
        die("WINDOW and N_TOKENS: a window is of 2 tokens at least, and one must be full");
    uint32_t *ids = read_ids(model, argv[2], n_tokens);
    struct engine **engines = calloc(n_dtypes, sizeof(struct engine *));
    struct sums *sums = calloc(n_dtypes, sizeof *sums);
    if (!engines || !sums)
        die("out of memory");
    for (uint32_t d = 0; d < n_dtypes; d++) {
        engines[d] = open_engine(model, dtypes[d], window);
        sums[d].each = malloc(n_tokens * sizeof *sums[d].each);
        if (!sums[d].each)
            die("out of memory");
    }
    taking.reference = malloc(window * (uint64_t)engine_info(engines[0])->vocab_size * sizeof(float));
    taking.reference_sums = malloc(window * sizeof(double));
    taking.reference_bests = malloc(window * sizeof(uint32_t));
    if (!taking.reference || !taking.reference_sums || !taking.reference_bests)
        die("out of memory");
    for (uint32_t at = 0; at + window <= n_tokens; at += window)
        for (uint32_t d = 0; d < n_dtypes; d++) {
            taking.is_reference = d == 0;
            taking.sums = &sums[d];
            compute(engines[d], ids + at, window);
        }
    bool is_above = false;
    for (uint32_t d = 0; d < n_dtypes; d++) {
        is_above |= !(print(&sums[d], model, dtypes[d], dtypes[0], window, engines[d]) <= at_most);
        engine_close(engines[d]);
        free(sums[d].each);
    }
    free(taking.reference);
    free(taking.reference_sums);
    free(taking.reference_bests);
    free(engines);
    free(sums);
    free(ids);
    return is_above;
}
