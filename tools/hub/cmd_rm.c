/* quire rm: removes downloaded models from the Hugging Face cache. */
#include "app/command/ask.h"
#include "app/command/command.h"
#include "app/command/commands.h"
#include "base/size.h"
#include "tools/hub/remove.h"
#include "tools/hub/store.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct rm_command {
    const char *given;
    bool yes, json;
    struct hub_name name;
    struct hub_removal removal;
    int lock;
};

static void on_wait(void *context)
{
    const struct rm_command *c = context;
    fprintf(stderr, "quire: waiting for a quire pull of %s\n", c->name.text);
}

/* Returns QUIRE_OK if the removal may begin. */
static int confirm(const struct rm_command *c, bool *agreed, struct quire_error *err)
{
    char question[400], revisions[64] = "";
    *agreed = c->yes;
    if (c->yes)
        return QUIRE_OK;
    if (c->removal.is_whole && c->removal.n_revisions > 1)
        snprintf(revisions, sizeof revisions, " with all %zu revisions", c->removal.n_revisions);
    snprintf(question, sizeof question, "Remove %.200s%s (%s)?", c->given, revisions,
             quire_size(c->removal.bytes).text);
    switch (command_ask(question, false)) {
    case COMMAND_YES: *agreed = true; return QUIRE_OK;
    case COMMAND_NO: return QUIRE_OK;
    case COMMAND_NO_TERMINAL: break;
    }
    return quire_fail(err, QUIRE_INVALID, "%.200s would free %s; without a terminal, add --yes to remove it", c->given,
                      quire_size(c->removal.bytes).text);
}

static int report(const struct rm_command *c)
{
    if (c->json)
        return command_print_json(json_pack("{s:s, s:b, s:I, s:I}", "removed", c->given, "whole_repository",
                                            c->removal.is_whole, "files", (json_int_t)c->removal.n_selected,
                                            "freed_bytes", (json_int_t)c->removal.bytes));
    fprintf(stderr, "quire: removed %s; %s are free\n", c->given, quire_size(c->removal.bytes).text);
    return 0;
}

/* Returns the exit status. */
static int run(struct rm_command *c)
{
    struct quire_error err;
    bool agreed;
    int status = hub_removal_plan(&c->name, strchr(c->given, '@') != NULL, &c->removal, &err);
    if (status != QUIRE_OK)
        return command_fail(1, err.text);
    if (confirm(c, &agreed, &err) != QUIRE_OK)
        return command_fail(2, err.text);
    if (!agreed) {
        fprintf(stderr, "quire: nothing was removed\n");
        return 1;
    }
    /* Another process may have downloaded files since the question. */
    status = hub_store_lock(c->removal.repo, on_wait, c, &c->lock, &err);
    hub_removal_free(&c->removal);
    if (status == QUIRE_OK)
        status = hub_removal_plan(&c->name, strchr(c->given, '@') != NULL, &c->removal, &err);
    if (status == QUIRE_OK)
        status = hub_removal_apply(&c->removal, &err);
    return status == QUIRE_OK ? report(c) : command_fail(1, err.text);
}

int command_rm(int argc, char **argv)
{
    struct rm_command c = {.lock = -1};
    struct quire_error err;
    const struct cli_option rows[] = {
        {.names = "yes,y", .kind = CLI_FLAG, .target = &c.yes, .help = "Remove without a question."},
        {.names = "json", .kind = CLI_FLAG, .target = &c.json, .help = "Print JSON."},
        {0},
    };
    const struct cli_command command = {
        .name = "rm",
        .usage = "quire rm ORG/NAME[:QUANT][@REVISION] [options]",
        .about =
            "Removes a model from the Hugging Face cache: with ORG/NAME all its files, with :QUANT one GGUF file, with\n"
            "@REVISION one revision. Files that another revision uses stay. Asks first on a terminal.",
        .examples = "examples:\n"
                    "  quire rm Qwen/Qwen2.5-1.5B-Instruct\n"
                    "  quire rm Qwen/Qwen2.5-1.5B-Instruct-GGUF:Q4_K_M --yes",
        .options = rows,
        .positionals = {&c.given},
    };
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (!c.given)
        return command_fail(2, "MODEL is missing; usage: quire rm ORG/NAME[:QUANT][@REVISION]");
    if (hub_name_parse(c.given, &c.name, &err) != QUIRE_OK)
        return command_fail(2, err.text);
    code = run(&c);
    hub_removal_free(&c.removal);
    if (c.lock >= 0)
        close(c.lock);
    return code;
}
