/* quire eval compare: models in one table, and a chart. */
#include "app/command/command.h"
#include "base/size.h"
#include "engine/info.h"
#include "engine/model/facts.h"
#include "engine/model/model.h"
#include "engine/plan.h"
#include "kernels/format.h"
#include "tools/bench/lib/plot.h"
#include "tools/eval/cmd_eval.h"
#include "tools/eval/eval_flags.h"
#include "tools/eval/kl.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_MODELS 16
#define ROUNDS 3u       /* of a timing; the fastest counts */
#define MOST_PROMPT 256u /* of a timed request, which fits a window */
#define MOST_ANSWER 64u
#define LEAST_CONTEXT 4u /* a speed of decode needs two tokens */
#define LINE_NAME 96 /* bytes of a name in the chart */

struct compared {
    const char *given;
    char method[64];
    double bits; /* of a weight of the layers, with scales */
    uint64_t bytes; /* of weights in memory */
    uint32_t n_prompt, n_answer; /* of the timed requests */
    double prefill, decode; /* tokens a second */
    struct eval_divergence d;
};
struct compare_command {
    const char *first, *second, *third, *svg;
    struct cli_list more;
    struct eval_flags flags;
    struct compared *models; /* [MAX_MODELS] */
    uint32_t n;
};

static double bits_of(struct k_format format)
{
    double bits = 8 * (double)k_format_bytes(format, 256) / 256;
    if (format.packing == K_PACKING_PLANES && format.group)
        bits += 8.0 * (double)k_dtype_bytes(format.scale) / format.group;
    return bits;
}

/* GPTQ and AWQ choose integers of one format in their own ways. */
static const char *way_of(const struct quantization *q)
{
    return q->layout == QUANTIZATION_GPTQ ? "GPTQ " : q->layout == QUANTIZATION_AWQ ? "AWQ " : "";
}

/* Weights quantized at load are computed with, and not the file that they are made of. */
static void look(struct eval_session *s, struct compared *m)
{
    const struct engine_plan *plan = eval_info(s)->plan;
    const bool is_made = strstr(m->given, "quantization=") && plan->bytes[PLAN_REPACKED_ROWS] > 0;
    m->bits = bits_of(plan->weight_format);
    m->bytes = (is_made ? 0 : plan->bytes[PLAN_WEIGHTS]) + plan->bytes[PLAN_REPACKED_ROWS] + plan->bytes[PLAN_REPACKED];
    const bool has_kv = !k_format_is_plain(plan->kv_format), is_plain = k_format_is_plain(plan->weight_format);
    snprintf(m->method, sizeof m->method, "%s%s%s%s%s", way_of(&eval_info(s)->desc->facts->quantization),
             has_kv && is_plain ? "" : k_format_name(plan->weight_format), has_kv && !is_plain ? ", " : "",
             has_kv ? "KV " : "", has_kv ? k_format_name(plan->kv_format) : "");
}

static int time_it(struct eval_session *s, const struct eval_windows *w, struct compared *m, struct quire_error *err)
{
    uint32_t ids[MOST_ANSWER];
    const struct eval_window at = eval_window_at(w, 0);
    const uint32_t context = w->window > LEAST_CONTEXT ? w->window : LEAST_CONTEXT;
    const uint32_t n_answer = context / 2 < MOST_ANSWER ? context / 2 : MOST_ANSWER;
    const uint32_t most = context - n_answer < MOST_PROMPT ? context - n_answer : MOST_PROMPT;
    const uint32_t n = at.n < most ? at.n : most;
    m->n_prompt = n;
    m->n_answer = n_answer;
    for (uint32_t i = 0; i <= ROUNDS; i++) { /* the first warms up */
        struct eval_answer answer;
        const int status = eval_generate(s, at.ids, n, n_answer, ids, &answer, err);
        if (status != QUIRE_OK)
            return status;
        if (i == 0 || answer.n < 2)
            continue;
        m->prefill = fmax(m->prefill, n / answer.prefill_s);
        m->decode = fmax(m->decode, (answer.n - 1) / answer.decode_s);
    }
    return QUIRE_OK;
}

