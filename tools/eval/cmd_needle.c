/* quire eval needle. */
#include "app/command/command.h"
#include "app/command/progress.h"
#include "base/file.h"
#include "tools/eval/cmd_eval.h"
#include "tools/eval/eval_flags.h"
#include "tools/eval/needle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LENGTHS 16
#define MAX_DEPTHS 101
#define MAX_FILLER_BYTES ((size_t)16 << 20)

static const char filler_text[] =
    "The river runs past the mill and on to the sea. In the morning the boats leave the harbour, and in the evening they\n"
    "come back. Children play on the bridge, and the baker sweeps the step of the shop. The hills are green after rain.\n"
    "A train passes twice a day. People wave to it from the fields, and nobody knows who waves back.\n";

struct lengths {
    uint32_t n, items[MAX_LENGTHS], most;
};
struct needle_command {
    const char *given, *filler;
    struct needle_texts texts;
    struct lengths lengths;
    uint32_t n_depths;
    struct eval_flags flags;
    bool found[MAX_LENGTHS][MAX_DEPTHS];
};

static int parse_lengths(const char *text, void *target, struct quire_error *err)
{
    struct lengths *l = target;
    l->n = l->most = 0;
    for (const char *at = text;; at++) {
        char *end;
        errno = 0;
        unsigned long value = *at >= '0' && *at <= '9' ? strtoul(at, &end, 10) : 0;
        if (value > 0 && value <= 1u << 16 && (*end == 'k' || *end == 'K')) {
            value *= 1024;
            end++;
        }
        if (value == 0 || value > 1u << 26 || errno || (*end != ',' && *end != '\0') || l->n == MAX_LENGTHS)
            return quire_fail(err, QUIRE_INVALID, "must be up to %d numbers of tokens with commas, got \"%.60s\"",
                              MAX_LENGTHS, text);
        l->items[l->n++] = (uint32_t)value;
        l->most = value > l->most ? (uint32_t)value : l->most;
        at = end;
        if (*at == '\0')
            return QUIRE_OK;
    }
}

static double depth_of(const struct needle_command *c, uint32_t i)
{
    return c->n_depths > 1 ? (double)i / (c->n_depths - 1) : 0.5;
}

static int read_filler(struct needle_command *c, struct buffer *bytes, struct quire_error *err)
{
    if (!c->filler) {
        c->texts.filler = filler_text;
        c->texts.n_filler = strlen(filler_text);
        return QUIRE_OK;
    }
    FILE *file = fopen(c->filler, "rbe");
    if (!file)
        return quire_fail(err, QUIRE_NOT_FOUND, "--filler: %.300s: %s", c->filler, strerror(errno));
    const int status = buffer_read(bytes, file, MAX_FILLER_BYTES, c->filler, err);
    fclose(file);
    c->texts.filler = bytes->data ? bytes->data : "";
    c->texts.n_filler = bytes->n;
    return status;
}

static int ask_all(struct needle_command *c, struct eval_session *s, struct quire_error *err)
{
    struct needle needle;
    struct bench_progress progress;
    int status = needle_make(eval_text(s), &c->texts, &needle, err);
    if (status != QUIRE_OK)
        return status;
    bench_progress_begin(&progress, "questions", (uint64_t)c->lengths.n * c->n_depths);
    for (uint32_t i = 0; status == QUIRE_OK && i < c->lengths.n; i++)
        for (uint32_t d = 0; status == QUIRE_OK && d < c->n_depths; d++) {
            status = needle_ask(s, &needle, c->lengths.items[i], depth_of(c, d), &c->found[i][d], err);
            bench_progress_set(&progress, (uint64_t)i * c->n_depths + d + 1);
        }
    bench_progress_end(&progress);
    needle_free(&needle);
    return status;
}

