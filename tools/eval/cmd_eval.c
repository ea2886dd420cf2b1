/* quire eval: perplexity, divergence and retrieval of models, and their comparison. */
#include "tools/eval/cmd_eval.h"

#include "app/command/command.h"
#include "app/command/commands.h"
#include "app/command/unknown.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *about;
} parts[] = {
    {"ppl", eval_command_ppl, "perplexity of a text, a token and a byte, with an interval"},
    {"kl", eval_command_kl, "how far a model's distributions are from another's"},
    {"needle", eval_command_needle, "whether a model finds a sentence in long texts, by depth and length"},
    {"compare", eval_command_compare, "a table of models: bits, memory, perplexity, divergence and speed"},
};
#define N_PARTS (sizeof parts / sizeof parts[0])

int command_eval(int argc, char **argv)
{
    for (size_t i = 0; argc > 0 && i < N_PARTS; i++)
        if (strcmp(argv[0], parts[i].name) == 0)
            return parts[i].run(argc - 1, argv + 1);
    const bool help = argc > 0 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0);
    if (argc > 0 && !help) {
        struct unknown_name typed = unknown_begin(argc, argv);
        for (size_t i = 0; i < N_PARTS; i++)
            unknown_try(&typed, parts[i].name);
        return unknown_end(&typed, "part", "quire eval ");
    }
    puts("usage: quire eval PART MODEL... [options]\n");
    for (size_t i = 0; i < N_PARTS; i++)
        printf("  %-8s %s\n", parts[i].name, parts[i].about);
    puts(
        "\nMeasures what a model knows, above all what quantization costs (docs/guides/evaluating.md).\n\n"
        "examples:\n"
        "  quire eval ppl ./model --text held-out.txt\n"
        "  quire eval kl ./model ./model-int4 --text held-out.txt\n"
        "  quire eval needle ./model --lengths 1k,4k\n"
        "  quire eval compare ./model ./model,quantization=int8 ./model-q4.gguf --text held-out.txt --svg table.svg\n\n"
        "quire eval PART --help lists the options.");
    return help ? 0 : 2;
}
