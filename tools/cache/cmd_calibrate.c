#include "tools/cache/cmd_calibrate.h"

#include "tools/bench/lib/plot.h"
#include "app/command/progress.h"
#include "app/models/cache.h"
#include "tools/cache/calibration.h"
#include "tools/cache/embedder.h"
#include "tools/cache/pairs_file.h"
#include "app/command/command.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct calibrate_command {
    const char *file, *url, *embedding_model, *api_key, *model, *picture;
    double precision;
    bool json, ignore_unused;
    struct pairs_file pairs;
    struct calibration_pair *rated; /* [pairs.n] */
    struct calibration result;
};

/* ---- similarities ---- */

static double cosine(const float *a, const float *b, size_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    double c = ab / sqrt(aa * bb);
    return isfinite(c) ? c : -1;
}

static void rate(struct calibrate_command *c, size_t i, double similarity)
{
    const struct pair *p = &c->pairs.pairs[i];
    c->rated[i] = (struct calibration_pair){
        .similarity = similarity,
        .same = p->same,
        .guard = guard_differs(p->text[0], strlen(p->text[0]), p->text[1], strlen(p->text[1])),
    };
}

static int rate_all(struct calibrate_command *c, struct embedder *e, struct quire_error *err)
{
    struct bench_progress bar;
    int status = QUIRE_OK;
    bench_progress_begin(&bar, "embedding: pairs", c->pairs.n);
    for (size_t i = 0, n; i < c->pairs.n && status == QUIRE_OK; i += n) {
        const char *texts[EMBEDDER_MAX_TEXTS];
        float *vectors;
        size_t size;
        n = c->pairs.n - i < EMBEDDER_MAX_TEXTS / 2 ? c->pairs.n - i : EMBEDDER_MAX_TEXTS / 2;
        for (size_t k = 0; k < 2 * n; k++)
            texts[k] = c->pairs.pairs[i + k / 2].text[k % 2];
        status = embedder_run(e, texts, 2 * n, &vectors, &size, err);
        for (size_t k = 0; k < n && status == QUIRE_OK; k++)
            rate(c, i + k, cosine(vectors + 2 * k * size, vectors + (2 * k + 1) * size, size));
        free(vectors);
        if (status != QUIRE_OK)
            quire_error_prefix(err, "%.100s: lines %zu to %zu", c->file, c->pairs.pairs[i].line,
                               c->pairs.pairs[i + n - 1].line);
        bench_progress_set(&bar, i + n);
    }
    bench_progress_end(&bar);
    return status;
}

static int open_model(const struct calibrate_command *c, struct embedder **out, struct quire_error *err)
{
    struct hub_model model;
    int status = hub_model_find(c->embedding_model, false, &model, err);
    return status == QUIRE_OK ? embedder_of_model(model.dir, c->ignore_unused, out, err) : status;
}

static int embed_all(struct calibrate_command *c, struct quire_error *err)
{
    struct cache_client *client = NULL;
    struct embedder *e = NULL;
    const struct cache_client_options options = {.url = c->url, .api_key = c->api_key, .model = c->model};
    int status = c->url ? cache_client_open(&options, &client, err) : QUIRE_OK;
    if (status == QUIRE_OK)
        status = c->url ? embedder_of_server(client, &e, err) : open_model(c, &e, err);
    if (status == QUIRE_OK)
        status = rate_all(c, e, err);
    embedder_close(e);
    cache_client_close(client);
    return status;
}

/* ---- output ---- */

#define MAX_EXAMPLES 10
static const int shown[] = {700, 750, 800, 850, 880, 900, 920, 950, 970, 990};
#define N_SHOWN (sizeof shown / sizeof shown[0])

static json_t *point_json(const struct calibration *c, bool guarded, int step)
{
    const struct calibration_point *p = &c->points[guarded][step];
    return json_pack("{s:f,s:I,s:I,s:f,s:f}", "threshold", step / (double)CALIBRATION_STEPS, "answered",
                     (json_int_t)p->n_answered, "wrong", (json_int_t)p->n_wrong, "precision", calibration_precision(p),
                     "recall", calibration_recall(c, p));
}

/* n[same]: the pairs that this guard rejects. */
static void count_rejected(const struct calibrate_command *c, enum guard g, size_t n[2])
{
    n[0] = n[1] = 0;
    for (size_t i = 0; i < c->pairs.n; i++)
        n[c->rated[i].same] += c->rated[i].guard == g;
}

static json_t *guards_json(const struct calibrate_command *c)
{
    json_t *guards = json_object();
    for (int g = GUARD_NONE + 1; g < N_GUARDS; g++) {
        size_t n[2];
        count_rejected(c, (enum guard)g, n);
        json_object_set_new(guards, guard_name((enum guard)g),
                            json_pack("{s:I,s:I}", "different", (json_int_t)n[0], "same", (json_int_t)n[1]));
    }
    return guards;
}

