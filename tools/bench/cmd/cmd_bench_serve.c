/* quire bench serve: load on a running server, measured by the client. */
#include "tools/bench/cmd/client.h"
#include "tools/bench/cmd/cmd_bench.h"
#include "app/command/command.h"
#include "app/models/cache.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct serve_options { /* as given */
    struct bench_client_options client;
    struct bench_input_options input;
    struct cli_list goodput;
    const char *metrics, *percentiles, *tokenizer, *save;
    double rate, burstiness;
    uint32_t max_concurrency, max_model_len, vocab_size;
    uint64_t seed;
    const char *host;
    uint32_t port;
    char made_url[320]; /* of host and port */
    bool json;
};

struct serve {
    const struct serve_options *options;
    struct bench_metrics_options metrics_options;
    uint32_t max_model_len; /* the smaller one of the option and the server's; 0: not known */

    struct quire_text *text; /* NULL without --tokenizer */
    struct bench_client *client;
    struct bench_inputs *in;
    double *arrivals;

    struct bench_result *results;
    double duration_s;
    struct bench_metrics metrics;
};

static int parse_values(struct serve *s, struct quire_error *err)
{
    int status = bench_metrics_options_parse(s->options->metrics, s->options->percentiles, s->options->goodput.items,
                                             s->options->goodput.n, &s->metrics_options, err);
    if (status == QUIRE_OK && !s->options->client.url)
        status = quire_fail(err, QUIRE_INVALID, "--url is missing, such as --url http://127.0.0.1:8000");
    return status;
}

/* vllm bench serve has --host and --port. */
static int make_url(struct serve_options *o, struct quire_error *err)
{
    int n = 0;
    if (o->client.url && (o->host || o->port))
        return quire_fail(err, QUIRE_INVALID, "--url already has the host and the port: leave out --host and --port");
    if (o->host || o->port)
        n = snprintf(o->made_url, sizeof o->made_url,
                     o->host && strchr(o->host, ':') ? "http://[%s]:%u" : "http://%s:%u",
                     o->host ? o->host : "127.0.0.1", o->port ? o->port : 8000);
    if (n >= (int)sizeof o->made_url)
        return quire_fail(err, QUIRE_INVALID, "--host: is too long");
    if (n > 0)
        o->client.url = o->made_url;
    return QUIRE_OK;
}

/* ---- opening ---- */

static int open_client(struct serve *s, struct quire_error *err)
{
    int status = bench_client_open(&s->options->client, &s->client, err);
    if (status == QUIRE_OK)
        status = bench_client_find_model(s->client, err);
    return status;
}

static int open_inputs(struct serve *s, struct quire_error *err)
{
    struct hub_model model;
    int status = s->options->tokenizer ? hub_model_find(s->options->tokenizer, true, &model, err) : QUIRE_OK;
    if (status == QUIRE_OK && s->options->tokenizer)
        status = quire_text_open(model.dir, &s->text, err);
    if (status != QUIRE_OK)
        return status;
    uint32_t room = bench_client_max_model_len(s->client);
    s->max_model_len = s->options->max_model_len;
    if (s->max_model_len == 0 || (room > 0 && room < s->max_model_len))
        s->max_model_len = room;
    const struct bench_input_bounds bounds = {.vocab_size = s->options->vocab_size,
                                              .max_model_len = s->max_model_len,
                                              .seed = s->options->seed,
                                              .text = s->text};
    status = bench_inputs_open(&s->options->input, &bounds, &s->in, err);
    if (status != QUIRE_OK)
        return status;
    s->arrivals = malloc(s->in->n * sizeof *s->arrivals);
    s->results = calloc(s->in->n, sizeof *s->results);
    if (!s->arrivals || !s->results)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    bench_inputs_arrivals(s->in, s->options->rate, s->options->burstiness, s->options->seed, s->arrivals);
    return QUIRE_OK;
}

/* One short request before the load: a wrong model name or key is reported once, not a thousand times. */
static int try_server(struct serve *s, struct quire_error *err)
{
    static const double at_once[1] = {0};
    struct bench_input_options input;
    struct bench_result result[1] = {{0}};
    struct bench_inputs *in;
    double duration;
    bench_input_options_default(&input);
    input.num_prompts = 1;
    input.input_len = 8;
    input.output_len = 2;
    const struct bench_input_bounds bounds = {.vocab_size = s->options->vocab_size, .seed = ~s->options->seed};
    int status = bench_inputs_open(&input, &bounds, &in, err);
    if (status != QUIRE_OK)
        return status;
    status = bench_client_run(s->client, in, at_once, 0, NULL, result, &duration, err);
    if (status == QUIRE_OK && !result[0].ok)
        status = quire_fail(err, QUIRE_INVALID, "the server did not answer the first request: %s",
                            result[0].error ? result[0].error : "unknown reason");
    free(result[0].error);
    free(result[0].itls_s);
    bench_inputs_close(in);
    return status;
}

