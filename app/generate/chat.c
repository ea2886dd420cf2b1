#include "app/generate/chat.h"

#include "app/generate/chat_commands.h"
#include "app/generate/message.h"
#include "base/encoding/json.h"
#include "engine/info.h"
#include "text/quire_chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_RESERVED_TOKENS 512u /* for an answer, before messages are dropped */

/* ---- the prompt ---- */

/* The tokens of all messages. */
static int render(struct chat *c, uint32_t **ids, size_t *n_ids)
{
    struct quire_error *err = &c->answer->err;
    const struct quire_text *text = local_engine_text(c->answer->engine);
    char *json = json_dumps(c->conversation.messages, JSON_COMPACT), *rendered = NULL;
    size_t n;
    if (!json)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    const struct quire_chat chat = {.messages_json = json, .add_generation_prompt = true};
    int status = quire_text_chat(text, &chat, &rendered, &n, NULL, err);
    if (status == QUIRE_OK)
        status = quire_text_encode(text, rendered, n, false, ids, n_ids, err);
    free(json);
    free(rendered);
    return status;
}

/* An answer must have some space. */
static uint32_t n_reserved(const struct chat *c)
{
    const uint32_t quarter = local_engine_info(c->answer->engine)->max_model_len / 4;
    uint32_t n = c->flags->max_tokens && c->flags->max_tokens < MOST_RESERVED_TOKENS ? c->flags->max_tokens
                                                                                     : MOST_RESERVED_TOKENS;
    return n < quarter ? n : quarter ? quarter : 1;
}

/* Renders the messages, without the oldest ones if they do not fit. */
static int fit(struct chat *c, uint32_t **ids, size_t *n_ids, unsigned *n_dropped)
{
    const uint32_t most = local_engine_info(c->answer->engine)->max_model_len;
    int status;
    while ((status = render(c, ids, n_ids)) == QUIRE_OK && c->flags->context_shift && !c->flags->no_context_shift &&
           *n_ids + n_reserved(c) > most && conversation_drop_oldest(&c->conversation)) {
        free(*ids);
        *ids = NULL;
        (*n_dropped)++;
    }
    return status;
}

static void print_dropped(const struct chat *c, unsigned n)
{
    if (n > 0)
        screen_notice("(the context of %u tokens is full: the oldest %u message%s and answer%s were dropped)\n",
                      local_engine_info(c->answer->engine)->max_model_len, n, n == 1 ? "" : "s", n == 1 ? "" : "s");
}

static int check_length(struct chat *c, size_t n_ids)
{
    const uint32_t most = local_engine_info(c->answer->engine)->max_model_len;
    if (n_ids == 0)
        return quire_fail(&c->answer->err, QUIRE_INVALID, "the prompt is empty");
    if (n_ids < most)
        return QUIRE_OK;
    return quire_fail(
        &c->answer->err, QUIRE_INVALID,
        "the prompt has %zu tokens, but the context has only %u: raise --max-model-len if the model allows "
        "more, shorten the message, or clear the chat",
        n_ids, most);
}

/* ---- the answer ---- */

static int prepare(struct chat *c, const char *message, uint32_t **ids, size_t *n_ids)
{
    const struct quire_text *text = local_engine_text(c->answer->engine);
    unsigned n_dropped = 0;
    int status = QUIRE_OK;
    if (!message[strspn(message, " \t\r\n")])
        return quire_fail(&c->answer->err, QUIRE_INVALID, "the prompt is empty");
    if (chat_has_template(c)) {
        status = conversation_add(&c->conversation, "user", message, &c->answer->err);
        if (status == QUIRE_OK)
            status = fit(c, ids, n_ids, &n_dropped);
    } else {
        if (message != c->last_prompt.data) {
            buffer_clear(&c->last_prompt);
            buffer_append(&c->last_prompt, message, strlen(message));
        }
        status = quire_text_encode(text, message, strlen(message), true, ids, n_ids, &c->answer->err);
    }
    if (status == QUIRE_OK)
        status = check_length(c, *n_ids);
    if (status == QUIRE_OK) /* otherwise they come back */
        print_dropped(c, n_dropped);
    return status;
}

