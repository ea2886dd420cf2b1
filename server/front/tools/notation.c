#include "text/quire_chat.h"
#include "server/front/tools/notation.h"

#include "base/buffer.h"

#include <stdlib.h>
#include <string.h>

/* ---- formats ---- */

/* A tag of a later format occurs in templates of earlier ones, too. */
static const enum tool_format order[] = {TOOL_KIMI_K2,         TOOL_DEEPSEEK_V31, TOOL_GLM45,
                                         TOOL_QWEN3_CODER,     TOOL_MISTRAL,      TOOL_OPENAI,
                                         TOOL_LLAMA4_PYTHONIC, TOOL_HERMES,       TOOL_LLAMA3_JSON};

static enum tool_format detect_tools(const struct quire_text *text)
{
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        if (!quire_text_chat_mentions(text, tool_format_tag(order[i])))
            continue;
        const bool in_block = order[i] == TOOL_DEEPSEEK_V31 && quire_text_chat_mentions(text, "```json");
        return in_block ? TOOL_DEEPSEEK_V3 : order[i];
    }
    return TOOL_HERMES;
}

static enum reasoning_format detect_reasoning(const struct quire_text *text)
{
    static const enum reasoning_format formats[] = {REASONING_OPENAI_GPTOSS, REASONING_QWEN3};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (quire_text_chat_mentions(text, reasoning_format_special(formats[i], 0)))
            return formats[i];
    return REASONING_NONE;
}

static int unknown(const char *option, const char *name, const char *(*name_of)(int), int n, struct quire_error *err)
{
    struct buffer names = {0};
    for (int i = 0; i < n; i++) {
        buffer_append(&names, ", ", 2);
        buffer_append(&names, name_of(i), strlen(name_of(i)));
    }
    const char *list = buffer_text(&names);
    quire_fail(err, QUIRE_INVALID, "%s: there is no \"%s\"; there are auto%s", option, name, list ? list : "");
    buffer_free(&names);
    return QUIRE_INVALID;
}

static const char *tool_name(int i)
{
    return tool_format_name((enum tool_format)i);
}

static const char *reasoning_name(int i)
{
    return reasoning_format_name((enum reasoning_format)i);
}

int notation_tools(const struct quire_text *text, const char *name, enum tool_format *out, struct quire_error *err)
{
    if (!name || strcmp(name, "auto") == 0)
        *out = detect_tools(text);
    else if (!tool_format_find(name, out))
        return unknown("tool-call-parser", name, tool_name, N_TOOL_FORMATS, err);
    return QUIRE_OK;
}

int notation_reasoning(const struct quire_text *text, const char *name, enum reasoning_format *out,
                       struct quire_error *err)
{
    if (!name || strcmp(name, "auto") == 0)
        *out = detect_reasoning(text);
    else if (!reasoning_format_find(name, out))
        return unknown("reasoning-parser", name, reasoning_name, N_REASONING_FORMATS, err);
    return QUIRE_OK;
}

/* ---- tools in prompts ---- */

static char *rendered(const struct quire_text *text, const char *messages, const char *tools)
{
    const struct quire_chat chat = {.messages_json = messages,
                                    .tools_json = tools,
                                    .add_generation_prompt = true,
                                    .specials = QUIRE_SPECIALS_ENCODE};
    char *out = NULL;
    size_t n;
    struct quire_error err;
    return quire_text_chat(text, &chat, &out, &n, NULL, &err) == QUIRE_OK ? out : NULL;
}

bool notation_shows_tools(const struct quire_text *text)
{
    static const char tools[] =
        "[{\"type\":\"function\",\"function\":{\"name\":\"look_up\",\"description\":\"Looks it up.\",\"parameters\":{"
        "\"type\":\"object\",\"properties\":{\"word\":{\"type\":\"string\",\"description\":\"A word.\"}},"
        "\"required\":[\"word\"]}}}]";
    /* Some templates show tools only beside a system prompt, others only without one. */
    static const char *const chats[] = {
        "[{\"role\":\"user\",\"content\":\"Hello\"}]",
        "[{\"role\":\"system\",\"content\":\"Help.\"},{\"role\":\"user\",\"content\":\"Hello\"}]"};
    bool differs = !quire_text_has_chat(text);
    bool any = false;
    for (size_t i = 0; i < sizeof chats / sizeof *chats && !differs; i++) {
        char *without = rendered(text, chats[i], NULL), *with = without ? rendered(text, chats[i], tools) : NULL;
        any |= without != NULL;
        differs = without && (!with || strcmp(without, with) != 0);
        free(without);
        free(with);
    }
    return differs || !any;
}

/* The end of a prompt that shows whether it opened the reasoning: a tag and blanks. */
#define TAG_TOKENS 16

int notation_reasoning_place(const struct quire_text *text, enum reasoning_format format, const uint32_t *prompt,
                             size_t n, enum reasoning_place *out, struct quire_error *err)
{
    const size_t n_ids = n < TAG_TOKENS ? n : TAG_TOKENS;
    char *end;
    size_t n_end;
    const int status = quire_text_decode(text, prompt + n - n_ids, n_ids, false, &end, &n_end, err);
    if (status != QUIRE_OK)
        return status;
    *out = reasoning_place(format, end, n_end);
    free(end);
    return QUIRE_OK;
}

/* ---- special tokens ---- */

static int add(const struct quire_text *text, const char *tag, struct special_tags *out, struct quire_error *err)
{
    const int64_t id = quire_text_token_id(text, tag);
    char *shown;
    size_t n;
    if (id < 0 || out->n == SPECIAL_TAGS_MAX)
        return QUIRE_OK;
    const uint32_t ids[1] = {(uint32_t)id};
    const int status = quire_text_decode(text, ids, 1, true, &shown, &n, err);
    if (status != QUIRE_OK)
        return status;
    free(shown);
    if (n == 0) {
        out->ids[out->n] = ids[0];
        out->texts[out->n++] = tag;
    }
    return QUIRE_OK;
}

int special_tags_of_tools(const struct quire_text *text, enum tool_format format, struct special_tags *out,
                          struct quire_error *err)
{
    const char *tag;
    int status = QUIRE_OK;
    out->n = 0;
    for (size_t i = 0; status == QUIRE_OK && (tag = tool_format_special(format, i)); i++)
        status = add(text, tag, out, err);
    return status;
}

int special_tags_of_reasoning(const struct quire_text *text, enum reasoning_format format, struct special_tags *out,
                              struct quire_error *err)
{
    const char *tag;
    int status = QUIRE_OK;
    out->n = 0;
    for (size_t i = 0; status == QUIRE_OK && (tag = reasoning_format_special(format, i)); i++)
        status = add(text, tag, out, err);
    return status;
}

const char *special_tags_find(const struct special_tags *tags, uint32_t id)
{
    for (uint32_t i = 0; tags && i < tags->n; i++)
        if (tags->ids[i] == id)
            return tags->texts[i];
    return NULL;
}
