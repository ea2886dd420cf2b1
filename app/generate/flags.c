#include "app/generate/flags.h"

#include <string.h>

static int parse_shift(const char *text, void *target, struct quire_error *err)
{
    struct request_flags *f = target;
    f->context_shift = strcmp(text, "on") == 0;
    return f->context_shift || strcmp(text, "off") == 0
               ? QUIRE_OK
               : quire_fail(err, QUIRE_INVALID, "must be on or off, got %.40s", text);
}

void request_flags_default(struct request_flags *f)
{
    *f = (struct request_flags){.context_shift = true};
}

size_t request_flags(struct request_flags *f, struct cli_option out[REQUEST_FLAGS_MAX])
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Request:", .kind = CLI_GROUP},
        {.names = "prompt,p", .kind = CLI_STRING, .target = &f->prompt_option, .value = "TEXT",
         .common = true, .help = "The prompt, instead of the second argument."},
        {.names = "system,sys,system-prompt", .kind = CLI_STRING, .target = &f->system, .value = "TEXT",
         .common = true, .help = "Put this system message before the first question."},
        {.names = "raw", .kind = CLI_FLAG, .target = &f->raw,
         .common = true, .help = "Continue the prompt without the model's chat template."},
        {.names = "max-tokens,n,n-predict,predict,max-new-tokens", .kind = CLI_U32, .target = &f->max_tokens, .min = 1, .max = 4294967295.0, .value = "N",
         .common = true, .help = "Maximum length of an answer. Default: until the model stops or the context is full."},
        {.names = "temperature,temp", .kind = CLI_F64, .target = &f->temperature, .given = &f->has_temperature,
         .max = 100, .value = "X",
         .common = true, .help = "Sampling temperature; 0 is greedy. Default: the value in generation_config.json, else 1."},
        {.names = "top-p", .kind = CLI_F64, .target = &f->top_p, .given = &f->has_top_p, .max = 1, .value = "X",
         .common = true, .help = "Nucleus sampling: cumulative probability of the candidates. Default: the value in "
                 "generation_config.json, else 1."},
        {.names = "top-k", .kind = CLI_U32, .target = &f->top_k, .given = &f->has_top_k, .value = "N",
         .common = true, .help = "Number of candidates; 0 disables the limit. Default: the value in generation_config.json, else 0."},
        {.names = "min-p", .kind = CLI_F64, .target = &f->min_p, .given = &f->has_min_p, .max = 1, .value = "X",
         .help = "Least probability of a candidate, relative to the most likely one. Default: the value in "
                 "generation_config.json, else 0."},
        {.names = "json", .kind = CLI_FLAG, .target = &f->json,
         .common = true, .help = "Print one JSON object when the answer is complete."},
        {.names = "stop", .kind = CLI_LIST, .target = &f->stops, .value = "TEXT",
         .common = true, .help = "End the answer before this text; may be repeated."},
        {.names = "json-schema,j", .kind = CLI_STRING, .target = &f->json_schema, .value = "SCHEMA",
         .common = true, .help = "The answer is JSON of this schema: a text, or @FILE. '{}' is any JSON value."},
        {.names = "no-stream", .kind = CLI_FLAG, .target = &f->no_stream,
         .common = true, .help = "Print the answer when it is complete."},
        {.names = "context-shift", .kind = CLI_PARSED, .parse = parse_shift, .target = f, .value = "on|off",
         .help = "If a chat no longer fits into the context: on drops its oldest messages and says so, off rejects the "
                 "message. Default on."},
        {.names = "no-context-shift", .kind = CLI_FLAG, .target = &f->no_context_shift,
         .help = "The same as --context-shift off."},
        {.names = "verbose,v", .kind = CLI_FLAG, .target = &f->verbose,
         .common = true, .help = "After each answer, print GB/s of weights and a hash of its tokens and their logprobs, equal for "
                 "equal logits."},
    };
    /* clang-format on */
    _Static_assert(sizeof rows / sizeof rows[0] <= REQUEST_FLAGS_MAX, "raise REQUEST_FLAGS_MAX");
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}