static void print_result(struct chat *c)
{
    struct answer *a = c->answer;
    if (c->flags->json) {
        json_t *o = json_pack("{s:s, s:i, s:i}", "text", buffer_text(&a->text), "prompt_tokens", (int)a->n_prompt,
                              "completion_tokens", (int)a->n_generated);
        json_dumpf(o, stdout, JSON_COMPACT);
        json_decref(o);
    }
    putchar('\n');
    fflush(stdout);
    if (a->is_cut && !c->flags->max_tokens)
        screen_notice("(the context is full: the answer ends here)\n");
    answer_print_speed(a);
}

int chat_answer(struct chat *c, const char *message)
{
    struct answer *a = c->answer;
    const bool has_template = chat_has_template(c);
    uint32_t *ids = NULL;
    size_t n_ids = 0;
    /* If the message fails, the dropped ones come back. */
    json_t *before = json_copy(c->conversation.messages);
    int status = before ? prepare(c, message, &ids, &n_ids) : quire_fail(&a->err, QUIRE_NO_MEMORY, "out of memory");
    if (status == QUIRE_OK)
        status = answer_run(a, ids, n_ids);
    free(ids);
    /* The chat keeps the partial text of a stopped answer. A question without any answer is removed. */
    const bool keeps = status == QUIRE_OK && !(a->interrupted && a->text.n == 0);
    if (keeps && has_template)
        status = conversation_add(&c->conversation, "assistant", buffer_text(&a->text), &a->err);
    if (!keeps && before) {
        json_t *failed = c->conversation.messages;
        c->conversation.messages = before;
        before = failed;
    }
    json_decref(before);
    if (status != QUIRE_OK || c->stopped)
        return status;
    c->n_answers++;
    print_result(c);
    return QUIRE_OK;
}

/* ---- at the terminal ---- */

static void greet(const struct chat *c)
{
    if (!c->flags->raw && !chat_has_template(c))
        screen_notice("%s has no chat template: it continues each text as it is, without memory of the others.\n",
                      c->model_name);
    screen_notice("Type a message; \"\"\" begins and ends one of several lines; /help lists commands.\n"
                  "Ctrl-C stops an answer; Ctrl-D, /bye or Ctrl-C twice ends the chat.\n");
}

/* A command, or a message to answer. Returns false if the chat ends; *status: why. */
static bool handle(struct chat *c, struct buffer *message, int *status)
{
    const char *text = buffer_text(message);
    switch (text ? chat_command(c, text) : CHAT_CONTINUES) {
    case CHAT_ENDS: return false;
    case CHAT_CONTINUES: return true;
    case CHAT_RETRIES: text = buffer_text(&c->again); break;
    case CHAT_IS_MESSAGE: break;
    }
    if (text && text[strspn(text, " \t\n")])
        *status = chat_answer(c, text);
    if (*status == QUIRE_INTERNAL)
        return false; /* the engine is gone, so no message can succeed */
    if (*status != QUIRE_OK)
        screen_notice("quire: %s\n", c->answer->err.text);
    *status = QUIRE_OK;
    return true;
}

int chat_on_terminal(struct chat *c)
{
    struct prompt_line *prompt;
    struct buffer message = {0};
    bool asked = false, goes_on = true;
    int status = prompt_line_open(&prompt, &c->answer->err);
    greet(c);
    while (status == QUIRE_OK && !c->stopped && goes_on) {
        fputc('\n', stderr);
        buffer_clear(&message);
        const enum prompt_line_end end = message_from_lines(prompt, &message);
        /* Typing after the first Ctrl-C means that the chat goes on. */
        if (end == PROMPT_END || (end == PROMPT_INTERRUPTED && asked && !prompt_line_was_typed(prompt)))
            break;
        asked = end == PROMPT_INTERRUPTED;
        if (asked)
            fprintf(stderr, "\n(Ctrl-C again ends the chat)");
        else
            goes_on = handle(c, &message, &status);
    }
    fputc('\n', stderr);
    prompt_line_close(prompt);
    buffer_free(&message);
    return status;
}

void chat_close(struct chat *c)
{
    answer_close(c->answer);
    conversation_close(&c->conversation);
    buffer_free(&c->last_prompt);
    buffer_free(&c->again);
}