static int measure(struct compare_command *c, struct compared *m, struct quire_error *err)
{
    struct eval_session *s = NULL;
    struct eval_windows w = {0};
    const struct eval_kl_job job = {c->models[0].given, m->given,        c->flags.text,
                                    c->flags.window,    c->flags.stride, c->flags.most_windows,
                                    &c->flags.how};
    /* As `quire eval ppl` has it: a scaled RoPE depends on it, and a window may be as long as the model allows. */
    c->flags.how.max_tokens = c->flags.window > LEAST_CONTEXT ? c->flags.window : LEAST_CONTEXT;
    int status = eval_open(m->given, &c->flags.how, NULL, NULL, &s, err);
    if (status == QUIRE_OK)
        status = eval_windows_read(c->flags.text, eval_text(s), c->flags.window, c->flags.stride, 1, &w, err);
    if (status == QUIRE_OK) {
        look(s, m);
        status = time_it(s, &w, m, err);
    }
    eval_windows_free(&w);
    eval_close(s);
    return status == QUIRE_OK ? eval_kl(&job, &m->d, err) : status;
}

static void print_table(const struct compare_command *c)
{
    const struct compared *first = &c->models[0];
    printf(
        "%llu tokens of %s in windows of %u, stride %u; KL against the first row, in nats; speed: times the first row's,\n"
        "of one request of %u tokens and %u answered.\n\n",
        (unsigned long long)first->d.n_tokens, c->flags.text, c->flags.window, c->flags.stride, first->n_prompt,
        first->n_answer);
    printf(
        "| Model | Method | Bits | Memory | Perplexity (95 %%) | Increase (95 %%) | KL mean | KL 99.9 %% | Same best | Prefill | Decode |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (uint32_t i = 0; i < c->n; i++) {
        const struct compared *m = &c->models[i];
        const struct eval_perplexity p = eval_perplexity_of(&m->d.model), more = eval_perplexity_of(&m->d.increase);
        printf("| %s | %s | %.2f | %s | %.4f (%s) | %+.2f %% (%s) | %.3g | %.3g | %.2f %% | %.2f x "
               "| %.2f x |\n",
               m->given, m->method, m->bits, quire_size(m->bytes).text, p.token, eval_interval_of(&p, false).text,
               100 * (more.token - 1), eval_interval_of(&more, true).text, m->d.mean, m->d.p999, 100 * m->d.same_best,
               m->prefill / first->prefill, m->decode / first->decode);
    }
}

static int print_json(const struct compare_command *c)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < c->n; i++) {
        const struct compared *m = &c->models[i];
        const struct eval_perplexity p = eval_perplexity_of(&m->d.model), more = eval_perplexity_of(&m->d.increase);
        json_array_append_new(
            rows, json_pack("{s:o, s:s, s:f, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:f, s:f, s:f, s:f, s:f}", "model",
                            command_json_text(m->given), "method", m->method, "bits", m->bits, "bytes",
                            (json_int_t)m->bytes, "perplexity", eval_json_number(p.token), "perplexity_low",
                            eval_json_bound(&p, p.low), "perplexity_high", eval_json_bound(&p, p.high), "increase",
                            eval_json_number(more.token - 1), "increase_low", eval_json_bound(&more, more.low - 1),
                            "increase_high", eval_json_bound(&more, more.high - 1), "kl_mean", m->d.mean, "kl_median",
                            m->d.median, "kl_p999", m->d.p999, "same_top1", m->d.same_best, "prefill_tokens_per_s",
                            m->prefill, "decode_tokens_per_s", m->decode));
    }
    return command_print_json(json_pack("{s:o, s:I, s:I, s:I, s:o}", "text", command_json_text(c->flags.text), "window",
                                        (json_int_t)c->flags.window, "stride", (json_int_t)c->flags.stride, "tokens",
                                        (json_int_t)c->models[0].d.n_tokens, "models", rows));
}

/* The method, with the row of the table where other models have the same method. */
static void name_line(const struct compare_command *c, uint32_t i, char out[LINE_NAME])
{
    uint32_t n_same = 0;
    for (uint32_t other = 1; other < c->n; other++)
        n_same += strcmp(c->models[other].method, c->models[i].method) == 0;
    snprintf(out, LINE_NAME, n_same > 1 ? "%s, row %u" : "%s", c->models[i].method, i + 1);
}

/* KL by position in a window, a line for each model but the first. */
static int draw(const struct compare_command *c, struct quire_error *err)
{
    double x[EVAL_DEPTHS], y[MAX_MODELS][EVAL_DEPTHS];
    char names[MAX_MODELS][LINE_NAME];
    struct plot plot = {
        .title = "KL against the first model", .x_label = "position in the window", .y_label = "KL, nats"};
    for (uint32_t d = 0; d < EVAL_DEPTHS; d++)
        x[d] = (eval_depth_begin(c->flags.window, d) + eval_depth_begin(c->flags.window, d + 1)) / 2.0;
    for (uint32_t i = 1; i < c->n && plot.n_lines < PLOT_MAX_LINES; i++) {
        memcpy(y[i], c->models[i].d.by_depth, sizeof y[i]);
        name_line(c, i, names[i]);
        plot.lines[plot.n_lines++] = (struct plot_line){names[i], x, y[i], EVAL_DEPTHS};
    }
    FILE *f = fopen(c->svg, "we");
    if (!f)
        return quire_fail(err, QUIRE_IO, "--svg: %.300s: %s", c->svg, strerror(errno));
    plot_draw(f, &plot);
    const bool is_bad = ferror(f) != 0;
    return fclose(f) != 0 || is_bad ? quire_fail(err, QUIRE_IO, "--svg: %.300s: cannot be written", c->svg) : QUIRE_OK;
}

