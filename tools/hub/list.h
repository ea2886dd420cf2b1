/* What a repository on the hub holds: the answer of GET /api/models/NAME/revision/REVISION, and which of its files a model
 * needs. The answer is hostile until it is parsed. No I/O; any thread on its own values.
 */
#ifndef QUIRE_TOOLS_HUB_LIST_H
#define QUIRE_TOOLS_HUB_LIST_H

#include "base/status.h"
#include "tools/hub/cache.h"

#include <stdbool.h>
#include <stddef.h>

#define HUB_MAX_FILES 20000u
#define HUB_MAX_LIST_BYTES (16u << 20)

struct hub_list {
    char commit[HUB_COMMIT_BYTES];
    char **files; /* each hub_file_name_ok(), none twice; owned */
    size_t n;
};

/* out is whole or empty. Every name is checked, also those of files that nobody wants: a repository that has one like
 * "../x" is refused. */
int hub_list_parse(const char *json, size_t n_bytes, struct hub_list *out, struct quire_error *err);
void hub_list_free(struct hub_list *list);

/* Shell patterns ('*' also matches '/'), borrowed. Without include: what a model needs, HUB_WANTED. */
struct hub_patterns {
    const char *const *include, *const *exclude;
    size_t n_include, n_exclude;
};
#define HUB_WANTED "*.json *.safetensors tokenizer* *.txt *.jinja additional_chat_templates/*.jinja"

/* Leaves the wanted files. Pickles are never wanted: nothing in Quire reads them; nor is GGUF here, of which hub_list_quant()
 * chooses one. */
void hub_list_select(struct hub_list *list, const struct hub_patterns *patterns);

/* Leaves one GGUF file, with its splits. QUIRE_NOT_FOUND as hub_quant_choose(). */
int hub_list_quant(struct hub_list *list, const char *quant, struct quire_error *err);

/* Is there a file of this name, or one that matches this pattern? */
bool hub_list_has(const struct hub_list *list, const char *pattern);

#endif
