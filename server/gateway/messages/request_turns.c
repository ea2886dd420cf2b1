/* system and messages: Messages → chat completions. Blocks of a kind are joined by newlines, as in Quire's own
 * Messages; content is a list of parts only where it has an image. */
#include "server/gateway/messages/parts.h"
#include "server/gateway/messages/translate.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum role { ROLE_USER, ROLE_ASSISTANT, ROLE_SYSTEM, N_ROLES };
static const char *const roles[N_ROLES] = {"user", "assistant", "system"};

enum kind { KIND_TEXT, KIND_IMAGE, KIND_RESULT, KIND_CALL, KIND_THINKING, KIND_REDACTED, N_KINDS };
static const struct {
    const char *type;
    bool is_of[N_ROLES];
} kinds[N_KINDS] = {
    [KIND_TEXT] = {"text", {true, true, true}},
    [KIND_IMAGE] = {"image", {true, false, false}},
    [KIND_RESULT] = {"tool_result", {true, false, false}},
    [KIND_CALL] = {"tool_use", {false, true, false}},
    [KIND_THINKING] = {"thinking", {false, true, false}},
    [KIND_REDACTED] = {"redacted_thinking", {false, true, false}},
};

struct turns {
    struct buffer *o;
    struct translate_facts *facts;
    struct api_error *e;
    size_t message; /* index of the current one */
    bool has_message; /* one is written: a comma is needed */
    bool has_images; /* the current message has an image, also in a result of a tool */
    char path[96];
};

static enum kind kind_of(struct quire_value block)
{
    const struct quire_value type = quire_value_member(block, "type");
    enum kind k = KIND_TEXT;
    while (k < N_KINDS && !quire_value_is(type, kinds[k].type))
        k++;
    return k;
}

/* "messages[1].content[2].id". name: with its dot, or "". */
static const char *path_of(struct turns *t, size_t block, const char *name)
{
    snprintf(t->path, sizeof t->path, "messages[%zu].content[%zu]%s", t->message, block, name);
    return t->path;
}

/* ---- checks --------------------------------------------------------------------------------- */

static bool check_image(struct turns *t, struct quire_value block, size_t i)
{
    static const char *const media[] = {"image/jpeg", "image/png", "image/gif", "image/webp"};
    const struct quire_value source = part_member(block, "source"), type = part_member(source, "type");
    const struct quire_value url = part_member(source, "url");
    size_t k = 0;
    t->has_images = true;
    if (quire_value_is(type, "url"))
        return (part_has_text(url) &&
                (strncmp(url.text, "\"https://", 9) == 0 || strncmp(url.text, "\"http://", 8) == 0)) ||
               api_bad(t->e, path_of(t, i, ".source.url"), "must be a URL that begins with https:// or http://");
    if (!quire_value_is(type, "base64"))
        return api_bad(t->e, path_of(t, i, ".source.type"), "must be \"base64\" or \"url\"");
    while (k < 4 && !quire_value_is(part_member(source, "media_type"), media[k]))
        k++;
    if (k == 4)
        return api_bad(t->e, path_of(t, i, ".source.media_type"),
                       "must be image/jpeg, image/png, image/gif or image/webp");
    return part_has_text(part_member(source, "data")) ||
           api_bad(t->e, path_of(t, i, ".source.data"), "must be a non-empty string");
}

static bool check_result(struct turns *t, struct quire_value block, size_t i)
{
    struct quire_value content = part_member(block, "content"), part;
    const struct quire_value is_error = part_member(block, "is_error");
    char name[40];
    if (!part_has_text(part_member(block, "tool_use_id")))
        return api_bad(t->e, path_of(t, i, ".tool_use_id"), "must be a non-empty string");
    if (is_error.n && !part_is(is_error, QUIRE_BOOL))
        return api_bad(t->e, path_of(t, i, ".is_error"), "must be true or false");
    if (!content.n || part_is(content, QUIRE_STRING))
        return true;
    if (!part_is(content, QUIRE_ARRAY))
        return api_bad(t->e, path_of(t, i, ".content"), "must be a string or an array of blocks");
    for (size_t k = 0; quire_value_next(&content, NULL, &part); k++) {
        const enum kind kind = kind_of(part);
        snprintf(name, sizeof name, ".content[%zu].type", k);
        if (kind != KIND_TEXT && kind != KIND_IMAGE)
            return api_unsupported(t->e, path_of(t, i, name), "must be \"text\" or \"image\"");
        snprintf(name, sizeof name, ".content[%zu].text", k);
        if (kind == KIND_TEXT && !part_is(part_member(part, "text"), QUIRE_STRING))
            return api_bad(t->e, path_of(t, i, name), "must be a string");
        if (kind == KIND_IMAGE && !check_image(t, part, i))
            return false;
    }
    return true;
}

