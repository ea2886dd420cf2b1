/* quire eval ppl. */
#include "app/command/command.h"
#include "tools/eval/cmd_eval.h"
#include "tools/eval/eval_flags.h"
#include "tools/eval/ppl.h"

#include <inttypes.h>
#include <stdio.h>

static int print(const char *given, const struct eval_windows *w, const struct eval_nll *sums, bool json)
{
    const struct eval_perplexity p = eval_perplexity_of(sums);
    if (json)
        return command_print_json(
            json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:f, s:o, s:o, s:o, s:o, s:o}", "model", command_json_text(given),
                      "window", (json_int_t)w->window, "stride", (json_int_t)w->stride, "windows",
                      (json_int_t)sums->n_windows, "tokens", (json_int_t)sums->n_tokens, "bytes",
                      (json_int_t)sums->n_bytes, "nll", p.nll, "perplexity", eval_json_number(p.token),
                      "perplexity_low", eval_json_bound(&p, p.low), "perplexity_high", eval_json_bound(&p, p.high),
                      "byte_perplexity", eval_json_number(p.byte), "bits_per_byte", eval_json_number(p.bits_per_byte)));
    printf("%s: %" PRIu64 " tokens (%" PRIu64 " bytes) in %" PRIu64 " windows of %u tokens, stride %u\n\n", given,
           sums->n_tokens, sums->n_bytes, sums->n_windows, w->window, w->stride);
    printf("  perplexity a token  %.4f", p.token);
    if (p.has_interval)
        printf("   95 %% interval %.4f to %.4f", p.low, p.high);
    if (sums->n_bytes)
        printf("\n  perplexity a byte   %.4f   %.4f bits a byte\n", p.byte, p.bits_per_byte);
    else
        printf("\n  perplexity a byte   none: special tokens have no bytes\n");
    return 0;
}

static int run(const char *given, struct eval_flags *f, struct quire_error *err)
{
    struct eval_session *s = NULL;
    struct eval_windows w = {0};
    struct eval_nll sums;
    struct bench_progress progress;
    f->how.max_tokens = f->window;
    int status = eval_open(given, &f->how, NULL, NULL, &s, err);
    if (status == QUIRE_OK)
        status = eval_windows_read(f->text, eval_text(s), f->window, f->stride, f->most_windows, &w, err);
    if (status == QUIRE_OK) {
        bench_progress_begin(&progress, "windows", w.n);
        status = eval_ppl(s, &w, &progress, &sums, err);
        bench_progress_end(&progress);
    }
    if (status == QUIRE_OK && print(given, &w, &sums, f->json) != 0)
        status = quire_fail(err, QUIRE_IO, "the result cannot be written");
    eval_windows_free(&w);
    eval_close(s);
    return status;
}

int eval_command_ppl(int argc, char **argv)
{
    const char *given = NULL;
    struct eval_flags flags;
    struct cli_option rows[EVAL_FLAGS_MAX + 1];
    struct quire_error err;
    const size_t n = eval_flags(&flags, false, rows);
    rows[n] = (struct cli_option){0};
    const struct cli_command command = {
        .name = "eval",
        .usage = "quire eval ppl MODEL --text FILE [options]",
        .about =
            "Perplexity: e to the mean of the negative logarithms of the probabilities that the model gives to the\n"
            "text's tokens. Lower is better. Only figures of one text, tokenizer, window and stride can be compared;\n"
            "perplexity a byte also compares tokenizers. The interval is over windows.\n\n" EVAL_MODEL_HELP,
        .examples = "examples:\n"
                    "  quire eval ppl ./model --text held-out.txt\n"
                    "  quire eval ppl ./model,quantization=int8 --text held-out.txt --window 2048 --stride 1024",
        .options = rows,
        .positionals = {&given},
    };
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (!given || !flags.text)
        return command_fail(2, "MODEL or --text FILE is missing; usage: quire eval ppl MODEL --text FILE");
    return run(given, &flags, &err) == QUIRE_OK ? 0 : command_fail(1, err.text);
}
