#include "app/serve/serve_values.h"

#include "base/encoding/json.h"
#include "server/link/supervisor.h"

#include "text/quire_chat.h"
#include "text/quire_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int serve_metrics_listen(const char *text, char host[SERVE_HOST_BYTES], struct front_listen *out,
                         struct quire_error *err)
{
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;
    size_t n_port = colon ? strspn(colon + 1, "0123456789") : 0;
    unsigned long port = n_port > 0 && n_port <= 5 && colon[1 + n_port] == '\0' ? strtoul(colon + 1, NULL, 10) : 65536;
    bool v6 = n > 2 && text[0] == '[' && text[n - 1] == ']';
    if (port > 65535 || n >= SERVE_HOST_BYTES || (!v6 && n > 0 && memchr(text, ':', n)))
        return quire_fail(err, QUIRE_INVALID, "--metrics-listen %s: must be HOST:PORT, [IPV6]:PORT or :PORT", text);
    snprintf(host, SERVE_HOST_BYTES, "%.*s", (int)(v6 ? n - 2 : n), v6 ? text + 1 : text);
    *out = (struct front_listen){.host = n > 0 ? host : NULL, .port = (uint16_t)port};
    return QUIRE_OK;
}

/* A variable that is set but has no key must not open the server. */
int serve_keys_of_environment(struct cli_list *keys, char **memory, struct quire_error *err)
{
    const char *value = getenv("QUIRE_API_KEY");
    if (!value || keys->n > 0)
        return QUIRE_OK;
    if (!*value || strpbrk(value, " \t\r\n"))
        return quire_fail(err, QUIRE_INVALID, "QUIRE_API_KEY: %s",
                          *value ? "must not contain white space"
                                 : "must not be empty: unset it to serve without keys");
    char *rest = *memory = strdup(value);
    if (!rest)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    for (const char *key; (key = strsep(&rest, ","));) {
        if (!*key)
            return quire_fail(err, QUIRE_INVALID, "QUIRE_API_KEY: contains an empty key");
        if (keys->n == CLI_MAX_LIST)
            return quire_fail(err, QUIRE_INVALID, "QUIRE_API_KEY: has more than %d keys: use --tenants", CLI_MAX_LIST);
        keys->items[keys->n++] = key;
    }
    return QUIRE_OK;
}

static bool is_backend(const char *name)
{
    static const char *const names[] = {"auto", "llguidance", "guidance", "xgrammar", "outlines", "lm-format-enforcer"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

int serve_parse_structured_outputs(const char *text, void *target, struct quire_error *err)
{
    static const char *const known[] = {"backend", "disable_any_whitespace", "disable_fallback"};
    const char *backend = "auto", *key;
    bool compact = true, fallback = true;
    json_t *root, *value;
    int status = quire_json_parse(text, strlen(text), 4, "its value", &root, err);
    if (status != QUIRE_OK)
        return status;
    if (!json_is_object(root))
        status = quire_fail(err, QUIRE_INVALID, "its value must be a JSON object");
    json_object_foreach(root, key, value)
    {
        bool is_known = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            is_known |= strcmp(key, known[i]) == 0;
        if (!is_known && status == QUIRE_OK)
            status = quire_fail(err, QUIRE_INVALID,
                                "\"%.40s\" is not supported; supported: backend, "
                                "disable_any_whitespace, disable_fallback",
                                key);
    }
    if (status == QUIRE_OK)
        status = quire_json_string(root, "its value", "backend", &backend, err);
    if (status == QUIRE_OK && !is_backend(backend))
        status = quire_fail(err, QUIRE_INVALID, "backend: \"%.40s\" is not known; write auto or llguidance", backend);
    if (status == QUIRE_OK)
        status = quire_json_bool(root, "its value", "disable_any_whitespace", &compact, err);
    if (status == QUIRE_OK)
        status = quire_json_bool(root, "its value", "disable_fallback", &fallback, err);
    if (status == QUIRE_OK)
        *(bool *)target = !compact;
    json_decref(root);
    return status;
}

int serve_parse_specials(const char *text, void *target, struct quire_error *err)
{
    static const char *const names[] = {
        [QUIRE_SPECIALS_ENCODE] = "encode", [QUIRE_SPECIALS_REFUSE] = "refuse", [QUIRE_SPECIALS_TEXT] = "text"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i]) == 0) {
            *(enum quire_specials *)target = (enum quire_specials)i;
            return QUIRE_OK;
        }
    return quire_fail(err, QUIRE_INVALID, "must be text, encode or refuse, not \"%.40s\"", text);
}

static int parse_restart(const char *text, void *target, struct quire_error *err)
{
    static const char again[] = "on-failure";
    const size_t n = sizeof again - 1;
    uint32_t *tries = target;
    unsigned long most = SUPERVISOR_TRIES;
    if (strcmp(text, "no") == 0) {
        *tries = 0;
        return QUIRE_OK;
    }
    if (strncmp(text, again, n) == 0 && text[n] == ':' && strspn(text + n + 1, "0123456789") == strlen(text + n + 1) &&
        strlen(text + n + 1) <= 5)
        most = strtoul(text + n + 1, NULL, 10);
    else if (strcmp(text, again) != 0)
        most = 0;
    if (most == 0)
        return quire_fail(err, QUIRE_INVALID, "must be no, on-failure or on-failure:N with N from 1, got \"%.40s\"",
                          text);
    *tries = (uint32_t)most;
    return QUIRE_OK;
}

struct cli_option serve_restart_option(uint32_t *tries)
{
    return (struct cli_option){
        .names = "restart",
        .kind = CLI_PARSED,
        .parse = parse_restart,
        .target = tries,
        .value = "no|on-failure[:N]",
        .common = true,
        .help = "on-failure[:N]: restart the engine if it or one of its ranks exits or hangs. The engine then runs "
                "in a process of its own. Requests get 503 until it is back. At most N restarts in a row, default "
                "5. Default no: the server exits with status 1."};
}