static int run(struct serve *s, struct quire_error *err)
{
    struct bench_progress progress;
    int status = open_client(s, err);
    if (status == QUIRE_OK)
        status = open_inputs(s, err);
    if (status == QUIRE_OK)
        status = try_server(s, err);
    if (status != QUIRE_OK)
        return status;
    const struct bench_drafts before = bench_client_drafts(s->client);
    bench_progress_begin(&progress, "requests", s->in->n);
    progress.line_every_s = BENCH_PROGRESS_LINE_S;
    status = bench_client_run(s->client, s->in, s->arrivals, s->options->max_concurrency, &progress, s->results,
                              &s->duration_s, err);
    bench_progress_end(&progress);
    if (status == QUIRE_OK)
        status = bench_metrics_compute(s->results, s->in->n, s->duration_s, &s->metrics_options, &s->metrics, err);
    const struct bench_drafts after = bench_client_drafts(s->client);
    s->metrics.drafts = bench_drafts_between(&before, &after);
    return status;
}

/* ---- the report ---- */

static json_t *result_json(const struct serve *s)
{
    json_t *object = json_pack("{s:s, s:s, s:s, s:I, s:f}", "endpoint", s->options->client.endpoint, "model_id",
                               bench_client_model(s->client), "dataset", s->options->input.dataset, "num_prompts",
                               (json_int_t)s->in->n, "burstiness", s->options->burstiness);
    if (!object)
        return NULL;
    bool timed = s->in->is_timed;
    int bad = json_object_set_new(object, "request_rate",
                                  timed                        ? json_string("trace")
                                  : isfinite(s->options->rate) ? json_real(s->options->rate)
                                                               : json_string("inf"));
    bad |= json_object_set_new(object, "max_concurrency",
                               s->options->max_concurrency ? json_integer(s->options->max_concurrency) : json_null());
    bad |= bench_metrics_json(&s->metrics, &s->metrics_options, object, NULL) != QUIRE_OK;
    if (s->metrics.first_error)
        bad |= json_object_set_new(object, "first_error", json_string(s->metrics.first_error));
    if (bad) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static int save(const struct serve *s, json_t *object)
{
    char text[320];
    if (object && json_dump_file(object, s->options->save, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0)
        return 0;
    snprintf(text, sizeof text, "--save %.200s: cannot be written", s->options->save);
    return command_fail(1, text);
}

static int report(const struct serve *s)
{
    const struct bench_metrics *m = &s->metrics;
    int code = 0;
    if (s->in->n_left_out > 0)
        fprintf(stderr, "quire: %zu requests of %s are longer than %u tokens and were left out\n", s->in->n_left_out,
                s->options->input.path, s->max_model_len);
    if (m->failed > 0)
        fprintf(stderr, "quire: %zu of %zu requests failed; the first: %s\n", m->failed, s->in->n, m->first_error);
    json_t *object = s->options->json || s->options->save ? result_json(s) : NULL;
    if (s->options->save)
        code = save(s, object);
    if (s->options->json)
        return command_print_json(object) || code || m->completed == 0;
    json_decref(object);
    bench_metrics_print(m, &s->metrics_options, s->options->max_concurrency,
                        s->in->is_timed ? INFINITY : s->options->rate);
    return code || m->completed == 0;
}

static size_t own_flags(struct serve_options *o, struct cli_option *out)
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "The server:", .kind = CLI_GROUP},
        {.names = "url,base-url", .kind = CLI_STRING, .target = &o->client.url, .value = "URL",
         .help = "Address of any OpenAI-compatible server that streams, such as http://HOST:PORT."},
        {.names = "host", .kind = CLI_STRING, .target = &o->host, .value = "HOST",
         .help = "With --port, instead of --url. Default 127.0.0.1."},
        {.names = "port", .kind = CLI_U32, .target = &o->port, .min = 1, .max = 65535, .value = "N",
         .help = "Port of the server. Default 8000."},
        {.names = "endpoint", .kind = CLI_STRING, .target = &o->client.endpoint, .value = "PATH",
         .help = "Path of the endpoint. /v1/completions gets token ids, /v1/chat/completions gets text. Default "
                 "/v1/completions."},
        {.names = "model", .kind = CLI_STRING, .target = &o->client.model, .value = "NAME",
         .help = "Name of the model. Default: the first one in /v1/models."},
        {.names = "api-key", .kind = CLI_STRING, .target = &o->client.api_key, .value = "KEY",
         .help = "Bearer token. Default: $OPENAI_API_KEY, which other users of this machine cannot read from the "
                 "command line."},
        {.names = "The load:", .kind = CLI_GROUP},
        {.names = "request-rate", .kind = CLI_PARSED, .target = &o->rate, .parse = bench_inputs_parse_rate,
         .value = "R",
         .help = "Requests per second, or inf: all at once. A trace has its own times. Default inf."},
        {.names = "burstiness", .kind = CLI_F64, .target = &o->burstiness, .min = 0.01, .max = 1e6, .value = "B",
         .help = "Shape of the gamma distribution of the gaps: 1 is Poisson, smaller values are more bursty, larger "
                 "values more even. Default 1."},
        {.names = "max-concurrency", .kind = CLI_U32, .target = &o->max_concurrency, .value = "C",
         .help = "Maximum number of requests in flight; the others wait in the client. Default: no limit."},
        {.names = "ignore-eos", .kind = CLI_FLAG, .target = &o->client.ignore_eos,
         .help = "Request answers of exactly the given length. Not part of OpenAI's API."},
        {.names = "seed", .kind = CLI_U64, .target = &o->seed, .value = "N",
         .help = "Seed of prompts, lengths and arrivals. Default 0."},
        {.names = "vocab-size", .kind = CLI_U32, .target = &o->vocab_size, .min = 1, .max = 1 << 24, .value = "N",
         .help = "Draw token ids below this number. Default 1000, which is valid for every vocabulary."},
        {.names = "max-model-len", .kind = CLI_U32, .target = &o->max_model_len, .value = "N",
         .help = "Leave out longer requests of a file. Default: the limit in /v1/models, if present."},
        {.names = "tokenizer", .kind = CLI_STRING, .target = &o->tokenizer, .value = "MODEL",
         .help = "Directory or name of the served model, used to count the tokens of ShareGPT conversations."},
        {.names = "Results:", .kind = CLI_GROUP},
        {.names = "goodput", .kind = CLI_LIST, .target = &o->goodput, .value = "ttft:MS",
         .help = "Also count the requests per second that meet all of these limits: ttft:MS tpot:MS e2el:MS."},
        {.names = "percentile-metrics", .kind = CLI_STRING, .target = &o->metrics, .value = "LIST",
         .help = "Latencies to show. Default ttft,tpot,itl,e2el."},
        {.names = "metric-percentiles", .kind = CLI_STRING, .target = &o->percentiles, .value = "LIST",
         .help = "Percentiles to show. Default 50,95,99."},
        {.names = "json", .kind = CLI_FLAG, .target = &o->json, .help = "Print JSON instead of tables."},
        {.names = "save", .kind = CLI_STRING, .target = &o->save, .value = "FILE", .help = "Write the JSON to a file."},
    };
    /* clang-format on */
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

