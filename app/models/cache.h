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

#include "app/models/name.h"
#include "base/status.h"

#include <stdbool.h>

#define HUB_PATH_BYTES 4096

/* HUB, or the path of `file` in HF_HOME's directory if file is not NULL. */
int hub_cache_root(char out[HUB_PATH_BYTES], struct quire_error *err);
int hub_home_path(const char *file, char out[HUB_PATH_BYTES], struct quire_error *err);

/* HUB/models--ORG--NAME. */
int hub_cache_repo(const struct hub_name *name, char out[HUB_PATH_BYTES], struct quire_error *err);

/* The commit of a name's revision. QUIRE_NOT_FOUND: the cache does not know it. */
int hub_cache_commit(const struct hub_name *name, char out[HUB_COMMIT_BYTES], struct quire_error *err);

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

/* Returns whether a path ends in .gguf, in any case. */
bool hub_is_gguf(const char *path);

/* Resolves MODEL. An existing directory or GGUF file is used directly; a directory with one GGUF file and no
 * config.json stands for that file. Anything else is a name in the cache; if it is missing, the error says what to do. without_weights: the tokenizer and the configuration are enough. */
int hub_model_find(const char *given, bool without_weights, struct hub_model *out, struct quire_error *err);

/* Finds the snapshot of ORG/NAME[@REVISION] that has config.json, whatever else it lacks. QUIRE_NOT_FOUND: the cache has
 * none. QUIRE_INVALID: it is not a name. */
int hub_config_find(const char *given, char dir[HUB_PATH_BYTES], struct quire_error *err);

#endif
