#include "app/generate/chat_commands.h"

#include "app/generate/chat.h"
#include "app/generate/screen.h"
#include "base/encoding/number.h"
#include "base/encoding/suggest.h"
#include "engine/info.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static int fail(const char *what)
{
    screen_notice("quire: %s\n", what);
    return CHAT_CONTINUES;
}

static int report(const struct chat *c, int status, const char *done)
{
    screen_notice("%s%s\n", status == QUIRE_OK ? "" : "quire: ", status == QUIRE_OK ? done : c->answer->err.text);
    return CHAT_CONTINUES;
}

/* ---- the settings ---- */

static bool read_number(const char *text, double least, double most, double *out)
{
    const char *end = text;
    return quire_take_number(&end, most, out) && !*end && *out >= least;
}

static void print_settings(const struct chat *c)
{
    const struct request_flags *f = c->flags;
    char text[3][32] = {"the model's", "the model's", "the model's"}, most[32] = "no limit";
    if (f->has_temperature)
        snprintf(text[0], sizeof text[0], "%g", f->temperature);
    if (f->has_top_p)
        snprintf(text[1], sizeof text[1], "%g", f->top_p);
    if (f->has_top_k)
        snprintf(text[2], sizeof text[2], "%u", f->top_k);
    if (f->max_tokens)
        snprintf(most, sizeof most, "%u", f->max_tokens);
    screen_notice("temperature %s, top_p %s, top_k %s, max_tokens %s, verbose %s\n", text[0], text[1], text[2], most,
                  f->verbose ? "on" : "off");
}

static int set(struct chat *c, const char *rest)
{
    struct request_flags *f = c->flags;
    char name[32] = "", value[64] = "";
    double number = 0;
    if (sscanf(rest, "%31s %63s", name, value) < 1) {
        print_settings(c);
        return CHAT_CONTINUES;
    }
    if (strcmp(name, "temperature") == 0 && read_number(value, 0, 100, &number)) {
        f->temperature = number;
        f->has_temperature = true;
    } else if (strcmp(name, "top_p") == 0 && read_number(value, 0, 1, &number)) {
        f->top_p = number;
        f->has_top_p = true;
    } else if (strcmp(name, "top_k") == 0 && read_number(value, 0, 1e9, &number)) {
        f->top_k = (uint32_t)number;
        f->has_top_k = true;
    } else if (strcmp(name, "max_tokens") == 0 && read_number(value, 0, 1e9, &number)) {
        f->max_tokens = (uint32_t)number;
    } else if (strcmp(name, "verbose") == 0 && (strcmp(value, "on") == 0 || strcmp(value, "off") == 0)) {
        f->verbose = strcmp(value, "on") == 0;
    } else {
        return fail(
            "/set takes temperature 0 to 100, top_p 0 to 1, top_k N, max_tokens N (0: no limit) or verbose on|off");
    }
    print_settings(c);
    return CHAT_CONTINUES;
}

/* ---- the other commands ---- */

static int help(struct chat *c, const char *rest);

static int bye(struct chat *c, const char *rest)
{
    (void)c;
    (void)rest;
    return CHAT_ENDS;
}

static int clear(struct chat *c, const char *rest)
{
    (void)rest;
    conversation_clear(&c->conversation);
    return report(c, QUIRE_OK, "The chat is empty; the system message stays.");
}

static int set_system(struct chat *c, const char *rest)
{
    const char *now = conversation_system(&c->conversation);
    if (!*rest)
        return report(c, QUIRE_OK,
                      now ? now : "There is no system message. /system TEXT sets one, /system - removes it.");
    if (!chat_has_template(c))
        return fail("/system: without a chat template, the model gets no system message");
    int status = conversation_set_system(&c->conversation, strcmp(rest, "-") == 0 ? "" : rest, &c->answer->err);
    return report(c, status,
                  strcmp(rest, "-") == 0 ? "The system message is removed."
                                         : "The system message is set for the next answers.");
}

static int save(struct chat *c, const char *rest)
{
    if (!*rest)
        return fail("/save needs a file: /save chat.json");
    return report(c, conversation_save(&c->conversation, rest, &c->answer->err), "The chat is saved.");
}

static int load(struct chat *c, const char *rest)
{
    if (!*rest)
        return fail("/load needs a file: /load chat.json");
    return report(c, conversation_load(&c->conversation, rest, &c->answer->err), "The chat is loaded.");
}

