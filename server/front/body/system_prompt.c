#include "server/front/body/system_prompt.h"

#include "server/front/front_internal.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define FIELD "system"

static bool is_key_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

static size_t skip_blanks(const char *text, size_t n, size_t at)
{
    while (at < n && (text[at] == ' ' || text[at] == '\t'))
        at++;
    return at;
}

/* Returns the position after "key=value;" from `at` on; the last semicolon may be missing at the end of a line. 0: no
 * such pair. */
static size_t behind_pair(const char *text, size_t n, size_t at)
{
    size_t key = skip_blanks(text, n, at), end = key;
    while (end < n && is_key_character(text[end]))
        end++;
    if (end == key || end == n || text[end] != '=')
        return 0;
    while (end < n && text[end] != ';' && text[end] != '\\' && text[end] != ' ')
        end++;
    if (end < n && text[end] == ';')
        return end + 1;
    return end == n || text[end] == '\\' ? end : 0;
}

size_t billing_line_bytes(const char *text, size_t n)
{
    static const char name[] = "x-anthropic-billing-header:";
    size_t end = sizeof name - 1, next;
    if (n < end || strncasecmp(text, name, end) != 0 || !behind_pair(text, n, end))
        return 0;
    while ((next = behind_pair(text, n, end)) > 0)
        end = next;
    end = skip_blanks(text, n, end);
    if (n - end >= 2 && memcmp(text + end, "\\r", 2) == 0)
        end += 2;
    if (n - end >= 2 && memcmp(text + end, "\\n", 2) == 0)
        end += 2;
    return end;
}

/* Adds one text, joined with those before it by a newline. */
static void put_text(struct buffer *o, struct quire_value text, bool drops_billing, size_t *n_blocks)
{
    const char *at = text.text + 1;
    size_t n = text.n - 2, skipped = drops_billing && *n_blocks == 0 ? billing_line_bytes(at, n) : 0;
    if (skipped > 0 && skipped == n) /* a block with only a billing line is left out */
        return;
    if ((*n_blocks)++ > 0)
        json_out_raw(o, "\\n");
    buffer_append(o, at + skipped, n - skipped);
}

bool system_prompt_add(struct buffer *o, struct quire_value system, bool drops_billing, struct api_error *e)
{
    struct quire_value rest = system, block;
    size_t n_blocks = 0, before = o->n;
    bool has_text = false;
    chat_put_message(o, "system");
    json_out_raw(o, "\"");
    size_t begin = o->n;
    if (json_is(system, QUIRE_STRING)) {
        put_text(o, system, drops_billing, &n_blocks);
        has_text = o->n > begin;
    } else if (!json_is(system, QUIRE_ARRAY)) {
        return api_bad(e, FIELD, "must be a string or an array of text blocks");
    }
    for (size_t i = 0; json_is(system, QUIRE_ARRAY) && quire_value_next(&rest, NULL, &block); i++) {
        struct quire_value type = quire_value_member(block, "type"), text = quire_value_member(block, "text");
        bool is_text = quire_value_is(type, "text");
        char path[40];
        snprintf(path, sizeof path, FIELD "[%zu].type", i);
        if (!json_is(type, QUIRE_STRING) || (is_text && !json_is(text, QUIRE_STRING)))
            return api_bad(e, FIELD, "a part must be {\"type\":\"text\",\"text\":...}");
        if (!is_text)
            return api_unsupported(e, path, "a part of type %.*s is not supported; the server reads text only",
                                   JSON_SHOWN(type));
        size_t n = o->n, blocks = n_blocks;
        put_text(o, text, drops_billing, &n_blocks);
        has_text |= o->n > n + (blocks > 0 ? 2 : 0);
    }
    json_out_raw(o, "\"}");
    if (!has_text) /* a template with its own default system prompt writes it, as if the field were absent */
        o->n = before;
    return true;
}