static int print(const struct needle_command *c)
{
    json_t *rows = json_array();
    uint32_t n_found = 0;
    if (!c->flags.json) {
        printf("%s: \"%s\" after \"%s\"\n\n  depth of the needle:", c->given, c->texts.answer, c->texts.question);
        for (uint32_t d = 0; d < c->n_depths; d++)
            printf(" %3.0f%%", 100 * depth_of(c, d));
        printf("\n");
    }
    for (uint32_t i = 0; i < c->lengths.n; i++) {
        if (!c->flags.json)
            printf("  %12u tokens:", c->lengths.items[i]);
        for (uint32_t d = 0; d < c->n_depths; d++) {
            n_found += c->found[i][d];
            if (!c->flags.json)
                printf("  %s", c->found[i][d] ? "yes" : " no");
            json_array_append_new(rows, json_pack("{s:I, s:f, s:b}", "length", (json_int_t)c->lengths.items[i], "depth",
                                                  depth_of(c, d), "found", (int)c->found[i][d]));
        }
        if (!c->flags.json)
            printf("\n");
    }
    const double share = (double)n_found / ((double)c->lengths.n * c->n_depths);
    if (c->flags.json)
        return command_print_json(
            json_pack("{s:o, s:f, s:o}", "model", command_json_text(c->given), "found", share, "questions", rows));
    json_decref(rows);
    printf("\n  found: %.1f %%\n", 100 * share);
    return 0;
}

static int run(struct needle_command *c, struct quire_error *err)
{
    struct buffer bytes = {0};
    struct eval_session *s = NULL;
    c->flags.how.max_tokens = c->lengths.most + (uint32_t)strlen(c->texts.answer) + 32;
    int status = read_filler(c, &bytes, err);
    if (status == QUIRE_OK)
        status = eval_open(c->given, &c->flags.how, NULL, NULL, &s, err);
    if (status == QUIRE_OK)
        status = ask_all(c, s, err);
    eval_close(s);
    buffer_free(&bytes);
    return status;
}

/* Without its options and its positional. */
static const struct cli_command description = {
    .name = "eval",
    .usage = "quire eval needle MODEL [options]",
    .about = "Hides a sentence in filler and asks for it at the end, at each depth and length. The answer is greedy.\n"
             "Prompts are plain text without a chat template.\n\n" EVAL_MODEL_HELP,
    .examples = "examples:\n"
                "  quire eval needle ./model --lengths 1k,4k,16k\n"
                "  quire eval needle ./model,kv-cache-dtype=int8 --filler book.txt --depths 11 --json",
};

int eval_command_needle(int argc, char **argv)
{
    struct needle_command c = {.texts = {.needle = "The secret number of Lisbon is 48213.",
                                         .question = "The secret number of Lisbon is",
                                         .answer = "48213"},
                               .lengths = {3, {256, 512, 1024}, 1024},
                               .n_depths = 5};
    struct quire_error err;
    struct cli_option rows[EVAL_FLAGS_MAX + 8] = {
        {.names = "Texts:", .kind = CLI_GROUP},
        {.names = "lengths",
         .kind = CLI_PARSED,
         .parse = parse_lengths,
         .target = &c.lengths,
         .value = "LIST",
         .help = "Tokens of the prompts, such as 1k,4k,16k. Default 256,512,1024."},
        {.names = "depths",
         .kind = CLI_U32,
         .target = &c.n_depths,
         .min = 1,
         .max = MAX_DEPTHS,
         .value = "N",
         .help = "Places of the needle, from the beginning to the end of the filler. Default 5."},
        {.names = "filler",
         .kind = CLI_STRING,
         .target = &c.filler,
         .value = "FILE",
         .help = "Text around the needle, repeated as often as needed. Default: a few sentences about a village."},
        {.names = "needle",
         .kind = CLI_STRING,
         .target = &c.texts.needle,
         .value = "TEXT",
         .help = "Sentence to find. Default: The secret number of Lisbon is 48213."},
        {.names = "question",
         .kind = CLI_STRING,
         .target = &c.texts.question,
         .value = "TEXT",
         .help = "End of the prompt. Default: The secret number of Lisbon is"},
        {.names = "answer",
         .kind = CLI_STRING,
         .target = &c.texts.answer,
         .value = "TEXT",
         .help = "What the model must say within the first tokens. Default: 48213"},
    };
    size_t n = 7;
    n += eval_flags(&c.flags, true, rows + n);
    rows[n] = (struct cli_option){0};
    struct cli_command command = description;
    command.options = rows;
    command.positionals[0] = &c.given;
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (!c.given)
        return command_fail(2, "MODEL is missing; usage: quire eval needle MODEL [options]");
    return run(&c, &err) == QUIRE_OK ? print(&c) : command_fail(1, err.text);
}