/* Fails before the work of a comparison whose chart cannot be written. Leaves no new file. */
static int check_svg(const struct compare_command *c, struct quire_error *err)
{
    if (c->n < 2 || c->n - 1 > PLOT_MAX_LINES)
        return quire_fail(err, QUIRE_INVALID, "--svg: a chart has 2 to %d models, got %u", PLOT_MAX_LINES + 1, c->n);
    const bool is_new = access(c->svg, F_OK) != 0;
    FILE *f = fopen(c->svg, "ae");
    if (!f)
        return quire_fail(err, QUIRE_IO, "--svg: %.300s: %s", c->svg, strerror(errno));
    fclose(f);
    if (is_new)
        unlink(c->svg);
    return QUIRE_OK;
}

static int run(struct compare_command *c, struct quire_error *err)
{
    const char *const given[] = {c->first, c->second, c->third};
    for (size_t i = 0; i < 3 && given[i]; i++)
        c->models[c->n++].given = given[i];
    for (size_t i = 0; i < c->more.n; i++) {
        if (c->n == MAX_MODELS)
            return quire_fail(err, QUIRE_INVALID, "at most %d models can be compared", MAX_MODELS);
        c->models[c->n++].given = c->more.items[i];
    }
    c->flags.stride = c->flags.stride ? c->flags.stride : c->flags.window;
    int status = c->svg ? check_svg(c, err) : QUIRE_OK;
    for (uint32_t i = 0; status == QUIRE_OK && i < c->n; i++)
        status = measure(c, &c->models[i], err);
    if (status == QUIRE_OK && c->svg)
        status = draw(c, err);
    return status;
}

static void close_command(struct compare_command *c)
{
    free(c->models);
    free(c);
}

int eval_command_compare(int argc, char **argv)
{
    struct compare_command *c = calloc(1, sizeof *c);
    struct cli_option rows[EVAL_FLAGS_MAX + 4];
    struct quire_error err;
    if (!c || !(c->models = calloc(MAX_MODELS, sizeof *c->models))) {
        free(c);
        return command_fail(1, "out of memory");
    }
    size_t n = eval_flags(&c->flags, false, rows);
    rows[n++] = (struct cli_option){.names = "model",
                                    .kind = CLI_LIST,
                                    .target = &c->more,
                                    .value = "MODEL",
                                    .help = "Further models, behind the first three."};
    rows[n++] = (struct cli_option){
        .names = "svg",
        .kind = CLI_STRING,
        .target = &c->svg,
        .value = "FILE",
        .help = "Write a chart of the divergence by position in the window, for up to 9 models."};
    rows[n] = (struct cli_option){0};
    const struct cli_command command = {
        .name = "eval",
        .usage = "quire eval compare REFERENCE [MODEL [MODEL]] --text FILE [--model MODEL...] [options]",
        .about =
            "A table of models as Markdown: bits of a weight with its scales, memory of the weights, perplexity, KL\n"
            "against the first model, and the speed of prefill and decode as a multiple of the first model's on this\n"
            "machine. Runs where the CPU computes.\n\n" EVAL_MODEL_HELP,
        .examples = "examples:\n"
                    "  quire eval compare ./model ./model,quantization=int8 ./model-gptq --text held-out.txt\n"
                    "  quire eval compare ./model --model ./a ./b ./c ./d --text held-out.txt --svg kl.svg",
        .options = rows,
        .positionals = {&c->first, &c->second, &c->third},
    };
    int code;
    if (!command_begin(&command, argc, argv, &code)) {
        close_command(c);
        return code;
    }
    if (!c->first || !c->flags.text)
        code = command_fail(
            2, "REFERENCE or --text FILE is missing; usage: quire eval compare REFERENCE MODEL --text FILE");
    else if (run(c, &err) != QUIRE_OK)
        code = command_fail(1, err.text);
    else if (c->flags.json)
        code = print_json(c);
    else
        print_table(c);
    close_command(c);
    return code;
}