/* Answers the last question once more, without the first answer. */
static int retry(struct chat *c, const char *rest)
{
    (void)rest;
    const char *last = chat_has_template(c) ? conversation_last(&c->conversation, "user")
                       : c->last_prompt.n   ? buffer_text(&c->last_prompt)
                                            : NULL;
    if (!last)
        return fail("/retry: there is no message yet");
    buffer_clear(&c->again);
    buffer_append(&c->again, last, strlen(last));
    conversation_drop_last(&c->conversation, "assistant");
    conversation_drop_last(&c->conversation, "user");
    return CHAT_RETRIES;
}

static int stats(struct chat *c, const char *rest)
{
    const struct answer *a = c->answer;
    (void)rest;
    if (c->n_answers == 0)
        return fail("/stats: there is no answer yet");
    screen_notice("%u answers, %zu messages; the last prompt and answer have %u of %u tokens\n", c->n_answers,
                  json_array_size(c->conversation.messages), a->n_prompt + a->n_generated,
                  local_engine_info(a->engine)->max_model_len);
    return CHAT_CONTINUES;
}

static int show(struct chat *c, const char *rest)
{
    const struct engine_info *info = local_engine_info(c->answer->engine);
    const char *system = conversation_system(&c->conversation);
    (void)rest;
    screen_notice("model %s on %s, context %u tokens, %s\n", c->model_name, info->device_why, info->max_model_len,
                  chat_has_template(c) ? "with its chat template" : "raw text without a template");
    if (system)
        screen_notice("system: %s\n", system);
    print_settings(c);
    return CHAT_CONTINUES;
}

static const struct {
    const char *name, *usage, *about;
    int (*run)(struct chat *c, const char *rest);
} commands[] = {
    {"help", "/help", "list the commands; also /?", help},
    {"bye", "/bye", "end the chat; also /exit and /quit", bye},
    {"clear", "/clear", "forget all messages", clear},
    {"system", "/system TEXT", "set the system message; - removes it", set_system},
    {"set", "/set NAME VALUE", "set temperature, top_p, top_k, max_tokens or verbose", set},
    {"retry", "/retry", "answer the last message once more", retry},
    {"save", "/save FILE", "write the messages to a file", save},
    {"load", "/load FILE", "continue with the messages of a file", load},
    {"stats", "/stats", "print the tokens in use", stats},
    {"show", "/show", "print the model and the settings", show},
    {"exit", NULL, NULL, bye},
    {"quit", NULL, NULL, bye},
};
#define N_COMMANDS (sizeof commands / sizeof commands[0])

static int help(struct chat *c, const char *rest)
{
    (void)c;
    (void)rest;
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (commands[i].usage)
            fprintf(stderr, "  %-16s %s\n", commands[i].usage, commands[i].about);
    fputs("  \"\"\"              begin and end a message of several lines\n"
          "  \\                at the end of a line: the message continues on the next\n",
          stderr);
    return CHAT_CONTINUES;
}

static int unknown(const char *name, size_t n)
{
    struct suggest near = suggest_begin(name, n);
    for (size_t i = 0; i < N_COMMANDS; i++)
        suggest_try_list(&near, commands[i].name);
    if (near.best)
        screen_notice("quire: unknown command /%.*s; did you mean /%.*s?\n", (int)n, name, (int)near.n_best, near.best);
    else
        screen_notice("quire: unknown command /%.*s; /help lists them; begin with a space to send it as a message\n",
                      (int)n, name);
    return CHAT_CONTINUES;
}

static bool takes_text(const char *usage)
{
    return usage && strchr(usage, ' ');
}

static int surplus(const char *name, const char *text)
{
    screen_notice("quire: /%s takes nothing after it; begin with a space to send \"%.60s\" as a message\n", name, text);
    return CHAT_CONTINUES;
}

enum chat_action chat_command(struct chat *c, const char *text)
{
    size_t n = 0;
    if (text[0] != '/' || strchr(text, '\n'))
        return CHAT_IS_MESSAGE;
    if (strcmp(text, "/?") == 0)
        return (enum chat_action)help(c, "");
    while (isalpha((unsigned char)text[1 + n]))
        n++;
    const char *rest = text + 1 + n;
    if (n == 0 || (*rest && *rest != ' '))
        return CHAT_IS_MESSAGE;
    rest += strspn(rest, " ");
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strlen(commands[i].name) != n || memcmp(commands[i].name, text + 1, n) != 0)
            continue;
        if (*rest && !takes_text(commands[i].usage))
            return (enum chat_action)surplus(commands[i].name, text);
        return (enum chat_action)commands[i].run(c, rest);
    }
    return (enum chat_action)unknown(text + 1, n);
}
