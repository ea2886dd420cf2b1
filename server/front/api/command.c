/* An operator's commands to the engine: CONTROL, and the HTTP request that waits for the answer. */
#include "server/front/front_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct command {
    TAILQ_ENTRY(command) link;
    struct http_exchange *x; /* NULL: the client has disconnected; the answer still keeps its position in the order */
    char reply[160];
};

static void on_gone(void *context)
{
    ((struct command *)context)->x = NULL;
}

/* Sends a command. When it is done, x gets reply, a JSON text. */
static void command_start(struct served_model *m, struct http_exchange *x, const char *command, const char *reply)
{
    struct api_error e;
    struct command *c = calloc(1, sizeof *c);
    bool ok = front_can_serve(m, &e);
    if (ok && !c)
        ok = api_fail(&e, 503, NULL, "out_of_memory", "out of memory");
    if (ok && upstream_control(m->upstream, command) != QUIRE_OK)
        ok = api_fail(&e, 503, NULL, "engine_unavailable", "the engine is not there");
    if (!ok) {
        free(c);
        api_error_reply(x, &e);
        return;
    }
    c->x = x;
    snprintf(c->reply, sizeof c->reply, "%s", reply);
    TAILQ_INSERT_TAIL(&m->commands, c, link);
    http_on_gone(x, on_gone, c);
}

void commands_answer(struct served_model *m, const struct wire_refuse *refuse)
{
    struct command *c = TAILQ_FIRST(&m->commands);
    struct api_error e;
    if (!c)
        return;
    struct http_exchange *x = c->x;
    struct command answered = *c;
    TAILQ_REMOVE(&m->commands, c, link);
    free(c);
    if (!x)
        return;
    if (!refuse) {
        http_reply(x, 200, "application/json", answered.reply, strlen(answered.reply));
        return;
    }
    snprintf(e.why.text, sizeof e.why.text, "%.*s", (int)refuse->n_message,
             refuse->n_message > 0 ? refuse->message : "");
    api_fail_status(&e, refuse->status ? (int)refuse->status : QUIRE_INTERNAL, NULL);
    api_error_reply(x, &e);
}

void commands_end(struct served_model *m)
{
    static const char why[] = "the engine is not there";
    const struct wire_refuse gone = {.status = QUIRE_IO, .message = why, .n_message = sizeof why - 1};
    while (!TAILQ_EMPTY(&m->commands))
        commands_answer(m, &gone);
}

/* ---- routes --------------------------------------------------------------------------------- */

void unpin_start(struct served_model *m, struct http_exchange *x)
{
    struct api_error e;
    char command[32];
    const struct tenant *tenant = front_tenant(m->front, x, &e);
    if (!tenant) {
        api_error_reply(x, &e);
        return;
    }
    snprintf(command, sizeof command, "unpin %u", tenant->index);
    command_start(m, x, command, "{\"object\":\"cache.pins\",\"deleted\":true}");
}

/* Returns whether text is one word of a command: no character in it can end the word. */
static bool is_word(const char *text)
{
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.,");
    return n > 0 && n <= 64 && text[n] == '\0';
}

/* Appends an integer of 64 bits in its original spelling. */
static bool add_integer(char *list, size_t size, struct quire_value value)
{
    bool negative;
    uint64_t magnitude;
    size_t n = strlen(list);
    return quire_value_integer(value, &negative, &magnitude) == QUIRE_INTEGER && magnitude <= INT64_MAX &&
           (size_t)snprintf(list + n, size - n, "%s%.*s", n ? "," : "", JSON_SHOWN(value)) < size - n;
}

static bool add_option(char *command, size_t size, const char *key, struct quire_value value, struct api_error *e)
{
    char param[96], list[160] = "";
    struct quire_value rest = value, item;
    snprintf(param, sizeof param, "options.%.64s", key);
    if (!is_word(key))
        return api_bad(e, "options", "\"%.64s\" is not an option", key);
    bool many = json_is(value, QUIRE_ARRAY), ok = many || add_integer(list, sizeof list, value);
    while (ok && many && quire_value_next(&rest, NULL, &item))
        ok = add_integer(list, sizeof list, item);
    if (!ok || !*list)
        return api_bad(e, param, "must be an integer or a short array of integers");
    size_t at = strlen(command);
    if ((size_t)snprintf(command + at, size - at, " %s=%s", key, list) >= size - at)
        return api_bad(e, "options", "are too many");
    return true;
}

static bool read_policy(const struct quire_doc *body, char *command, size_t size, char *reply, size_t reply_size,
                        struct api_error *e)
{
    const char *policy = NULL;
    struct quire_value options = json_field_get(body, "options"), rest = options, key, value;
    size_t n;
    if (!json_field_string(body, "policy", &policy, e))
        return false;
    if (!policy || !is_word(policy))
        return api_bad(e, "policy", "must be the name of a scheduling policy");
    if (options.n && !json_is(options, QUIRE_OBJECT))
        return api_bad(e, "options", "must be an object");
    snprintf(command, size, "set-policy %s", policy);
    while (options.n && quire_value_next(&rest, &key, &value)) {
        const char *name = quire_doc_text(body, key, &n);
        if (!name)
            return api_fail(e, 503, NULL, "out_of_memory", "out of memory");
        if (!add_option(command, size, name, value, e))
            return false;
    }
    snprintf(reply, reply_size, "{\"object\":\"scheduling_policy\",\"policy\":\"%.100s\"}", policy);
    return true;
}

void policy_start(struct served_model *m, struct http_exchange *x)
{
    struct api_error e;
    char command[WIRE_MAX_TEXT], reply[160];
    struct quire_doc *body = NULL;
    size_t n;
    if (!front_is_admin(m->front, x)) {
        api_fail(&e, 403, NULL, "permission_denied",
                 tenants_ask_key(m->front->tenants)
                     ? "this needs the key of an admin"
                     : "this is answered on the loopback address only, and to no web page");
        api_error_reply(x, &e);
        return;
    }
    char *text = http_take_body(x, &n);
    bool ok = request_body_parse(text, n, &body, &e) &&
              read_policy(body, command, sizeof command, reply, sizeof reply, &e);
    quire_doc_close(body);
    free(text);
    http_body_freed(x);
    if (ok)
        command_start(m, x, command, reply);
    else
        api_error_reply(x, &e);
}
