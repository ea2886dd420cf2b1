/* Models by name, in the Hugging Face cache of the user: what huggingface_hub, vLLM and `quire pull` have downloaded.
 *
 *   HUB/models--ORG--NAME/refs/REVISION         a commit
 *                         snapshots/COMMIT/...  the files, as links to
 *                         blobs/ETAG
 *
 * HUB is HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub. Reads only;
 * nothing here touches the network. No state; any thread while nobody calls setenv().
 */
#ifndef QUIRE_TOOLS_HUB_CACHE_H
#define QUIRE_TOOLS_HUB_CACHE_H

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
    char quant[HUB_QUANT_BYTES]; /* of NAME:QUANT, "" without: which GGUF file of the repository */
    char revision[HUB_REVISION_BYTES]; /* a branch, a tag or a commit; "main" unless NAME@REVISION was given */
};
int hub_name_parse(const char *given, struct hub_name *out, struct quire_error *err);

/* 40 lower-case hex digits? */
bool hub_is_commit(const char *text);

/* May a file of a repository have this name? Not when it could lead out of its directory or forge a line on a terminal. */
bool hub_file_name_ok(const char *name);

/* HUB, or a path in what HF_HOME is: of `file` in it, when that is not NULL. */
int hub_cache_root(char out[HUB_PATH_BYTES], struct quire_error *err);
int hub_home_path(const char *file, char out[HUB_PATH_BYTES], struct quire_error *err);

/* HUB/models--ORG--NAME. */
int hub_cache_repo(const struct hub_name *name, char out[HUB_PATH_BYTES], struct quire_error *err);

/* Is everything there that a model needs: config.json, tokenizer.json and, unless without_weights, model.safetensors or
 * each shard that its index names? QUIRE_NOT_FOUND says which files are not. */
int hub_snapshot_check(const char *dir, bool without_weights, struct quire_error *err);

/* What a command was given as MODEL. */
struct hub_model {
    char dir[HUB_PATH_BYTES]; /* or a GGUF file: the first, of splits */
    char name
        [256]; /* what clients may call it: the name as given, less its revision; or the directory's, or file's, own */
};

/* The GGUF file of a snapshot that a name with a quant means, whole with its splits. */
int hub_snapshot_quant(const char *dir, const char *quant, char out[HUB_PATH_BYTES], struct quire_error *err);

/* An existing directory, or a file *.gguf, is itself. Anything else is a name to be found in the cache; what to do when it is not there is
 * in the error. without_weights: the tokenizer and the configuration are enough. */
int hub_model_find(const char *given, bool without_weights, struct hub_model *out, struct quire_error *err);

#endif
