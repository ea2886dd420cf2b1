/* quire eval kl. */
#include "app/command/command.h"
#include "tools/eval/cmd_eval.h"
#include "tools/eval/eval_flags.h"
#include "tools/eval/kl.h"

#include <inttypes.h>
#include <stdio.h>

static int print_json(const struct eval_kl_job *job, const struct eval_divergence *d)
{
    json_t *depths = json_array();
    const struct eval_perplexity more = eval_perplexity_of(&d->increase);
    for (uint32_t i = 0; i < EVAL_DEPTHS; i++)
        json_array_append_new(depths, json_pack("{s:I, s:I, s:f}", "from", (json_int_t)eval_depth_begin(job->window, i),
                                                "tokens", (json_int_t)d->n_by_depth[i], "kl", d->by_depth[i]));
    return command_print_json(json_pack(
        "{s:o, s:o, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:o, s:o, s:o}", "reference",
        command_json_text(job->reference), "model", command_json_text(job->model), "window", (json_int_t)job->window,
        "stride", (json_int_t)job->stride, "windows", (json_int_t)d->model.n_windows, "tokens", (json_int_t)d->n_tokens,
        "kl_mean", d->mean, "kl_median", d->median, "kl_p999", d->p999, "kl_max", d->most, "same_top1", d->same_best,
        "reference_perplexity", eval_json_number(eval_perplexity_of(&d->reference).token), "perplexity",
        eval_json_number(eval_perplexity_of(&d->model).token), "increase", eval_json_number(more.token - 1),
        "increase_low", eval_json_bound(&more, more.low - 1), "increase_high", eval_json_bound(&more, more.high - 1),
        "by_depth", depths));
}

static void print_table(const struct eval_kl_job *job, const struct eval_divergence *d)
{
    printf("KL(%s || %s) of %" PRIu64 " tokens in windows of %u, stride %u, in nats\n\n", job->reference, job->model,
           d->n_tokens, job->window, job->stride);
    printf("  mean %.3g   median %.3g   99.9th percentile %.3g   largest %.3g\n", d->mean, d->median, d->p999, d->most);
    printf("  the same best token: %.3f %%\n", 100 * d->same_best);
    const struct eval_perplexity more = eval_perplexity_of(&d->increase);
    printf("  perplexity: %.4f of the reference, %.4f: %+.3f %% (95 %% interval: %s)\n\n  %16s %8s %12s\n",
           eval_perplexity_of(&d->reference).token, eval_perplexity_of(&d->model).token, 100 * (more.token - 1),
           eval_interval_of(&more, true).text, "position", "tokens", "mean KL");
    for (uint32_t i = 0; i < EVAL_DEPTHS; i++) {
        const uint32_t begin = eval_depth_begin(job->window, i), end = eval_depth_begin(job->window, i + 1);
        if (begin < end) /* a window of less than EVAL_DEPTHS tokens has fewer parts */
            printf("  %7u-%-8u %8" PRIu64 " %12.3g\n", begin, end - 1, d->n_by_depth[i], d->by_depth[i]);
    }
}

int eval_command_kl(int argc, char **argv)
{
    struct eval_kl_job job = {.reference = NULL};
    struct eval_flags flags;
    struct eval_divergence d;
    struct cli_option rows[EVAL_FLAGS_MAX + 1];
    struct quire_error err;
    const size_t n = eval_flags(&flags, false, rows);
    rows[n] = (struct cli_option){0};
    const struct cli_command command = {
        .name = "eval",
        .usage = "quire eval kl REFERENCE MODEL --text FILE [options]",
        .about =
            "Kullback-Leibler divergence of a model's distributions from a reference's, at every token of a text and\n"
            "over the whole vocabulary: 0 where they are equal. More sensitive than perplexity, because errors cannot\n"
            "cancel out. Runs where the CPU computes. REFERENCE is a model, too.\n\n" EVAL_MODEL_HELP,
        .examples = "examples:\n"
                    "  quire eval kl ./model ./model-int4 --text held-out.txt\n"
                    "  quire eval kl ./model ./model,kv-cache-dtype=fp8 --text held-out.txt --windows 40 --json",
        .options = rows,
        .positionals = {&job.reference, &job.model},
    };
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (!job.reference || !job.model || !flags.text)
        return command_fail(2,
                            "REFERENCE, MODEL or --text FILE is missing; usage: quire eval kl REFERENCE MODEL --text "
                            "FILE");
    flags.how.max_tokens = flags.window;
    job.path = flags.text;
    job.window = flags.window;
    job.stride = flags.stride ? flags.stride : flags.window;
    job.most_windows = flags.most_windows;
    job.how = &flags.how;
    if (eval_kl(&job, &d, &err) != QUIRE_OK)
        return command_fail(1, err.text);
    if (flags.json)
        return print_json(&job, &d);
    print_table(&job, &d);
    return 0;
}