static bool check_call(struct turns *t, struct quire_value block, size_t i)
{
    const struct quire_value input = part_member(block, "input");
    if (!part_has_text(part_member(block, "id")))
        return api_bad(t->e, path_of(t, i, ".id"), "must be a non-empty string");
    if (!part_has_text(part_member(block, "name")))
        return api_bad(t->e, path_of(t, i, ".name"), "must be a non-empty string");
    return !input.n || part_is(input, QUIRE_OBJECT) || api_bad(t->e, path_of(t, i, ".input"), "must be an object");
}

static bool check_block(struct turns *t, struct quire_value block, size_t i, enum role role)
{
    const struct quire_value type = quire_value_member(block, "type");
    const enum kind kind = kind_of(block);
    if (!part_is(type, QUIRE_STRING))
        return api_bad(t->e, path_of(t, i, ".type"), "must be a string: a block has a type");
    if (kind == N_KINDS)
        return api_unsupported(t->e, path_of(t, i, ".type"),
                               "a block of type %.*s is not supported for a model on an OpenAI-compatible server",
                               SHOWN(type));
    if (!kinds[kind].is_of[role])
        return api_bad(t->e, path_of(t, i, ".type"), "a message of role \"%s\" has no block of type \"%s\"",
                       roles[role], kinds[kind].type);
    t->facts->drops_cache_marks |= part_member(block, "cache_control").n > 0;
    switch (kind) {
    case KIND_TEXT:
        return part_is(part_member(block, "text"), QUIRE_STRING) ||
               api_bad(t->e, path_of(t, i, ".text"), "must be a string");
    case KIND_IMAGE: return check_image(t, block, i);
    case KIND_RESULT: return check_result(t, block, i);
    case KIND_CALL: return check_call(t, block, i);
    case KIND_THINKING:
    case KIND_REDACTED:
    case N_KINDS: break;
    }
    return true;
}

/* Counts the blocks of each kind. A string counts as text. */
static bool check_content(struct turns *t, struct quire_value content, enum role role, size_t n[N_KINDS])
{
    struct quire_value block;
    t->has_images = false;
    if (part_is(content, QUIRE_STRING)) {
        n[KIND_TEXT] = 1;
        return true;
    }
    snprintf(t->path, sizeof t->path, "messages[%zu].content", t->message);
    if (!part_is(content, QUIRE_ARRAY))
        return api_bad(t->e, t->path, "must be a string or an array of blocks");
    for (size_t i = 0; quire_value_next(&content, NULL, &block); i++) {
        if (!check_block(t, block, i, role))
            return false;
        n[kind_of(block)]++;
    }
    return true;
}

/* ---- writing checked content ---------------------------------------------------------------- */

static void begin_message(struct turns *t, const char *role)
{
    json_out_raw(t->o, t->has_message ? ",{\"role\":\"" : "{\"role\":\"");
    json_out_raw(t->o, role);
    json_out_raw(t->o, "\"");
    t->has_message = true;
}

/* One JSON string: the text of all text blocks, one per line. before: written at its start. */
static void put_texts(struct buffer *o, struct quire_value content, const char *before)
{
    struct quire_value rest = content, block;
    bool any = false;
    json_out_raw(o, "\"");
    json_out_raw(o, before);
    if (part_is(content, QUIRE_STRING))
        buffer_append(o, content.text + 1, content.n - 2);
    while (part_is(content, QUIRE_ARRAY) && quire_value_next(&rest, NULL, &block)) {
        const struct quire_value text = quire_value_member(block, "text");
        if (kind_of(block) != KIND_TEXT)
            continue;
        if (any)
            json_out_raw(o, "\\n");
        buffer_append(o, text.text + 1, text.n - 2);
        any = true;
    }
    json_out_raw(o, "\"");
}