static int print_json(const struct calibrate_command *c)
{
    json_t *o = json_pack("{s:I,s:I,s:f}", "pairs", (json_int_t)c->result.n_pairs, "same", (json_int_t)c->result.n_same,
                          "wanted_precision", c->precision);
    for (int guarded = 0; guarded < 2; guarded++) {
        int step = calibration_threshold(&c->result, guarded, c->precision);
        json_t *points = json_array();
        for (int s = 0; s <= CALIBRATION_STEPS; s += 10)
            json_array_append_new(points, point_json(&c->result, guarded, s));
        json_object_set_new(o, guarded ? "with_guards" : "without_guards",
                            json_pack("{s:o,s:o}", "named",
                                      step < 0 ? json_null() : point_json(&c->result, guarded, step), "points",
                                      points));
    }
    json_object_set_new(o, "turned_down", guards_json(c));
    return command_print_json(o);
}

static void print_named(const struct calibrate_command *c, bool guarded)
{
    const char *how = guarded ? "with guards" : "without guards";
    int step = calibration_threshold(&c->result, guarded, c->precision);
    if (step < 0) {
        printf("%s: no threshold gives a precision of %g; --semantic-mode draft, the default, changes no answer\n", how,
               c->precision);
        return;
    }
    const struct calibration_point *p = &c->result.points[guarded][step];
    printf("%s: --semantic-threshold %.3f gives a precision of %.4f and a recall of %.3f (%zu answered, %zu wrong)\n",
           how, step / (double)CALIBRATION_STEPS, calibration_precision(p), calibration_recall(&c->result, p),
           p->n_answered, p->n_wrong);
    if (c->precision < 1 && p->n_answered < calibration_answers_needed(c->precision))
        printf("  too few answers to be sure: a precision of %g takes %zu answers and none of them wrong (95 %%)\n",
               c->precision, calibration_answers_needed(c->precision));
}

/* How many pairs each guard rejects, and where the paraphrases among them are. */
static void print_guards(const struct calibrate_command *c)
{
    size_t n_shown = 0, n_rejected = 0;
    printf("\nRejected by guards          same answer  different answers\n");
    for (int g = GUARD_NONE + 1; g < N_GUARDS; g++) {
        size_t n[2];
        count_rejected(c, (enum guard)g, n);
        n_rejected += n[1];
        if (n[0] + n[1] > 0)
            printf("  %-24s  %11zu  %17zu\n", guard_name((enum guard)g), n[1], n[0]);
    }
    for (size_t i = 0; i < c->pairs.n && n_shown < MAX_EXAMPLES; i++) {
        const struct pair *p = &c->pairs.pairs[i];
        if (!p->same || c->rated[i].guard == GUARD_NONE)
            continue;
        printf("%sline %zu (%s)", n_shown++ ? ", " : "with the same answer: ", p->line, guard_name(c->rated[i].guard));
    }
    if (n_rejected > n_shown)
        printf(" and %zu more", n_rejected - n_shown);
    if (n_rejected > 0)
        putchar('\n');
}

static void print_table(const struct calibrate_command *c)
{
    printf("%zu pairs, %zu of them with the same answer\n\n", c->result.n_pairs, c->result.n_same);
    printf("           without guards                      with guards\n");
    printf("threshold  answered  wrong  precision  recall  answered  wrong  precision  recall\n");
    for (size_t i = 0; i < N_SHOWN; i++) {
        printf("%9.2f", shown[i] / (double)CALIBRATION_STEPS);
        for (int guarded = 0; guarded < 2; guarded++) {
            const struct calibration_point *p = &c->result.points[guarded][shown[i]];
            char precision[16] = "-"; /* of no answers */
            if (p->n_answered > 0)
                snprintf(precision, sizeof precision, "%.4f", calibration_precision(p));
            printf("  %8zu  %5zu  %9s  %6.3f", p->n_answered, p->n_wrong, precision, calibration_recall(&c->result, p));
        }
        putchar('\n');
    }
    print_guards(c);
    putchar('\n');
    print_named(c, false);
    print_named(c, true);
}

/* From 0.5 on; lower thresholds are useless. */
#define FIRST_DRAWN (CALIBRATION_STEPS / 2)
#define N_DRAWN (CALIBRATION_STEPS - FIRST_DRAWN + 1)

/* Up to the last threshold with served answers. */
static size_t n_drawn(const struct calibration *c, bool guarded)
{
    size_t n = N_DRAWN;
    while (n > 1 && c->points[guarded][FIRST_DRAWN + n - 1].n_answered == 0)
        n--;
    return n;
}

static int draw(const struct calibrate_command *c, struct quire_error *err)
{
    static const char *const names[4] = {"precision", "recall", "precision, guarded", "recall, guarded"};
    double x[N_DRAWN], y[4][N_DRAWN];
    struct plot plot = {.title = "Answers to similar questions",
                        .x_label = "threshold of the cosine",
                        .y_label = "share",
                        .n_lines = 4};
    for (int i = 0; i < N_DRAWN; i++) {
        x[i] = (FIRST_DRAWN + i) / (double)CALIBRATION_STEPS;
        for (int guarded = 0; guarded < 2; guarded++) {
            const struct calibration_point *p = &c->result.points[guarded][FIRST_DRAWN + i];
            y[2 * guarded][i] = calibration_precision(p);
            y[2 * guarded + 1][i] = calibration_recall(&c->result, p);
        }
    }
    for (size_t l = 0; l < 4; l++)
        plot.lines[l] = (struct plot_line){names[l], x, y[l], n_drawn(&c->result, l / 2)};
    FILE *f = fopen(c->picture, "we");
    if (!f)
        return quire_fail(err, QUIRE_IO, "--picture %.200s: cannot be written: %s", c->picture, strerror(errno));
    plot_draw(f, &plot);
    bool bad = ferror(f) != 0;
    bad |= fclose(f) != 0;
    return bad ? quire_fail(err, QUIRE_IO, "--picture %.200s: cannot be written", c->picture) : QUIRE_OK;
}

