#include "app/models/name.h"

#include "app/models/hub_url.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define MAX_DEPTH 16 /* directories in a file name */

/* One half of ORG/NAME. huggingface_hub's rules. */
static bool part_ok(const char *part, size_t n)
{
    if (n == 0 || strchr("-.", part[0]) || strchr("-.", part[n - 1]))
        return false;
    for (size_t i = 0; i < n; i++) {
        bool doubled = i > 0 && part[i] == part[i - 1] && (part[i] == '-' || part[i] == '.');
        if (doubled || (!isalnum((unsigned char)part[i]) && !strchr("-_.", part[i])))
            return false;
    }
    return true;
}

/* A branch, a tag, "refs/pr/1" or a commit. It becomes a path below refs/. */
static bool revision_ok(const char *revision)
{
    size_t n = strlen(revision);
    if (n == 0 || n >= HUB_REVISION_BYTES || strstr(revision, "..") || strstr(revision, "//") ||
        strchr("/.-", revision[0]) || revision[n - 1] == '/')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)revision[i]) && !strchr("-_./+", revision[i]))
            return false;
    return strstr(revision, "/.") == NULL;
}

/* Letters, digits, '-', '_' and '.': "Q4_K_M", "UD-Q4_K_XL". */
static bool quant_ok(const char *quant, size_t n)
{
    if (n == 0 || n >= HUB_QUANT_BYTES)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)quant[i]) && !strchr("-_.", quant[i]))
            return false;
    return true;
}

int hub_name_parse(const char *typed, struct hub_name *out, struct quire_error *err)
{
    char of_url[HUB_NAME_BYTES + HUB_QUANT_BYTES + HUB_REVISION_BYTES + 2];
    const char *given = typed;
    if (hub_url_is(typed)) {
        int status = hub_url_read(typed, of_url, sizeof of_url, err);
        if (status != QUIRE_OK)
            return status;
        given = of_url;
    }
    const char *at = strchr(given, '@');
    const size_t n_given = at ? (size_t)(at - given) : strlen(given);
    const char *colon = memchr(given, ':', n_given);
    size_t n = colon ? (size_t)(colon - given) : n_given;
    const char *slash = memchr(given, '/', n);
    size_t first = slash ? (size_t)(slash - given) : n;
    if (n >= HUB_NAME_BYTES || !part_ok(given, first) || (slash && !part_ok(slash + 1, n - first - 1)))
        return quire_fail(err, QUIRE_INVALID,
                          "\"%.200s\" is not a model name: write ORG/NAME, such as Qwen/Qwen2.5-1.5B-Instruct, with "
                          "letters, digits, '-', '_' and '.'",
                          given);
    if (colon && !quant_ok(colon + 1, n_given - n - 1))
        return quire_fail(err, QUIRE_INVALID,
                          "\"%.200s\": write the quantization of a GGUF file after the colon, such as :Q4_K_M", given);
    if (at && !revision_ok(at + 1))
        return quire_fail(err, QUIRE_INVALID,
                          "\"%.200s\": write a branch, a tag or a commit after the @, such as "
                          "@main",
                          given);
    memcpy(out->text, given, n);
    out->text[n] = 0;
    snprintf(out->quant, sizeof out->quant, "%.*s", colon ? (int)(n_given - n - 1) : 0, colon ? colon + 1 : "");
    strcpy(out->revision, at ? at + 1 : "main");
    return QUIRE_OK;
}

bool hub_is_commit(const char *text)
{
    return strlen(text) == HUB_COMMIT_BYTES - 1 && strspn(text, "0123456789abcdef") == HUB_COMMIT_BYTES - 1;
}

bool hub_file_name_ok(const char *name)
{
    unsigned depth = 0;
    if (!*name || strlen(name) >= HUB_FILE_NAME_BYTES)
        return false;
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f || *c == '\\')
            return false;
    for (const char *part = name;; depth++) {
        size_t n = strcspn(part, "/");
        if (n == 0 || n > 255 || depth > MAX_DEPTH || (n == 1 && part[0] == '.') ||
            (n == 2 && memcmp(part, "..", 2) == 0))
            return false;
        if (!part[n])
            return true;
        part += n + 1;
    }
}

const char *hub_name_typed(const struct hub_name *name, char out[HUB_TYPED_BYTES])
{
    bool is_main = strcmp(name->revision, "main") == 0;
    snprintf(out, HUB_TYPED_BYTES, "%s%s%s%s%s", name->text, name->quant[0] ? ":" : "", name->quant, is_main ? "" : "@",
             is_main ? "" : name->revision);
    return out;
}