static void put_image(struct buffer *o, struct quire_value block)
{
    const struct quire_value source = part_member(block, "source"), url = part_member(source, "url");
    const struct quire_value media = part_member(source, "media_type"), data = part_member(source, "data");
    json_out_raw(o, "{\"type\":\"image_url\",\"image_url\":{\"url\":\"");
    if (quire_value_is(part_member(source, "type"), "url")) {
        buffer_append(o, url.text + 1, url.n - 2);
    } else {
        json_out_raw(o, "data:");
        buffer_append(o, media.text + 1, media.n - 2);
        json_out_raw(o, ";base64,");
        buffer_append(o, data.text + 1, data.n - 2);
    }
    json_out_raw(o, "\"}}");
}

/* Texts and images in their order. Results of tools add their images only. */
static void put_parts(struct buffer *o, struct quire_value content, bool is_result, bool *any)
{
    struct quire_value rest = content, block;
    while (part_is(content, QUIRE_ARRAY) && quire_value_next(&rest, NULL, &block)) {
        const enum kind kind = kind_of(block);
        if (kind == KIND_RESULT && !is_result)
            put_parts(o, part_member(block, "content"), true, any);
        if (kind != KIND_IMAGE && (kind != KIND_TEXT || is_result))
            continue;
        if (*any)
            json_out_raw(o, ",");
        *any = true;
        if (kind == KIND_IMAGE) {
            put_image(o, block);
            continue;
        }
        json_out_raw(o, "{\"type\":\"text\",\"text\":");
        part_put(o, quire_value_member(block, "text"));
        json_out_raw(o, "}");
    }
}

/* Chats have no member for a failed call. The result states it, unless its text already does. */
static const char *error_mark(struct quire_value result)
{
    const struct quire_value is_error = part_member(result, "is_error"), content = part_member(result, "content");
    struct quire_value rest = content, first = content;
    if (!is_error.n || is_error.text[0] != 't')
        return "";
    if (part_is(content, QUIRE_ARRAY))
        first = quire_value_next(&rest, NULL, &first) ? part_member(first, "text") : (struct quire_value){0};
    return first.n > 6 && strncasecmp(first.text + 1, "error", 5) == 0 ? "" : "Error: ";
}

static void put_result(struct turns *t, struct quire_value block)
{
    begin_message(t, "tool");
    part_put_member(t->o, "tool_call_id", part_member(block, "tool_use_id"));
    json_out_raw(t->o, ",\"content\":");
    put_texts(t->o, part_member(block, "content"), error_mark(block));
    json_out_raw(t->o, "}");
}

static void put_calls(struct buffer *o, struct quire_value content)
{
    struct quire_value block;
    bool any = false;
    json_out_raw(o, ",\"tool_calls\":[");
    while (quire_value_next(&content, NULL, &block)) {
        const struct quire_value input = part_member(block, "input");
        if (kind_of(block) != KIND_CALL)
            continue;
        json_out_raw(o, any ? ",{\"id\":" : "{\"id\":");
        part_put(o, part_member(block, "id"));
        json_out_raw(o, ",\"type\":\"function\",\"function\":{\"name\":");
        part_put(o, part_member(block, "name"));
        json_out_raw(o, ",\"arguments\":");
        json_out_string(o, input.n ? input.text : "{}", input.n ? input.n : 2);
        json_out_raw(o, "}}");
        any = true;
    }
    json_out_raw(o, "]");
}

/* ---- messages ------------------------------------------------------------------------------- */

static void add_assistant(struct turns *t, struct quire_value content, const size_t n[N_KINDS])
{
    begin_message(t, "assistant");
    json_out_raw(t->o, ",\"content\":");
    if (n[KIND_TEXT] == 0 && n[KIND_CALL] > 0)
        json_out_raw(t->o, "null");
    else
        put_texts(t->o, content, "");
    if (n[KIND_CALL] > 0)
        put_calls(t->o, content);
    json_out_raw(t->o, "}");
}

