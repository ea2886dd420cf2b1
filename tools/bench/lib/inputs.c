#include "tools/bench/lib/inputs.h"

#include "base/encoding/json.h"
#include "base/encoding/number.h"
#include "tools/bench/lib/draw.h"
#include "tools/bench/lib/random.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TRACE_BYTES (1ull << 30)
#define MAX_SHAREGPT_BYTES (2ull << 30)
/* vLLM's limits for a ShareGPT request, so that the same file is the same work. */
#define SHAREGPT_MIN_TOKENS 4
#define SHAREGPT_MAX_PROMPT 1024
#define SHAREGPT_MAX_TOTAL 2048

/* Kinds of random streams. */
enum stream { STREAM_LENGTH = 1, STREAM_IDS, STREAM_PREFIX, STREAM_BLOCK, STREAM_ORDER, STREAM_ARRIVAL };

enum dataset { RANDOM, SHAREGPT, PREFIX_REPETITION, TRACE, N_DATASETS };
static const char *const dataset_names[N_DATASETS] = {"random", "sharegpt", "prefix-repetition", "trace"};

struct owner { /* begins with the public struct bench_inputs */
    struct bench_inputs in;
    struct bench_input_options options;
    struct bench_input_bounds bounds;
    enum dataset dataset;
    struct bench_workload workload;
    json_t *conversations; /* owns the texts */
};

/* ---- options ---- */

void bench_input_options_default(struct bench_input_options *o)
{
    *o = (struct bench_input_options){.dataset = "random",
                                      .num_prompts = 32,
                                      .input_len = 128,
                                      .output_len = 64,
                                      .num_prefixes = 4,
                                      .prefix_len = 256,
                                      .suffix_len = 64,
                                      .rate_scale = 1};
}

size_t bench_input_flags(struct bench_input_options *o, struct cli_option out[BENCH_INPUT_FLAGS_MAX])
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Requests:", .kind = CLI_GROUP},
        {.names = "dataset,dataset-name", .kind = CLI_STRING, .target = &o->dataset, .value = "NAME",
         .common = true, .help = "random, prefix-repetition, sharegpt or trace; default random."},
        {.names = "dataset-path", .kind = CLI_STRING, .target = &o->path, .value = "FILE",
         .common = true, .help = "File of the dataset. sharegpt: a ShareGPT JSON file, or a CSV of lengths. trace: JSON lines as "
                 "Mooncake's, or a CSV with times as Azure's (docs/guides/benchmarking.md)."},
        {.names = "num-prompts", .kind = CLI_U32, .target = &o->num_prompts, .min = 1, .max = 1 << 24, .value = "N",
         .common = true, .help = "Number of requests; default 32."},
        {.names = "input-len,random-input-len", .kind = CLI_U32, .target = &o->input_len, .min = 1,
         .max = BENCH_MAX_LENGTH, .value = "N", .common = true, .help = "Tokens of a random prompt; default 128."},
        {.names = "output-len,random-output-len", .kind = CLI_U32, .target = &o->output_len,
         .given = &o->has_output_len, .min = 1, .max = BENCH_MAX_LENGTH, .value = "N",
         .common = true, .help = "Tokens of an answer; default 64, or the length in the file."},
        {.names = "range-ratio,random-range-ratio", .kind = CLI_F64, .target = &o->range_ratio, .max = 0.999,
         .value = "R", .help = "Draw random lengths uniformly from L (1 - R) to L (1 + R). Default 0."},
        {.names = "num-prefixes,prefix-repetition-num-prefixes", .kind = CLI_U32, .target = &o->num_prefixes, .min = 1,
         .max = 1 << 24, .value = "N", .help = "prefix-repetition: number of different prefixes. Default 4."},
        {.names = "prefix-len,prefix-repetition-prefix-len", .kind = CLI_U32, .target = &o->prefix_len,
         .max = BENCH_MAX_LENGTH, .value = "N", .help = "prefix-repetition: tokens of each prefix. Default 256."},
        {.names = "suffix-len,prefix-repetition-suffix-len", .kind = CLI_U32, .target = &o->suffix_len, .min = 1,
         .max = BENCH_MAX_LENGTH, .value = "N",
         .help = "prefix-repetition: tokens of a request after its prefix. Default 64."},
        {.names = "rate-scale", .kind = CLI_F64, .target = &o->rate_scale, .min = 1e-6, .max = 1e6, .value = "X",
         .common = true, .help = "trace: speed up arrivals by this factor; default 1."},
    };
    /* clang-format on */
    _Static_assert(sizeof rows / sizeof rows[0] <= BENCH_INPUT_FLAGS_MAX, "raise BENCH_INPUT_FLAGS_MAX");
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

/* ---- generated requests ---- */

