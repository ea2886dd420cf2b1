/* Models by name in the user's Hugging Face cache: the downloads of huggingface_hub, vLLM and `quire pull`.
 *
 *   HUB/models--ORG--NAME/refs/REVISION         a commit
 *                         snapshots/COMMIT/...  the files, as links to
 *                         blobs/ETAG
 *
 * HUB is HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub. Only
 * reads; never uses the network. No state; any thread while no thread calls setenv().
 */
#ifndef QUIRE_APP_MODELS_CACHE_H
#define QUIRE_APP_MODELS_CACHE_H

#include "base/status.h"

#include <stdbool.h>

#define HUB_PATH_BYTES 4096
#define HUB_NAME_BYTES 97       /* huggingface_hub's limit of 96, and a NUL */
#define HUB_REVISION_BYTES 129
#define HUB_COMMIT_BYTES 41
#define HUB_FILE_NAME_BYTES 1025

#define HUB_QUANT_BYTES 33

/* ORG/NAME or NAME, checked: letters, digits, '-', '_' and '.', never "..", "--" or one of "-." at an end. */
struct hub_name {
    char text[HUB_NAME_BYTES];
    char quant[HUB_QUANT_BYTES]; /* of NAME:QUANT, otherwise "": selects a GGUF file of the repository */
    char revision[HUB_REVISION_BYTES]; /* a branch, a tag or a commit; default "main", or from NAME@REVISION */
};
int hub_name_parse(const char *given, struct hub_name *out, struct quire_error *err);

/* Returns whether text is 40 lower-case hex digits. */
bool hub_is_commit(const char *text);

/* Returns whether a repository's file may have this name. False if it could leave its directory or forge a line on a
 * terminal. */
bool hub_file_name_ok(const char *name);

/* HUB, or the path of `file` in HF_HOME's directory if file is not NULL. */
int hub_cache_root(char out[HUB_PATH_BYTES], struct quire_error *err);
int hub_home_path(const char *file, char out[HUB_PATH_BYTES], struct quire_error *err);

/* HUB/models--ORG--NAME. */
int hub_cache_repo(const struct hub_name *name, char out[HUB_PATH_BYTES], struct quire_error *err);

/* Checks that everything a model needs is present: config.json, tokenizer.json (or tokenizer.model) and, unless
 * without_weights, model.safetensors or each shard in its index. QUIRE_NOT_FOUND names the missing files. */
int hub_snapshot_check(const char *dir, bool without_weights, struct quire_error *err);

/* The resolved MODEL of a command. */
struct hub_model {
    char dir[HUB_PATH_BYTES]; /* or a GGUF file: the first of splits */
    char name
        /* the model's name for clients: the given name without its revision, or the directory's or file's name */
        [256];
};

/* Finds the GGUF file of a snapshot for a name with a quant, with all its splits. */
int hub_snapshot_quant(const char *dir, const char *quant, char out[HUB_PATH_BYTES], struct quire_error *err);

/* Resolves MODEL. An existing directory, or a file *.gguf, is used directly. Anything else is a name in the cache; if
 * it is missing, the error says what to do. without_weights: the tokenizer and the configuration are enough. */
int hub_model_find(const char *given, bool without_weights, struct hub_model *out, struct quire_error *err);

/* Finds the snapshot of ORG/NAME[@REVISION] that has config.json, whatever else it lacks. QUIRE_NOT_FOUND: the cache has
 * none. QUIRE_INVALID: it is not a name. */
int hub_config_find(const char *given, char dir[HUB_PATH_BYTES], struct quire_error *err);

#endif
