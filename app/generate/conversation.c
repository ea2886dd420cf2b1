#include "app/generate/conversation.h"

#include "base/buffer.h"
#include "base/file.h"
#include "base/encoding/json.h"

#include <stdio.h>
#include <string.h>

#define MAX_FILE_BYTES (64u << 20)
#define MAX_DEPTH 64

static const char *role_of(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role ? role : "";
}

static json_t *at(const struct conversation *c, size_t i)
{
    return json_array_get(c->messages, i);
}

int conversation_open(struct conversation *c, const char *system, struct quire_error *err)
{
    c->messages = json_array();
    if (!c->messages)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    return system && *system ? conversation_set_system(c, system, err) : QUIRE_OK;
}

void conversation_close(struct conversation *c)
{
    json_decref(c->messages);
    c->messages = NULL;
}

static int make(const char *role, const char *text, json_t **out, struct quire_error *err)
{
    *out = json_pack("{s:s, s:s}", "role", role, "content", text);
    return *out ? QUIRE_OK : quire_fail(err, QUIRE_INVALID, "the message is not UTF-8");
}

int conversation_add(struct conversation *c, const char *role, const char *text, struct quire_error *err)
{
    json_t *message;
    int status = make(role, text, &message, err);
    if (status == QUIRE_OK && json_array_append_new(c->messages, message) != 0)
        status = quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    return status;
}

void conversation_drop_last(struct conversation *c, const char *role)
{
    const size_t n = json_array_size(c->messages);
    if (n > 0 && strcmp(role_of(at(c, n - 1)), role) == 0)
        json_array_remove(c->messages, n - 1);
}

bool conversation_drop_oldest(struct conversation *c)
{
    const size_t n = json_array_size(c->messages), first = conversation_system(c) ? 1 : 0;
    size_t next = first + 1;
    while (next < n && strcmp(role_of(at(c, next)), "user") != 0)
        next++;
    if (next >= n)
        return false;
    for (size_t i = first; i < next; i++)
        json_array_remove(c->messages, first);
    return true;
}

void conversation_clear(struct conversation *c)
{
    const size_t first = conversation_system(c) ? 1 : 0;
    while (json_array_size(c->messages) > first)
        json_array_remove(c->messages, first);
}

const char *conversation_system(const struct conversation *c)
{
    const json_t *first = at(c, 0);
    return first && strcmp(role_of(first), "system") == 0 ? json_string_value(json_object_get(first, "content")) : NULL;
}

const char *conversation_last(const struct conversation *c, const char *role)
{
    for (size_t i = json_array_size(c->messages); i-- > 0;)
        if (strcmp(role_of(at(c, i)), role) == 0)
            return json_string_value(json_object_get(at(c, i), "content"));
    return NULL;
}

int conversation_set_system(struct conversation *c, const char *text, struct quire_error *err)
{
    json_t *message = NULL;
    int status = *text ? make("system", text, &message, err) : QUIRE_OK;
    if (status != QUIRE_OK)
        return status;
    if (conversation_system(c))
        json_array_remove(c->messages, 0);
    return !message || json_array_insert_new(c->messages, 0, message) == 0
               ? QUIRE_OK
               : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
}

int conversation_save(const struct conversation *c, const char *path, struct quire_error *err)
{
    json_t *whole = json_pack("{s:O}", "messages", c->messages);
    const int failed = !whole || json_dump_file(whole, path, JSON_INDENT(2)) != 0;
    json_decref(whole);
    return failed ? quire_fail(err, QUIRE_IO, "%.300s: cannot be written: %m", path) : QUIRE_OK;
}

/* Only texts of the three roles, and a system message only in the first place. */
static int check(const json_t *messages, const char *path, struct quire_error *err)
{
    size_t i;
    const json_t *message;
    if (!json_is_array(messages))
        return quire_fail(err, QUIRE_INVALID, "%.200s: messages: must be a list", path);
    json_array_foreach(messages, i, message)
    {
        const char *role = role_of(message);
        const bool is_known = strcmp(role, "user") == 0 || strcmp(role, "assistant") == 0 ||
                              (strcmp(role, "system") == 0 && i == 0);
        if (!is_known)
            return quire_fail(err, QUIRE_INVALID,
                              "%.200s: messages[%zu]: role: must be user or assistant, or system in the first message",
                              path, i);
        if (!json_is_string(json_object_get(message, "content")))
            return quire_fail(err, QUIRE_INVALID, "%.200s: messages[%zu]: content: must be a text", path, i);
    }
    return QUIRE_OK;
}

/* Errors begin with the path as the user wrote it. */
static int read_json(const char *path, json_t **out, struct quire_error *err)
{
    FILE *file = fopen(path, "re");
    struct buffer text = {0};
    if (!file)
        return quire_fail(err, QUIRE_NOT_FOUND, "%.300s: cannot be opened: %m", path);
    int status = buffer_read(&text, file, MAX_FILE_BYTES, path, err);
    fclose(file);
    if (status == QUIRE_OK)
        status = quire_json_parse(text.data, text.n, MAX_DEPTH, path, out, err);
    buffer_free(&text);
    return status;
}

int conversation_load(struct conversation *c, const char *path, struct quire_error *err)
{
    json_t *root = NULL;
    int status = read_json(path, &root, err);
    if (status != QUIRE_OK)
        return status;
    json_t *messages = json_is_object(root) ? json_object_get(root, "messages") : root;
    status = check(messages, path, err);
    if (status == QUIRE_OK) {
        json_decref(c->messages);
        c->messages = json_incref(messages);
    }
    json_decref(root);
    return status;
}