static int check_space(const struct owner *o, uint64_t n_input, uint64_t n_output, struct quire_error *err)
{
    if (o->bounds.max_model_len > 0 && n_input + n_output > o->bounds.max_model_len)
        return quire_fail(err, QUIRE_INVALID,
                          "prompts of %llu and answers of %llu tokens do not fit into a context of %u: ask for shorter "
                          "ones, or raise --max-model-len",
                          (unsigned long long)n_input, (unsigned long long)n_output, o->bounds.max_model_len);
    return QUIRE_OK;
}

static uint32_t most(uint32_t length, double ratio)
{
    return (uint32_t)((double)length * (1 + ratio));
}

static uint32_t draw_length(uint64_t *state, uint32_t length, double ratio)
{
    uint32_t low = (uint32_t)((double)length * (1 - ratio)), high = most(length, ratio);
    uint32_t n = low + (uint32_t)(bench_random(state) % (high - low + 1));
    return n ? n : 1;
}

static int make_random(struct owner *o, struct quire_error *err)
{
    const struct bench_input_options *p = &o->options;
    int status = check_space(o, most(p->input_len, p->range_ratio), most(p->output_len, p->range_ratio), err);
    for (size_t i = 0; i < o->in.n; i++) {
        uint64_t state = bench_stream(o->bounds.seed, STREAM_LENGTH, i);
        uint32_t n_prompt = draw_length(&state, p->input_len, p->range_ratio);
        o->in.items[i] = (struct bench_input){.n_prompt = n_prompt,
                                              .n_output = draw_length(&state, p->output_len, p->range_ratio)};
    }
    return status;
}

/* Every prefix once, then every one again: neighbours never share a prefix, unless there is only one. */
static int make_prefixes(struct owner *o, struct quire_error *err)
{
    const struct bench_input_options *p = &o->options;
    for (size_t i = 0; i < o->in.n; i++)
        o->in.items[i] = (struct bench_input){.n_prompt = p->prefix_len + p->suffix_len,
                                              .n_output = p->output_len,
                                              .prefix = (uint32_t)(i % p->num_prefixes)};
    return check_space(o, (uint64_t)p->prefix_len + p->suffix_len, p->output_len, err);
}

/* ---- from files ---- */

/* Appends a request of the file unless it is too long. */
static void take(struct owner *o, const struct bench_input *item)
{
    uint32_t room = o->bounds.max_model_len;
    if (room > 0 && (uint64_t)item->n_prompt + item->n_output > room)
        o->in.n_left_out++;
    else
        o->in.items[o->in.n++] = *item;
}

static bool is_full(const struct owner *o)
{
    return o->in.n == o->options.num_prompts;
}

static int take_trace(struct owner *o, bool with_times, const char *text, size_t n_bytes, const char *name,
                      struct quire_error *err)
{
    int status = bench_workload_read(text, n_bytes, name, &bench_workload_mooncake, &o->workload, err);
    if (status != QUIRE_OK)
        return status;
    if (with_times && !o->workload.has_times)
        return quire_fail(err, QUIRE_INVALID, "%s: has no times; to use only its lengths: --dataset sharegpt", name);
    for (size_t i = 0; i < o->workload.n_rows && !is_full(o); i++) {
        const struct bench_workload_row *row = &o->workload.rows[i];
        struct bench_input item = {
            .arrival_s = with_times ? row->arrival_s / o->options.rate_scale : 0,
            .n_prompt = row->n_input,
            .n_output = o->options.has_output_len ? o->options.output_len : row->n_output,
            .hashes = row->n_hashes ? o->workload.hashes + row->first_hash : NULL,
        };
        if (o->in.n > 0)
            item.arrival_s -= o->in.items[0].arrival_s;
        take(o, &item);
    }
    /* Time begins at the first accepted request. */
    if (o->in.n > 0)
        o->in.items[0].arrival_s = 0;
    o->in.is_timed = with_times;
    return QUIRE_OK;
}

/* The first two turns: the question, and the answer whose length counts. Returns false for an entry without them. */
static bool turns_of(const json_t *entry, const char **question, const char **answer)
{
    const json_t *turns = json_object_get(entry, "conversations");
    *question = json_string_value(json_object_get(json_array_get(turns, 0), "value"));
    *answer = json_string_value(json_object_get(json_array_get(turns, 1), "value"));
    return *question && *answer;
}