/* ---- the command ---- */

static int run(struct calibrate_command *c, struct quire_error *err)
{
    int status = pairs_file_read(c->file, &c->pairs, err);
    if (status != QUIRE_OK)
        return status;
    c->rated = calloc(c->pairs.n, sizeof *c->rated);
    if (!c->rated)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    status = embed_all(c, err);
    if (status != QUIRE_OK)
        return status;
    calibrate(c->rated, c->pairs.n, &c->result);
    if (c->picture && (status = draw(c, err)) != QUIRE_OK)
        return status;
    if (c->json)
        return print_json(c) == 0 ? QUIRE_OK : quire_fail(err, QUIRE_IO, "standard output cannot be written");
    print_table(c);
    return QUIRE_OK;
}

static int run_command(struct calibrate_command *c)
{
    struct quire_error err;
    int status = run(c, &err);
    free(c->rated);
    pairs_file_free(&c->pairs);
    return status == QUIRE_OK ? 0 : command_fail(1, err.text);
}

#define FLAGS_MAX 10

/* Writes the option rows, with a terminating one. */
static void own_flags(struct calibrate_command *c, struct cli_option out[FLAGS_MAX])
{
    const struct cli_option rows[] = {
        {.names = "embedding-model",
         .kind = CLI_STRING,
         .target = &c->embedding_model,
         .value = "MODEL",
         .help = "Load this embedding model in the command itself: a directory, or a name that quire pull "
                 "has downloaded."},
        {.names = "ignore-unused-tensors",
         .kind = CLI_FLAG,
         .target = &c->ignore_unused,
         .help = "Continue although its files hold weights that the model does not use."},
        {.names = "url",
         .kind = CLI_STRING,
         .target = &c->url,
         .value = "URL",
         .help = "Use /v1/embeddings of this server instead."},
        {.names = "model",
         .kind = CLI_STRING,
         .target = &c->model,
         .value = "NAME",
         .help = "Embedding model of the server. Default: its first model."},
        {.names = "api-key",
         .kind = CLI_STRING,
         .target = &c->api_key,
         .value = "KEY",
         .help = "Bearer token of the server. Default: $OPENAI_API_KEY."},
        {.names = "precision",
         .kind = CLI_F64,
         .target = &c->precision,
         .min = 0,
         .max = 1,
         .value = "SHARE",
         .help = "Required share of correct answers among those served; the report names a threshold for it. Default "
                 "0.99."},
        {.names = "picture",
         .kind = CLI_STRING,
         .target = &c->picture,
         .value = "FILE.svg",
         .help = "Draw precision and recall over the threshold as an SVG file."},
        {.names = "json",
         .kind = CLI_FLAG,
         .target = &c->json,
         .help = "Print one JSON object with every hundredth threshold instead of the table."},
        {0}};
    _Static_assert(sizeof rows / sizeof rows[0] <= FLAGS_MAX, "raise FLAGS_MAX");
    memcpy(out, rows, sizeof rows);
}

int cache_calibrate(int argc, char **argv)
{
    struct calibrate_command c = {.precision = 0.99};
    struct cli_option rows[FLAGS_MAX];
    own_flags(&c, rows);
    const struct cli_command command = {
        .name = "cache",
        .usage = "quire cache calibrate PAIRS.jsonl --embedding-model MODEL | --url URL [options]",
        .about =
            "Measures how often the answer to a similar question is correct, for each threshold of the cosine, with and\n"
            "without guards (docs/guides/caching.md). Each line of PAIRS.jsonl has two questions and whether they have\n"
            "the same answer: {\"a\": TEXT, \"b\": TEXT, \"same\": true or false}.",
        .examples =
            "examples:\n  quire cache calibrate pairs.jsonl --embedding-model sentence-transformers/all-MiniLM-L6-v2 --picture pairs.svg\n"
            "  quire cache calibrate pairs.jsonl --url http://127.0.0.1:8000 --model minilm --precision 0.999",
        .options = rows,
        .positionals = {&c.file}};
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (!c.file)
        return command_fail(2, "PAIRS.jsonl is missing; usage: quire cache calibrate PAIRS.jsonl");
    if (!c.url == !c.embedding_model)
        return command_fail(2, "--embedding-model MODEL or --url URL is needed, and not both");
    if (!c.api_key)
        c.api_key = getenv("OPENAI_API_KEY");
    return run_command(&c);
}
