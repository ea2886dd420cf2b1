/* The contents of a repository on the hub: the reply of GET /api/models/NAME/revision/REVISION, and the selection of
 * files that a model needs. The reply is untrusted input. No I/O; any thread on its own values. */
#ifndef QUIRE_TOOLS_HUB_LIST_H
#define QUIRE_TOOLS_HUB_LIST_H

#include "base/status.h"
#include "app/models/cache.h"

#include <stdbool.h>
#include <stddef.h>

#define HUB_MAX_FILES 20000u
#define HUB_MAX_LIST_BYTES (16u << 20)

struct hub_list {
    char commit[HUB_COMMIT_BYTES];
    char **files; /* each passes hub_file_name_ok(), no duplicates; owned */
    size_t n;
};

/* out is complete or empty. Every name is checked, also of unneeded files: a repository with a name like "../x" is
 * rejected. */
int hub_list_parse(const char *json, size_t n_bytes, struct hub_list *out, struct quire_error *err);
void hub_list_free(struct hub_list *list);

/* Shell patterns ('*' also matches '/'), borrowed. Without include: the files that a model needs, HUB_WANTED. */
struct hub_patterns {
    const char *const *include, *const *exclude;
    size_t n_include, n_exclude;
};
#define HUB_WANTED "*.json *.safetensors tokenizer* *.txt *.jinja additional_chat_templates/*.jinja"

/* Keeps the selected files. Pickles are never selected, because Quire does not read them. GGUF files are not selected
 * here; hub_list_quant() selects one. */
void hub_list_select(struct hub_list *list, const struct hub_patterns *patterns);

/* Keeps one GGUF file, with its splits; quant "": the only one. QUIRE_NOT_FOUND as in hub_quant_choose() and
 * hub_quant_only(); QUIRE_UNSUPPORTED: the list lacks a split. */
int hub_list_quant(struct hub_list *list, const char *quant, struct quire_error *err);

/* Returns whether a file has this name or matches this pattern. */
bool hub_list_has(const struct hub_list *list, const char *pattern);

#endif