static int take_conversation(struct owner *o, const json_t *entry, struct quire_error *err)
{
    const char *question, *answer;
    uint32_t *ids = NULL, *answer_ids = NULL;
    size_t n_ids = 0, n_answer = 0;
    if (!turns_of(entry, &question, &answer))
        return QUIRE_OK;
    int status = quire_text_encode(o->bounds.text, question, strlen(question), true, &ids, &n_ids, err);
    if (status == QUIRE_OK)
        status = quire_text_encode(o->bounds.text, answer, strlen(answer), false, &answer_ids, &n_answer, err);
    free(answer_ids);
    size_t n_output = o->options.has_output_len ? o->options.output_len : n_answer;
    size_t before = o->in.n;
    if (status == QUIRE_OK && n_ids >= SHAREGPT_MIN_TOKENS && n_output >= SHAREGPT_MIN_TOKENS &&
        n_ids <= SHAREGPT_MAX_PROMPT && n_ids + n_output <= SHAREGPT_MAX_TOTAL) {
        const struct bench_input item = {
            .n_prompt = (uint32_t)n_ids, .n_output = (uint32_t)n_output, .text = question, .ids = ids};
        take(o, &item);
    }
    if (o->in.n == before)
        free(ids);
    return status;
}

static int take_conversations(struct owner *o, const char *text, size_t n_bytes, const char *name,
                              struct quire_error *err)
{
    if (!o->bounds.text)
        return quire_fail(err, QUIRE_INVALID,
                          "%s: counting its tokens needs --tokenizer MODEL, the directory with the served model's "
                          "tokenizer.json",
                          name);
    int status = quire_json_parse(text, n_bytes, 16, name, &o->conversations, err);
    if (status != QUIRE_OK)
        return status;
    size_t n = json_array_size(o->conversations);
    if (n == 0)
        return quire_fail(err, QUIRE_INVALID, "%s: must be an array of objects with \"conversations\"", name);
    size_t *order = malloc(n * sizeof *order);
    if (!order)
        return quire_fail(err, QUIRE_NO_MEMORY, "%s: out of memory", name);
    uint64_t state = bench_stream(o->bounds.seed, STREAM_ORDER, 0);
    for (size_t i = 0; i < n; i++) {
        size_t at = (size_t)(bench_random(&state) % (i + 1));
        order[i] = order[at];
        order[at] = i;
    }
    for (size_t i = 0; i < n && !is_full(o) && status == QUIRE_OK; i++)
        status = take_conversation(o, json_array_get(o->conversations, order[i]), err);
    free(order);
    return status;
}

static int take_file(struct owner *o, struct quire_error *err)
{
    char *text;
    size_t n;
    const char *path = o->options.path;
    bool is_trace = o->dataset == TRACE;
    if (!path)
        return quire_fail(err, QUIRE_INVALID, "--dataset %s needs --dataset-path FILE", dataset_names[o->dataset]);
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int status = bench_read_file(path, is_trace ? MAX_TRACE_BYTES : MAX_SHAREGPT_BYTES, &text, &n, err);
    if (status != QUIRE_OK)
        return status;
    o->in.n = 0;
    if (!is_trace && text[strspn(text, " \t\r\n")] == '[')
        status = take_conversations(o, text, n, name, err);
    else
        status = take_trace(o, is_trace, text, n, name, err);
    free(text);
    if (status == QUIRE_OK && o->in.n == 0)
        status = quire_fail(err, QUIRE_INVALID, "%s: no request fits%s", name,
                            o->in.n_left_out ? " into the model's context" : "");
    return status;
}

/* ---- opening ---- */

static int find_dataset(const char *name, enum dataset *out, struct quire_error *err)
{
    for (int i = 0; i < N_DATASETS; i++) {
        if (strcmp(dataset_names[i], name) == 0 || (i == PREFIX_REPETITION && strcmp(name, "prefix_repetition") == 0)) {
            *out = (enum dataset)i;
            return QUIRE_OK;
        }
    }
    return quire_fail(err, QUIRE_INVALID, "--dataset: \"%.40s\": must be random, prefix-repetition, sharegpt or trace",
                      name);
}

int bench_inputs_open(const struct bench_input_options *options, const struct bench_input_bounds *bounds,
                      struct bench_inputs **out, struct quire_error *err)
{
    static int (*const makers[N_DATASETS])(struct owner *, struct quire_error *) = {
        [RANDOM] = make_random, [SHAREGPT] = take_file, [PREFIX_REPETITION] = make_prefixes, [TRACE] = take_file};
    enum dataset dataset = RANDOM;
    *out = NULL;
    int status = find_dataset(options->dataset, &dataset, err);
    if (status != QUIRE_OK)
        return status;
    struct owner *o = calloc(1, sizeof *o);
    if (!o)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    o->options = *options;
    o->bounds = *bounds;
    o->dataset = dataset;
    o->in.n = options->num_prompts;
    o->in.items = calloc(options->num_prompts, sizeof *o->in.items);
    status = o->in.items ? makers[dataset](o, err)
                         : quire_fail(err, QUIRE_NO_MEMORY, "out of memory for %u requests", options->num_prompts);
    if (status != QUIRE_OK) {
        bench_inputs_close(&o->in);
        return status;
    }
    *out = &o->in;
    return QUIRE_OK;
}

