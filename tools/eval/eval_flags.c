#include "tools/eval/eval_flags.h"

#include <string.h>

#define DEFAULT_WINDOW 512u

size_t eval_flags(struct eval_flags *flags, bool without_text, struct cli_option out[EVAL_FLAGS_MAX])
{
    *flags = (struct eval_flags){.window = DEFAULT_WINDOW};
    const struct cli_option of_text[] = {
        {.names = "Text:", .kind = CLI_GROUP},
        {.names = "text",
         .kind = CLI_STRING,
         .target = &flags->text,
         .value = "FILE",
         .help = "UTF-8 text that the model did not learn from. Required."},
        {.names = "window",
         .kind = CLI_U32,
         .target = &flags->window,
         .min = 2,
         .max = 1 << 20,
         .value = "N",
         .help = "Tokens of a window: no token sees more than this before it. Default 512."},
        {.names = "stride",
         .kind = CLI_U32,
         .target = &flags->stride,
         .min = 1,
         .max = 1 << 20,
         .value = "N",
         .help =
             "Tokens from one window to the next. Below --window each token sees at least the difference before it, and "
             "the work grows. Default: the window."},
        {.names = "windows",
         .kind = CLI_U32,
         .target = &flags->most_windows,
         .min = 1,
         .max = 1 << 30,
         .value = "N",
         .help = "Stop after so many windows. Default: the whole text."},
    };
    const struct cli_option others[] = {
        {.names = "Model and output:", .kind = CLI_GROUP},
        {.names = "device",
         .kind = CLI_STRING,
         .target = &flags->how.device,
         .value = "NAME",
         .help = "Device that computes. ppl and needle also run on cuda. Default cpu."},
        {.names = "threads",
         .kind = CLI_U32,
         .target = &flags->how.n_threads,
         .min = 1,
         .max = 1024,
         .value = "N",
         .help = "Compute threads. Default: one for each core."},
        {.names = "json", .kind = CLI_FLAG, .target = &flags->json, .help = "Print JSON."},
    };
    const size_t n_text = without_text ? 0 : sizeof of_text / sizeof of_text[0];
    memcpy(out, of_text, n_text * sizeof *out);
    memcpy(out + n_text, others, sizeof others);
    return n_text + sizeof others / sizeof others[0];
}