int bench_serve(int argc, char **argv)
{
    struct serve_options options = {.client = {.endpoint = "/v1/completions"},
                                    .rate = INFINITY,
                                    .metrics = "ttft,tpot,itl,e2el",
                                    .percentiles = "50,95,99",
                                    .burstiness = 1,
                                    .vocab_size = 1000};
    struct serve s = {.options = &options};
    struct cli_option rows[BENCH_INPUT_FLAGS_MAX + 26];
    struct quire_error err;

    bench_input_options_default(&options.input);
    size_t n = own_flags(&options, rows);
    n += bench_input_flags(&options.input, rows + n);
    rows[n] = (struct cli_option){0};
    const struct cli_command command = {
        .name = "bench serve",
        .usage = "quire bench serve --url URL [options]",
        .about =
            "Sends requests to a running OpenAI-compatible server, streams the answers and reports their times, with the\n"
            "fields and definitions of vllm bench serve (docs/guides/benchmarking.md).",
        .examples = "examples:\n"
                    "  quire bench serve --url http://127.0.0.1:8000 --num-prompts 100 --ignore-eos\n"
                    "  quire bench serve --url http://127.0.0.1:8000 --request-rate 4 --goodput ttft:500 tpot:50\n"
                    "  quire bench serve --url http://127.0.0.1:8000 --dataset trace --dataset-path trace.jsonl \\\n"
                    "      --rate-scale 0.1 --num-prompts 200 --save result.json",
        .options = rows,
        .positionals = {NULL},
    };
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (!options.client.api_key)
        options.client.api_key = getenv("OPENAI_API_KEY");
    if (make_url(&options, &err) != QUIRE_OK || parse_values(&s, &err) != QUIRE_OK)
        return command_fail(2, err.text);

    int status = run(&s, &err);
    code = status == QUIRE_OK ? report(&s) : command_fail(1, err.text);
    bench_client_close(s.client);
    bench_results_free(s.results, s.in ? s.in->n : 0);
    free(s.arrivals);
    bench_inputs_close(s.in);
    quire_text_close(s.text);
    return code;
}
