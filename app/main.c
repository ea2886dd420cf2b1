/* The program quire: selects the command. */
#include "app/command/command.h"
#include "app/command/commands.h"
#include "app/command/unknown.h"
#include "base/hash.h"
#include "base/log.h"
#include "engine/engine.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *about;
} commands[] = {
    {"run", command_run, "chat with a model on this terminal; downloads it first if it is missing"},
    {"serve", command_serve, "serve a model over the OpenAI and Anthropic APIs"},
    {"engine", command_engine, "serve a model over Quire's socket protocol only"},
    {"generate", command_generate, "answer a prompt, or chat, on this terminal"},
    {"batch", command_batch, "run a file of requests on a model, without a server"},
    {"map-reduce", command_map_reduce, "run a prompt over long texts in parts, and another over the results"},
    {"plan", command_plan, "print the memory that a model needs, to the byte"},
    {"inspect", command_inspect, "print the contents of a checkpoint and how it would be loaded"},
    {"quantize", command_quantize, "write a quantized copy of a model"},
    {"doctor", command_doctor, "check this machine, and whether a model would run on it"},
    {"pull", command_pull, "download a model from the Hugging Face hub"},
    {"list", command_list, "list the downloaded models"},
    {"show", command_show, "print what a model is: architecture, parameters, context, chat template"},
    {"rm", command_rm, "remove a downloaded model"},
    {"ps", command_ps, "list the running servers"},
    {"sim", command_sim, "simulate scheduling policies on a trace, on a virtual clock"},
    {"replay", command_replay, "recompute the answers of a recording and compare every bit"},
    {"cache", command_cache, "pin prefixes in a running server's cache, fill it, or read its statistics"},
    {"check", command_check, "check the models file of a gateway"},
    {"route", command_route, "print how a gateway's route reads a prompt"},
    {"ab", command_ab, "report whether the arms of an experiment differ by more than noise"},
    {"keys", command_keys, "issue, rotate, revoke and list the keys of a running gateway"},
    {"eval", command_eval, "measure what a model knows, and what quantization costs"},
    {"bench", command_bench, "measure an engine, a server or the kernels"},
    {"version", command_version, "print the version, the commit and what this installation computes with"},
};
#define N_COMMANDS (sizeof commands / sizeof commands[0])

static void print_help(void)
{
    puts("usage: quire COMMAND [arguments]\n\n"
         "Quire serves language models from Hugging Face checkpoint directories, or by their names on the\n"
         "hub. The bits of an answer do not depend on other requests.\n");
    for (size_t i = 0; i < N_COMMANDS; i++)
        printf("  %-10s %s\n", commands[i].name, commands[i].about);
    puts("\nBegin with\n"
         "  quire run Qwen/Qwen2.5-1.5B-Instruct          download a model and chat\n"
         "  quire doctor Qwen/Qwen2.5-1.5B-Instruct       check whether it runs here\n"
         "  quire generate ./model \"Tell me a story\"      one answer on this terminal\n"
         "  quire serve ./model                           an OpenAI server on http://127.0.0.1:8000/v1\n"
         "\nquire COMMAND --help shows the common options, quire COMMAND --help all shows all of them.");
}

/* Verbs of other tools. */
static const char *const synonyms[][2] = {
    {"chat", "run"},         {"complete", "generate"}, {"delete", "rm"}, {"download", "pull"},
    {"ls", "list"},          {"models", "list"},       {"remove", "rm"}, {"start", "serve"},
    {"convert", "quantize"}, {"benchmark", "bench"},   {"stop", "ps"},   {"info", "show"},
};

/* A path, a GGUF file or ORG/NAME. */
static bool is_like_a_model(const char *name)
{
    const size_t n = strlen(name);
    return name[0] != '-' && (strchr(name, '/') || (n > 5 && strcmp(name + n - 5, ".gguf") == 0));
}

/* argv[0]: the unknown one. */
static int unknown_command(int argc, char **argv)
{
    const char *name = argv[0];
    struct unknown_name typed = unknown_begin(argc, argv);
    for (size_t i = 0; i < N_COMMANDS; i++)
        unknown_try(&typed, commands[i].name);
    if (is_like_a_model(name) && !typed.is_swapped) {
        fprintf(stderr, "quire: unknown command \"%.200s\"; did you mean quire run %.200s?\n", name, name);
        return 2;
    }
    for (size_t i = 0; i < sizeof synonyms / sizeof synonyms[0]; i++)
        if (strcmp(name, synonyms[i][0]) == 0) {
            typed.near.best = synonyms[i][1];
            typed.near.n_best = strlen(typed.near.best);
        }
    return unknown_end(&typed, "command", "quire ");
}

int main(int argc, char **argv)
{
    /* hwloc writes to standard error if /sys is not mounted, for example in a chroot. We log what it finds. */
    setenv("HWLOC_HIDE_ERRORS", "2", 0);
    /* If a reader closes its end, write() returns an error instead of ending the process. */
    signal(SIGPIPE, SIG_IGN);
    if (quire_hash_init() != 0)
        return command_fail(1, "libsodium: no source of random numbers");

    const char *name = argc > 1 ? argv[1] : "--help";
    if (engine_is_rank() && strcmp(name, "rank") == 0)
        return command_rank();
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        if (argc > 2) {
            char *help[] = {"--help", argv[3]};
            for (size_t i = 0; i < N_COMMANDS; i++)
                if (strcmp(argv[2], commands[i].name) == 0)
                    return commands[i].run(argc > 3 ? 2 : 1, help);
            return unknown_command(argc - 2, argv + 2);
        }
        print_help();
        return argc > 1 ? 0 : 2;
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0 || strcmp(name, "-v") == 0)
        return command_version(0, NULL);
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(name, commands[i].name) == 0)
            return commands[i].run(argc - 2, argv + 2);
    return unknown_command(argc - 1, argv + 1);
}
