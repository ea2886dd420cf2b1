/* A hub's description of a repository: an accepted one has a commit, and names that stay below their directory. The
 * same bytes as a model's name, an ETag and a file's name. */
#include "fuzz.h"

#include "tools/hub/blob.h"
#include "tools/hub/list.h"

#include <stdlib.h>
#include <string.h>

/* By components, apart from what the parser does. */
static void check_file_name(const char *name)
{
    char *copy = strdup(name), *rest = copy, *part;
    if (*name == '/' || strchr(name, '\\'))
        abort();
    while ((part = strsep(&rest, "/")))
        if (!*part || strcmp(part, ".") == 0 || strcmp(part, "..") == 0)
            abort();
    free(copy);
}

static void check_text(const char *text)
{
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            abort();
}

static void check_words(const char *text)
{
    struct hub_name name;
    char etag[HUB_ETAG_BYTES];
    if (hub_name_parse(text, &name, NULL) == QUIRE_OK) {
        if (strstr(name.text, "..") || strstr(name.revision, "..") || name.revision[0] == '/')
            abort();
        check_text(name.text);
        check_text(name.revision);
    }
    if (hub_etag_parse(text, etag) && (strpbrk(etag, "/.\\") || !*etag))
        abort();
    if (hub_file_name_ok(text))
        check_file_name(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const exclude[] = {"*.json"};
    struct hub_list list;
    struct quire_error err = {.text = ""};
    char *text = malloc(n + 1);
    memcpy(text, data, n);
    text[n] = 0;
    check_words(text);
    if (hub_list_parse(text, n, &list, &err) == QUIRE_OK) {
        if (!hub_is_commit(list.commit) || list.n > HUB_MAX_FILES)
            abort();
        for (size_t i = 0; i < list.n; i++) {
            check_file_name(list.files[i]);
            check_text(list.files[i]);
        }
        const struct hub_patterns patterns = {NULL, exclude, 0, n % 2};
        hub_list_select(&list, &patterns);
        if (n % 2 && hub_list_has(&list, "*.json"))
            abort();
        hub_list_free(&list);
    } else if (list.n || list.files) {
        abort();
    }
    check_text(err.text);
    free(text);
    return 0;
}