void bench_inputs_close(struct bench_inputs *in)
{
    struct owner *o = (struct owner *)(void *)in;
    if (!o)
        return;
    for (size_t i = 0; in->items && i < in->n; i++)
        free((void *)(uintptr_t)in->items[i].ids);
    free(in->items);
    bench_workload_free(&o->workload);
    json_decref(o->conversations);
    free(o);
}

/* ---- tokens ---- */

static void draw_ids(uint64_t state, uint32_t vocab_size, uint32_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (uint32_t)(bench_random(&state) % vocab_size);
}

void bench_inputs_ids(const struct bench_inputs *in, size_t i, uint32_t *out)
{
    const struct owner *o = (const struct owner *)(const void *)in;
    const struct bench_input *item = &in->items[i];
    uint64_t seed = o->bounds.seed;
    uint32_t vocab = o->bounds.vocab_size;
    if (item->ids) {
        memcpy(out, item->ids, item->n_prompt * sizeof *out);
    } else if (item->hashes) {
        for (uint32_t at = 0, b = 0; at < item->n_prompt; at += BENCH_WORKLOAD_BLOCK, b++) {
            uint32_t left = item->n_prompt - at;
            draw_ids(bench_stream(seed, STREAM_BLOCK, item->hashes[b]), vocab, out + at,
                     left < BENCH_WORKLOAD_BLOCK ? left : BENCH_WORKLOAD_BLOCK);
        }
    } else {
        uint32_t n_prefix = o->dataset == PREFIX_REPETITION ? o->options.prefix_len : 0;
        draw_ids(bench_stream(seed, STREAM_PREFIX, item->prefix), vocab, out, n_prefix);
        draw_ids(bench_stream(seed, STREAM_IDS, i), vocab, out + n_prefix, item->n_prompt - n_prefix);
    }
}

/* Each is a single token in any vocabulary trained on English. */
static const char *const words[] = {
    "time",  "year",   "people", "way",     "day",     "man",     "thing",    "woman",   "life",       "child",
    "world", "school", "state",  "family",  "student", "group",   "country",  "problem", "hand",       "part",
    "place", "case",   "week",   "company", "system",  "program", "question", "work",    "government", "number",
    "night", "point",  "home",   "water",   "room",    "mother",  "area",     "money",   "story",      "fact",
    "month", "lot",    "right",  "study",   "book",    "eye",     "job",      "word",    "business",   "issue",
    "side",  "kind",   "head",   "house",   "service", "friend",  "father",   "power",   "hour",       "game",
    "line",  "end",    "member", "law",
};
#define N_WORDS (sizeof words / sizeof words[0])
#define WORD_BYTES 11u /* the longest word, and a space */

char *bench_inputs_text(const struct bench_inputs *in, size_t i)
{
    const struct bench_input *item = &in->items[i];
    if (item->text)
        return strdup(item->text);
    uint32_t *ids = malloc(item->n_prompt * sizeof *ids);
    char *text = malloc((size_t)item->n_prompt * WORD_BYTES + 1);
    if (ids && text) {
        char *at = text;
        bench_inputs_ids(in, i, ids);
        for (uint32_t k = 0; k < item->n_prompt; k++) {
            if (k > 0)
                *at++ = ' ';
            at = stpcpy(at, words[ids[k] % N_WORDS]);
        }
        *at = 0;
    } else {
        free(text);
        text = NULL;
    }
    free(ids);
    return text;
}

/* ---- arrivals ---- */

int bench_inputs_parse_rate(const char *text, void *rate, struct quire_error *err)
{
    const char *at = text;
    double value = INFINITY;
    if (strcmp(text, "inf") != 0 && (!quire_take_number(&at, DBL_MAX, &value) || *at || value <= 0))
        return quire_fail(err, QUIRE_INVALID, "\"%.40s\": must be requests per second, or inf", text);
    *(double *)rate = value;
    return QUIRE_OK;
}

void bench_inputs_arrivals(const struct bench_inputs *in, double rate, double burstiness, uint64_t seed,
                           double *arrivals)
{
    uint64_t state = bench_stream(seed, STREAM_ARRIVAL, 0);
    double sum = 0;
    for (size_t i = 0; i < in->n; i++) {
        if (in->is_timed)
            arrivals[i] = in->items[i].arrival_s;
        else
            arrivals[i] = isfinite(rate) ? sum += bench_draw_gamma(&state, burstiness) : 0;
    }
    if (!in->is_timed && isfinite(rate) && sum > 0)
        for (size_t i = 0; i < in->n; i++)
            arrivals[i] *= (double)in->n / rate / sum;
}