/* Results come first, because they follow the calls. */
static void add_user(struct turns *t, struct quire_value content, const size_t n[N_KINDS])
{
    struct quire_value rest = content, block;
    bool any = false;
    while (n[KIND_RESULT] > 0 && quire_value_next(&rest, NULL, &block))
        if (kind_of(block) == KIND_RESULT)
            put_result(t, block);
    if (n[KIND_RESULT] > 0 && n[KIND_TEXT] == 0 && !t->has_images)
        return;
    begin_message(t, "user");
    json_out_raw(t->o, ",\"content\":");
    if (t->has_images) {
        json_out_raw(t->o, "[");
        put_parts(t->o, content, false, &any);
        json_out_raw(t->o, "]");
    } else {
        put_texts(t->o, content, "");
    }
    json_out_raw(t->o, "}");
}

static bool add_message(struct turns *t, struct quire_value message, enum role *role)
{
    const struct quire_value content = part_member(message, "content");
    size_t n[N_KINDS] = {0};
    *role = ROLE_USER;
    while (*role < N_ROLES && !quire_value_is(quire_value_member(message, "role"), roles[*role]))
        (*role)++;
    snprintf(t->path, sizeof t->path, "messages[%zu].role", t->message);
    if (*role == N_ROLES)
        return api_bad(t->e, t->path, "must be \"user\", \"assistant\" or \"system\"");
    if (!check_content(t, content, *role, n))
        return false;
    if (*role == ROLE_USER) {
        add_user(t, content, n);
    } else if (*role == ROLE_ASSISTANT) {
        add_assistant(t, content, n);
    } else {
        begin_message(t, "system");
        json_out_raw(t->o, ",\"content\":");
        put_texts(t->o, content, "");
        json_out_raw(t->o, "}");
    }
    return true;
}

/* ---- system --------------------------------------------------------------------------------- */

/* Claude Code's first line, which changes with each request, so that no prefix cache would find what follows. */
static size_t billing_bytes(struct quire_value text)
{
    static const char name[] = "x-anthropic-billing-header:";
    const char *at = text.text + 1, *end;
    const size_t n = text.n - 2;
    if (n < sizeof name - 1 || strncasecmp(at, name, sizeof name - 1) != 0)
        return 0;
    end = memmem(at, n, "\\n", 2);
    return end ? (size_t)(end - at) + 2 : n;
}

static void put_system_text(struct turns *t, struct quire_value text, bool *any)
{
    const size_t skip = *any ? 0 : billing_bytes(text);
    if (skip + 2 == text.n)
        return;
    if (*any) {
        json_out_raw(t->o, "\\n");
    } else {
        begin_message(t, "system");
        json_out_raw(t->o, ",\"content\":\"");
    }
    *any = true;
    buffer_append(t->o, text.text + 1 + skip, text.n - 2 - skip);
}

static bool put_system(struct turns *t, struct quire_value system)
{
    struct quire_value rest = system, block;
    bool any = false;
    if (part_is(system, QUIRE_STRING))
        put_system_text(t, system, &any);
    else if (system.n && !part_is(system, QUIRE_ARRAY))
        return api_bad(t->e, "system", "must be a string or an array of text blocks");
    while (part_is(system, QUIRE_ARRAY) && quire_value_next(&rest, NULL, &block)) {
        const struct quire_value text = part_member(block, "text");
        if (kind_of(block) != KIND_TEXT || !part_is(text, QUIRE_STRING))
            return api_bad(t->e, "system", "a part must be {\"type\":\"text\",\"text\":...}");
        t->facts->drops_cache_marks |= part_member(block, "cache_control").n > 0;
        put_system_text(t, text, &any);
    }
    if (any)
        json_out_raw(t->o, "\"}");
    return true;
}

bool request_put_turns(struct buffer *o, const struct quire_doc *body, struct translate_facts *facts,
                       struct api_error *e)
{
    const struct quire_value messages = part_field(body, "messages");
    struct turns t = {.o = o, .facts = facts, .e = e};
    struct quire_value rest = messages, message;
    enum role role = ROLE_USER;
    json_out_raw(o, ",\"messages\":[");
    bool ok = put_system(&t, part_field(body, "system"));
    for (; ok && part_is(messages, QUIRE_ARRAY) && quire_value_next(&rest, NULL, &message); t.message++)
        ok = add_message(&t, message, &role);
    json_out_raw(o, "]");
    if (ok && t.message == 0)
        return api_bad(e, "messages", "must be a non-empty array");
    if (ok && role == ROLE_ASSISTANT)
        return api_unsupported(
            e, "messages",
            "the last message is the assistant's, and an OpenAI-compatible server cannot continue it: "
            "end with a message of the user");
    return ok;
}
